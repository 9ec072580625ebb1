#!/bin/sh
# Everything about CUDA on a machine with an NVIDIA GPU: tests, measurements, and the files that hold them.
#
#   sh scripts/cuda.sh                 builds, then takes less than eight minutes
#   sh scripts/cuda.sh --sizes small   the same at small sizes, to see that it goes through
#   sh scripts/cuda.sh --list          what it would run
#
# It needs cargo, a CUDA driver, and libnvrtc and libcublasLt of toolkit 12 in the library path; on a machine
# without a driver it ends with one line and code 2. Results: results/evidence/cuda_*.csv and
# cuda_env.json (device, versions, commit, and each command with its seconds and its exit code). Then
#   python3 scripts/cuda_torch.py      prints them beside PyTorch's figures, measured anew
set -u
cd "$(dirname "$0")/.." || exit 2
sizes=seed
list=no
while [ $# -gt 0 ]; do
    case "$1" in
    --sizes) sizes="${2:-}"; shift ;;
    --list) list=yes ;;
    *) echo "cuda.sh: $1 is no option; there are --sizes seed, --sizes small, --list" >&2; exit 2 ;;
    esac
    shift
done
case "$sizes" in
seed) n=8192; preset=seed; steps=60; gemm_steps=50 ;;
small) n=512; preset=tiny; steps=10; gemm_steps=5 ;;
*) echo "cuda.sh: --sizes is seed or small" >&2; exit 2 ;;
esac

out=results/evidence
run=results/cuda-run
program=target/release/isobit
commands=$(mktemp) && log=$(mktemp) || exit 2
trap 'rm -f "$commands" "$log"' EXIT
trap 'echo "cuda.sh: stopped; what was done by then is in $out" >&2; exit 130' INT TERM
failed=0

# A JSON string.
quote() {
    printf '"%s"' "$(printf '%s' "$1" | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g')"
}

# Runs a command, at most so many seconds, and notes how long it took and how it ended.
step() {
    name=$1 most=$2
    shift 2
    echo
    echo "== $name: $*"
    [ "$list" = yes ] && return 0
    begin=$(date +%s)
    timeout "$most" "$@"
    code=$?
    seconds=$(($(date +%s) - begin))
    [ -s "$commands" ] && printf ',\n' >> "$commands"
    printf '    {"name": %s, "command": %s, "seconds": %s, "exit_code": %s}' \
        "$(quote "$name")" "$(quote "$*")" "$seconds" "$code" >> "$commands"
    if [ $code -ne 0 ]; then
        echo "cuda.sh: $name ended with code $code" >&2
        failed=1
    fi
    return 0
}

build() {
    cargo build --locked --release --features cuda &&
        cargo test --locked --release --features cuda --no-run --test cuda --test cuda_kernels --test cuda_train
}
if [ "$list" = no ]; then
    if ! command -v nvidia-smi > /dev/null && ! ldconfig -p 2> /dev/null | grep -q 'libcuda\.so'; then
        echo "cuda.sh: no CUDA driver was found (neither nvidia-smi nor libcuda)" >&2
        exit 2
    fi
    build || exit 2
    # One line and code 2 where there is no device.
    "$program" adapters --backend cuda > "$log" || exit 2
    cat "$log"
    mkdir -p "$out" "$run" || exit 2
fi
start=$(date +%s)

# Kernels bit for bit against the CPU, whole steps digest for digest, products against their formats' errors.
step tests 150 cargo test --locked --release --features cuda --test cuda --test cuda_kernels --test cuda_train -- --nocapture gpu
step probe 30 "$program" probe --backend cuda --fresh --json "$out/cuda.passport.json"
step check 60 "$program" check --on cpu,cuda --preset small --schemes fp32,mixed,fp16 --steps 5
step gemm 60 "$program" gemm --backend cuda --n "$n" --steps "$gemm_steps" --out "$out/cuda_gemm.csv"
step gemm-portable 45 "$program" gemm --backend cuda --numerics portable --n "$((n / 4))" --dtypes fp32,bf16,fp16 --warmup 2 --steps 5 --out "$out/cuda_gemm_portable.csv"
step bench 45 "$program" bench --backend cuda --numerics fast --preset "$preset" --schemes fp32,mixed,fp16 --steps 10 --outdir "$run"
step train 75 "$program" train --backend cuda --numerics fast --preset "$preset" --schemes fp32,mixed,fp16 --steps "$steps" --overwrite --quiet --outdir "$run/train"

if [ "$list" = yes ]; then
    exit 0
fi
for scheme in fp32 mixed fp16; do
    [ -f "$run/bench_${preset}_$scheme.csv" ] && cp "$run/bench_${preset}_$scheme.csv" "$out/cuda_bench_$scheme.csv"
    [ -f "$run/train/steps_$scheme.csv" ] && cp "$run/train/steps_$scheme.csv" "$out/cuda_steps_$scheme.csv"
done
[ -f "$run/train/summary.csv" ] && cp "$run/train/summary.csv" "$out/cuda_summary.csv"

smi=$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader 2>/dev/null | head -1)
{
    printf '{\n'
    printf '  "made_by": "scripts/cuda.sh",\n'
    printf '  "date": %s,\n' "$(quote "$(date -u +%Y-%m-%dT%H:%M:%SZ)")"
    printf '  "commit": %s,\n' "$(quote "$(git rev-parse HEAD 2>/dev/null)")"
    printf '  "device": %s,\n' "$(quote "$(grep '^chosen:' "$log" | cut -c9-)")"
    printf '  "nvidia_smi": %s,\n' "$(quote "$smi")"
    printf '  "system": %s,\n' "$(quote "$(uname -srm)")"
    printf '  "rustc": %s,\n' "$(quote "$(rustc --version)")"
    printf '  "sizes": {"gemm_n": %s, "preset": "%s", "steps": %s},\n' "$n" "$preset" "$steps"
    printf '  "seconds": %s,\n' "$(($(date +%s) - start))"
    printf '  "commands": [\n'
    cat "$commands"
    printf '\n  ]\n}\n'
} > "$out/cuda_env.json.part" && mv "$out/cuda_env.json.part" "$out/cuda_env.json"
echo
echo "written: $(ls "$out"/cuda* | tr '\n' ' ')in $(($(date +%s) - start)) s"
exit $failed
