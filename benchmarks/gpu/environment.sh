# Sourced on the machine with the GPUs: where the unpacked packages are, and what its missing parts want switched off.
export PACKAGES=${PACKAGES:-/tmp/packages} WORK=${WORK:-/tmp/work} REPOSITORY=${REPOSITORY:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
export PYTHONPATH=$PACKAGES/miles PYTHONUNBUFFERED=1
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 TOKENIZERS_PARALLELISM=false HARBOR_TELEMETRY=0 RAY_USAGE_STATS_ENABLED=0
export SGLANG_IS_FLASHINFER_AVAILABLE=false SGLANG_ENABLE_JIT_DEEPGEMM=0
export NCCL_NVLS_ENABLE=0
export CUDA_HOME=${CUDA_HOME:-/usr/local/cuda}
cuda=$(python3 -c 'import nvidia, os; print(":".join(p for b in nvidia.__path__ if os.path.isdir(p := os.path.join(b, "cu13", "lib"))))')
export LD_LIBRARY_PATH=$PACKAGES/miles/_lib:$cuda:$CUDA_HOME/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
OUT=${OUT:-$WORK/out}
mkdir -p "$WORK" "$OUT"
