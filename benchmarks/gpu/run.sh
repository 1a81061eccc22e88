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

# job NAME LIMIT OPTION... : run.py as a user would start it, with its preflight; CHANGES are further files of changes
job() {
    local name=$1 limit=$2
    shift 2
    limited "$limit" "$name" python3 run.py --num-gpus-per-node "${GPUS:-1}" \
        --miles-path "$PACKAGES/miles" --megatron-path "$PACKAGES/miles" --train-script benchmarks/gpu/train.py \
        --model-shape $shape --argument-changes $changes $CHANGES \
        --hf-checkpoint "$WORK/tiny" --ref-load "$WORK/reference" --skip-prepare \
        --prompt-data "$WORK/prompts.jsonl" --harbor-tasks-dir "$WORK/tasks" --agent-server-url http://127.0.0.1:11000 \
        --max-seq-len 2048 --rollout-max-response-len 64 --lr 3e-4 --no-use-prometheus --miles-host-ip 127.0.0.1 \
        --extra-env-vars "PYTHONPATH=$REPOSITORY/benchmarks/gpu" "AGENT_TRIAL_TIMEOUT=900" \
        --save-dir "$WORK/$name" --save-traces-dir "$WORK/$name/traces" "$@"
    local code=$?
    grep -a '^phase\|verdict' "$OUT/$name.log"
    return $code
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
