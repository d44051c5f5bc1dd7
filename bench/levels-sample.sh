#!/usr/bin/env bash
# Checks that the error that `slotpress levels --sample` states holds, by many samples and the whole
# input.
#
#   bench/levels-sample.sh [INPUT]     by default, a synthetic ledger of SIZE (2GiB)
#
# The stated error should hold for about 95 of 100 samples. Settings: SIZE, SAMPLE (256MiB), SAMPLES
# (40), LEVELS (1,3), FRAME_SIZE (2MiB, so that a small ledger has enough frames), SCRATCH
# (/dev/shm).
. "$(dirname "$0")/lib.sh"
size=${SIZE:-2GiB}
sample=${SAMPLE:-256MiB}
samples=${SAMPLES:-40}
levels=${LEVELS:-1,3}
build
scratch

input=${1:-}
if [ -z "$input" ]; then
    echo "making a synthetic ledger of $size" >&2
    input=$work/ledger
    "$slotpress" -q synth "$input" --size "$size" >/dev/null
fi
measure() {
    "$slotpress" -q --json levels "$input" --codec zstd --levels "$levels" --repeat 1 --min-time 0 --frame-size "${FRAME_SIZE:-2MiB}" \
        "$@" 2>/dev/null | grep '"type":"level"'
}
field() { sed "s/.*\"$1\":\([-0-9.]*\).*/\1/"; }

# All of the input, even if it is larger than what is held in memory by default: the size of
# archives tells.
IFS=, read -ra each <<<"$levels"
mkdir "$work/whole"
for level in "${each[@]}"; do
    "$slotpress" -q --json archive "$input" -o "$work/whole" --force --zstd-level "$level" \
        --frame-size "${FRAME_SIZE:-2MiB}" 2>/dev/null | field output_bytes >"$work/whole/$level.bytes"
    rm -f "$work"/whole/*.tar.zst
done

for seed in $(seq "$samples"); do
    measure --sample "$sample" --seed "$seed" >"$work/rows"
    while read -r row; do
        level=$(field level <<<"$row")
        awk -v estimate="$(field estimated_output_bytes <<<"$row")" -v error="$(field size_error_percent <<<"$row")" \
            -v whole="$(cat "$work/whole/$level.bytes")" -v level="$level" \
            'BEGIN {off = 100*(estimate/whole-1); print level, off, error, (off<0 ? -off : off) <= error}' >>"$work/samples"
    done <"$work/rows"
done

echo "$samples samples of $sample, frames of ${FRAME_SIZE:-2MiB}; error in % of the size"
echo
printf '%-8s %14s %14s %14s %10s\n' level "stated, mean" "actual, rms" "actual, worst" "within"
for level in "${each[@]}"; do
    awk -v level="$level" '$1==level {
        n++; stated += $3; square += $2*$2; within += $4; a = $2<0 ? -$2 : $2; if (a > worst) worst = a
    } END {printf "%-8s %14.2f %14.2f %14.2f %7d/%d\n", level, stated/n, sqrt(square/n), worst, within, n}' "$work/samples"
done
