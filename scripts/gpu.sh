#!/usr/bin/env bash
# What a real GPU does, in one call of under ten minutes: products of 4096 and 8192 in fp32 and bf16 as a
# fraction of the multiply-adds measured in the same run, attention and every other kernel of the seed's
# model, its whole training step, the bits against the CPU's, and PyTorch on the same card before and after,
# where it is there. Tables go to a folder; the last lines say what came out.
#
#   scripts/gpu.sh [FOLDER]                       the default: results/gpu, the best device of the machine
#   BACKEND=vulkan ADAPTER=nvidia scripts/gpu.sh  another device
#   SIZES=64 PRESET=tiny STEPS=2 BACKEND=vulkan scripts/gpu.sh /tmp/try     does it work here?
#
# ISOBIT names a built program; without it one is built. PYTHON names a Python with PyTorch.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

out=${1:-results/gpu}
sizes=${SIZES:-4096 8192}
preset=${PRESET:-seed}
steps=${STEPS:-10}
schemes=${SCHEMES:-fp32,mixed}
python=${PYTHON:-python3}
device=(--backend "${BACKEND:-auto}")
[ -n "${ADAPTER:-}" ] && device+=(--adapter "$ADAPTER")

mkdir -p "$out" || exit 2
begin=$SECONDS
failed=""

# Runs a part within its time, keeps what it prints, and goes on if it fails.
part() {
    local name=$1 seconds=$2
    shift 2
    echo "== $name ($((SECONDS - begin)) s)"
    if ! timeout "$seconds" "$@" >"$out/$name.txt" 2>&1; then
        failed="$failed $name"
        tail -n 3 "$out/$name.txt"
    fi
}

if [ -z "${ISOBIT:-}" ]; then
    cargo build --locked --release || exit 2
    ISOBIT=target/release/isobit
fi
torch=""
if "$python" -c 'import torch' 2>/dev/null; then
    torch=yes
else
    echo "no PyTorch for $python: nothing is measured beside it"
fi
beside() {
    [ -n "$torch" ] && part "torch_$1" 60 "$python" scripts/torch_beside.py --sizes "$sizes" \
        --preset "$preset" --schemes "$schemes" --steps "$steps" --out "$out/torch_$1.csv"
}

part adapters 20 "$ISOBIT" "${device[@]}" adapters
part probe 60 "$ISOBIT" "${device[@]}" probe --fresh --json "$out/passport.json"
beside before
for n in $sizes; do
    for grade in portable fast; do
        part "gemm_${n}_$grade" 60 "$ISOBIT" "${device[@]}" --numerics "$grade" gemm --n "$n" \
            --dtypes fp32,bf16 --warmup 3 --steps 20 --retune --out "$out/gemm_${n}_$grade.csv"
    done
    # Tensor cores through Vulkan or Metal; devices are listed with their features in the fourth line.
    chosen=$(sed -n 's/^chosen: \(.*)\): .*/\1/p' "$out/adapters.txt")
    if grep -A3 -F ": $chosen" "$out/adapters.txt" | grep -q 'cooperative matrix'; then
        part "gemm_${n}_cooperative" 60 "$ISOBIT" "${device[@]}" --numerics fast gemm --n "$n" --cooperative \
            --dtypes fp16 --warmup 3 --steps 20 --out "$out/gemm_${n}_cooperative.csv"
    else
        echo "no cooperative matrices there: $chosen"
    fi
done
for grade in portable fast; do
    part "bench_$grade" 90 "$ISOBIT" "${device[@]}" --numerics "$grade" bench --preset "$preset" \
        --schemes "$schemes" --steps "$steps" --retune --outdir "$out/$grade" --trace "$out/trace_$grade.json"
done
beside after
part check 60 "$ISOBIT" check --on "cpu,${BACKEND:-vulkan}${ADAPTER:+:$ADAPTER}" --preset tiny --steps 10

echo
echo "== products: dtype, ms, TFLOP/s, kernel, grade, of the ceiling"
for f in "$out"/gemm_*.csv; do
    # From the end: a device's name may hold commas.
    [ -e "$f" ] && echo "$(basename "$f" .csv)" &&
        awk -F, 'NR > 1 { print "  " $1, $2, $3, $(NF - 4) ",", $(NF - 3) ",", $(NF - 1) }' "$f"
done
echo "== steps: of all launches, and whole, in ms; attention: ms, FLOP of the ceiling"
for f in "$out"/portable/bench_*.csv "$out"/fast/bench_*.csv; do
    case $f in *_variants.csv) continue ;; esac
    [ -e "$f" ] && echo "$(basename "$(dirname "$f")")/$(basename "$f" .csv)" &&
        awk -F, '/^attention/ { print "  " $1, $3, $6 } /^sum|^whole/ { print "  " $1, $3 }' "$f"
done
for f in "$out"/torch_*.csv; do
    [ -e "$f" ] && echo "$(basename "$f" .csv)" && sed 1d "$f"
done
tail -n 1 "$out/check.txt"
echo "$((SECONDS - begin)) s in all; everything is in $out"
if [ -n "$failed" ]; then
    echo "failed:$failed (what each one said is in $out/<name>.txt)"
    exit 1
fi
