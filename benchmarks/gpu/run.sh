#!/usr/bin/env bash
# Runs on the machine with the GPUs: `benchmarks/gpu/run.sh STEP...` in the order of README.md. Logs go to $OUT.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$REPOSITORY" || exit 2
begun=$(date +%s)

say() { echo "@@ $(($(date +%s) - begun)) s  $*"; }

# with a limit in seconds and a log; the last lines are shown where it failed
limited() {
    local limit=$1 log=$2 code
    shift 2
    timeout -k 10 "$limit" "$@" >"$OUT/$log.log" 2>&1
    code=$?
    say "$log: exit code $code"
    [ $code = 0 ] || grep -vi 'warn' "$OUT/$log.log" | tail -n 25 | cut -c1-240
    return $code
}

patch() { [ ! -f "$1" ] || sed -i "$2" "$1"; }

# unpack ARCHIVE...
unpack() {
    mkdir -p "$PACKAGES"
    for archive in "$@"; do
        python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1], "r:xz").extractall(sys.argv[2], filter="tar")' "$archive" "$PACKAGES"
    done
    patch "$PACKAGES/miles/miles/backends/megatron_utils/initialize.py" 's/^    assert np.__version__/    pass  # &/' # runs with numpy 2
    patch "$PACKAGES/miles/sgl_kernel/elementwise.py" 's/    _has_flashinfer = True/    _has_flashinfer = False/' # its sources are not carried
    patch "$PACKAGES/miles/miles/utils/distributed_utils.py" 's/else "pg_options"/else "backend_options"/' # takes torch 2.11 for older than 2.6
    # The newer Miles: its dashboard is off; an older SGLang ends a weight update otherwise, as the older Miles did; servers
    # that import all this for the first time take longer than half a minute; its own router, once it has found an engine
    # dead, does not take back the one that is restarted at that address.
    patch "$PACKAGES/newer/miles/dashboard/store.py" 's/^import polars as pl/import unittest.mock; pl = unittest.mock.MagicMock()/'
    patch "$PACKAGES/newer/miles/backends/sglang_utils/sglang_engine.py" 's/return self._make_request("begin_weight_update".*/return None/
        s/"end_weight_update", {}/"post_process_weights", {"post_process_quantization": True}/'
    patch "$PACKAGES/newer/miles/router/router.py" 's/^\( *\)# Add if new, keep a simple request count per worker/\1self.dead_workers.discard(worker_url)/'
    patch "$PACKAGES/newer/miles/ray/rollout/router_manager.py" 's/timeout=30)/timeout=120)/'
    python3 -m compileall -q -j 0 "$PACKAGES" >/dev/null # a dozen processes import all this
    say "unpacked $*"
}

# What this machine is, and whether its kernel carries the sandbox.
probe() {
    nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader
    uname -r
    python3 -c 'import numpy, sys, torch, transformers; print(sys.version.split()[0], torch.__version__, numpy.__version__, transformers.__version__, torch.cuda.device_count())'
    nproc
    df -h /tmp | tail -n 1
    python3 -c 'import socket; print(socket.gethostname(), socket.gethostbyname(socket.gethostname()))'
    unshare --user --map-root-user --mount --pid --mount-proc --fork true
    say "user namespaces: exit code $?"
    PYTHONPATH=$PACKAGES/harbor limited 60 sandbox python3 -c 'from sandbox.preflight import preflight; preflight()'
}

agents() {
    curl -sf -m 5 127.0.0.1:11000/health && return
    PYTHONPATH=$PACKAGES/harbor setsid python3 agent_server.py --environment local --harbor-tasks-dir "$WORK/tasks" --port 11000 \
        --max-concurrent "${TRIALS:-56}" --agent-timeout 300 --trials-dir "$WORK/trials" --ready-file "$WORK/agents.json" \
        --agent-options '{"system_prompt": "", "example_turns": []}' >"$WORK/agent_server.log" 2>&1 </dev/null &
    for _ in $(seq 60); do [ -s "$WORK/agents.json" ] && break; sleep 0.5; done
    say "agent server: $(cat "$WORK/agents.json")"
}

# One trial that needs no model.
trial() {
    local id
    id=$(ls "$WORK/tasks" | head -n 1)
    curl -s -m 60 127.0.0.1:11000/run -H 'content-type: application/json' -d "{\"instance_id\": \"$id\", \"agent_name\": \"oracle\"}"
    echo
}

checkpoint() {
    limited 200 checkpoint python3 -m benchmarks.gpu.checkpoint --tasks "$WORK/tasks" --out "$WORK/tiny" --steps "${STEPS:-150}"
    tail -n 4 "$OUT/checkpoint.log"
}

changes=benchmarks/gpu/no_transformer_engine.json
shape=benchmarks/gpu/model_shape.json

convert() {
    PYTHONPATH=$PYTHONPATH:benchmarks/gpu limited 150 convert python3 -m benchmarks.gpu.convert --model-shape $shape \
        --argument-changes $changes --hf-checkpoint "$WORK/tiny" --save "$WORK/reference"
    grep 'log-probabilities' "$OUT/convert.log"
}

