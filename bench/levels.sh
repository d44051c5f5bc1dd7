#!/usr/bin/env bash
# Makes the table of levels 1 to 10 for a synthetic ledger or INPUT. Compares its sizes and speeds with those that
# `zstd -b` measures.
#
#   bench/levels.sh [INPUT]     a ledger, an archive, an unpacked archive or any file; by default, a
#                               ledger of SIZE (512MiB)
#
# Writes levels.txt, levels.csv and levels.html to OUT (bench/results). Settings: SIZE, THREADS (all
# cores), LEVELS (1-10), SPEED_LEVELS (1-4: compared with zstd -b on one thread), BUDGET (10min, for
# each table), SCRATCH (/dev/shm), CHECK=no (leaves out zstd -b). Needs zstd and about 4 x SIZE of
# memory. An INPUT that must be unpacked for zstd -b takes its unpacked size in SCRATCH.
. "$(dirname "$0")/lib.sh"
size=${SIZE:-512MiB}
levels=${LEVELS:-1-10}
speed_levels=${SPEED_LEVELS:-1-4}
out=${OUT:-$here/bench/results}
build
scratch
mkdir -p "$out"

input=${1:-}
if [ -z "$input" ]; then
    echo "making a synthetic ledger of $size" >&2
    input=$work/ledger
    "$slotpress" -q synth "$input" --size "$size" >/dev/null
fi

"$slotpress" levels "$input" --levels "$levels" --threads "$threads" --budget "${BUDGET:-10min}" \
    --csv "$out/levels.csv" --html "$out/levels.html" | tee "$out/levels.txt"
[ "${CHECK:-yes}" = yes ] || exit 0
if grep -q estimated_output_bytes "$out/levels.csv"; then
    echo "not compared with zstd -b, which measures whole files, because the table is of a sample" >&2
    exit 0
fi

# The input of zstd -b: the tar stream in a file.
mkdir "$work/tar"
if [ -d "$input" ]; then
    "$slotpress" -q archive "$input" -o "$work/tar" --format none >/dev/null 2>&1
    tar=$(echo "$work"/tar/*.tar)
elif zstd -q -t "$input" 2>/dev/null; then
    tar=$work/tar/content
    zstd -q -d -o "$tar" "$input"
else
    tar=$input
fi

field() {
    awk -F, -v level="$1" -v name="$2" '
        NR == 1 {for (i = 1; i <= NF; i++) at[$i] = i}
        $at["codec"] == "zstd" && $at["level"] == level {print $at[name]}' "$3"
}

library=$(sed -n 's/^version = ".*+zstd\.\(.*\)"/\1/p' "$here/Cargo.lock")
program=$(zstd --version | sed 's/.* v\([0-9.]*\),.*/\1/')
limit=0.5
if [ "$library" = "$program" ]; then limit=0.1; fi
# With -q, lines are: -LEVEL SIZE (RATIO) SPEED MB/s SPEED MB/s NAME. -i0 runs every level once.
last=${levels##*[-,]}
zstd -q -b1 -e"$last" -i0 -B8388608 "$tar" 2>&1 | grep '^-[0-9]' >"$work/zstd-sizes"

echo
echo "Size against zstd -b -B8388608 (libzstd $library here, $program there): at most $limit % apart"
echo
worst=0
while read -r level bytes _; do
    ours=$(field "${level#-}" output_bytes "$out/levels.csv")
    [ -n "$ours" ] || continue
    difference=$(awk -v a="$ours" -v b="$bytes" 'BEGIN {printf "%.4f", 100*(a/b-1)}')
    printf 'level %-3s %14s %14s   %8s %%\n' "${level#-}" "$ours" "$bytes" "$difference"
    worst=$(awk -v a="$difference" -v b="$worst" 'BEGIN {a = a<0 ? -a : a; print (a > b) ? a : b}')
done <"$work/zstd-sizes"

echo
echo "Speed against zstd -b on one thread, fastest runs, MB/s"
echo
"$slotpress" -q levels "$tar" --codec zstd --levels "$speed_levels" --budget "${BUDGET:-10min}" --threads 1 --min-time 2 --csv "$work/ours" >/dev/null 2>&1
zstd -q -b"${speed_levels%%[-,]*}" -e"${speed_levels##*[-,]}" -i2 -B8388608 "$tar" 2>&1 | grep '^-[0-9]' >"$work/zstd-speeds"
printf '%-9s %22s %8s %25s %8s\n' level "compress: ours, zstd" ratio "decompress: ours, zstd" ratio
while read -r level _ _ compress _ decompress _; do
    level=${level#-}
    bytes=$(field "$level" input_bytes "$work/ours")
    [ -n "$bytes" ] || continue
    awk -v level="$level" -v bytes="$bytes" -v c="$(field "$level" compress_seconds_min "$work/ours")" \
        -v d="$(field "$level" decompress_seconds_min "$work/ours")" -v zc="$compress" -v zd="$decompress" 'BEGIN {
            oc = bytes/1e6/c; od = bytes/1e6/d
            printf "level %-3s %12.1f %9.1f %8.3f %15.1f %9.1f %8.3f\n", level, oc, zc, oc/zc, od, zd, od/zd }'
done <"$work/zstd-speeds"
awk -v worst="$worst" -v limit="$limit" 'BEGIN {exit !(worst <= limit)}' || {
    echo "sizes differ by $worst%, more than $limit%" >&2
    exit 1
}