# launch NAME LIMIT LAUNCHER OPTION... : as a user would start it, with its preflight
launch() {
    local name=$1 limit=$2
    shift 2
    limited "$limit" "$name" python3 "$@" --megatron-path "$PACKAGES/miles" --model-shape $shape \
        --hf-checkpoint "$WORK/tiny" --ref-load "$WORK/reference" --skip-prepare \
        --prompt-data "$WORK/prompts.jsonl" --harbor-tasks-dir "$WORK/tasks" --agent-server-url http://127.0.0.1:11000 \
        --max-seq-len 2048 --rollout-max-response-len 64 --lr 3e-4 --no-use-prometheus --miles-host-ip 127.0.0.1 \
        --extra-env-vars "PYTHONPATH=$REPOSITORY/benchmarks/gpu" "AGENT_TRIAL_TIMEOUT=900" \
        --save-dir "$WORK/$name" --save-traces-dir "$WORK/$name/traces"
    local code=$?
    # two Ray nodes on one machine show each line twice
    grep -aE '^phase|verdict|Timer (actor_train|update_weights|save_model) end|agents of rollout|model.py:.* step [0-9]+:|Health check failed|Recovered' \
        "$OUT/$name.log" | awk '!seen[$0]++' | cut -c1-400
    return $code
}

# job NAME LIMIT OPTION... ; CHANGES are further files of changes
job() {
    local name=$1 limit=$2
    shift 2
    launch "$name" "$limit" run.py --num-gpus-per-node "${GPUS:-1}" --miles-path "$PACKAGES/miles" --train-script benchmarks/gpu/train.py \
        --argument-changes $changes benchmarks/gpu/no_offloaded_optimizer.json $CHANGES "$@"
}

# nodes NODES GPUS : Ray nodes of so many GPUs each, all on this machine
nodes() {
    local node first where
    curl -sf -m 5 127.0.0.1:8265/api/version >/dev/null && return
    for node in $(seq 0 $(($1 - 1))); do
        first=$((node * $2))
        where="--address=127.0.0.1:6379"
        [ "$node" != 0 ] || where="--head --port=6379 --dashboard-host=127.0.0.1 --dashboard-port=8265"
        CUDA_VISIBLE_DEVICES=$(seq -s, $first $((first + $2 - 1))) limited 60 ray-node-$node python3 -m ray.scripts.scripts start $where \
            --num-gpus="$2" --dashboard-agent-listen-port=$((52365 + node)) --disable-usage-stats
    done
    for _ in $(seq 60); do curl -sf -m 2 127.0.0.1:8265/api/version >/dev/null && break; sleep 0.5; done
}

# async_job NAME LIMIT OPTION... : one node of `nodes` trains, the others sample
async_job() {
    local name=$1 limit=$2
    shift 2
    launch "$name" "$limit" run-glm47-flash-agentic-async.py --ray-address http://127.0.0.1:8265 \
        --num-nodes "${NODES:-2}" --train-num-nodes 1 --num-gpus-per-node "${GPUS:-1}" --miles-path "$PACKAGES/newer" \
        --argument-changes $changes $CHANGES --no-optimizer-cpu-offload --no-use-precision-aware-optimizer \
        --session-server-external-host 127.0.0.1 --session-server-workers 4 \
        --rollout-batch-size 4 --n-samples-per-prompt 8 --over-sampling-batch-size 8 "$@"
}

# kill_engine NAME : one SGLang server of that job, as soon as its second rollout is there and its first optimizer step goes on
kill_engine() {
    local actor server
    for _ in $(seq 300); do grep -qa 'agents of rollout 1:' "$OUT/$1.log" && break; sleep 1; done
    # by the number that this job's own log names: another run may have engines here too
    actor=$(grep -ao 'SGLangEngine pid=[0-9]*' "$OUT/$1.log" | head -n 1 | cut -d= -f2)
    [ -z "$actor" ] || server=$(ps -o pid=,args= --ppid "$actor" | awk '/spawn_main|sglang/ {print $1; exit}')
    [ -n "$server" ] || { say "no SGLang server of $1 to kill"; return 1; }
    say "killing SGLang server $server"
    kill -KILL "$server"
}

# killed_job NAME LIMIT OPTION... : an async_job that loses an engine. What is sampled until it is there again is discarded.
killed_job() {
    kill_engine "$1" &
    CHANGES=benchmarks/gpu/health_checks.json async_job "$@" --rollout-health-check-first-wait 1 --max-consecutive-discards 100000
}

# Which router passes on what a session server sends
router() {
    limited 150 router python3 -m benchmarks.gpu.router --model "$WORK/tiny"
    grep -a '^router' "$OUT/router.log"
}

# What goes home: dumps, outcomes, the plan and every log.
collect() {
    tar -C "$WORK" --exclude='*.distcp' -cJf "$OUT/runs.tar.xz" $(cd "$WORK" && ls -d */traces */launch */latest_checkpointed_iteration.txt 2>/dev/null)
    cp "$WORK/agent_server.log" "$OUT/"
    tar -C "$OUT" --remove-files -cJf "$OUT/logs.tar.xz" $(cd "$OUT" && ls *.log)
    ls -l "$OUT"
}

for step in "$@"; do
    # a step with arguments is one word in quotes
    $step || code=1
done
say end
exit "${code:-0}"
