#!/usr/bin/env bash
# Measures sizes and times of levels and layouts, relative to level 1 with the layout `verbatim`, for
# docs/performance.md.
#
#   bench/compression.sh        on synthetic ledgers of SIZE (256MiB) of several SEEDS ("11 12 13"),
#                               and on one of the same size with the accounts of a different generator
#                               (bench/accounts.rs); page cache warm, on tmpfs
#   AGAVE_ORACLE=PROGRAM …      also on a ledger that PROGRAM makes, whose bytes are mostly random
#
# Settings: ROUNDS (5), THREADS (all cores), SCRATCH (/dev/shm). Every round archives each ledger once with each
# setting. Prints medians of the ratios within a round.
. "$(dirname "$0")/lib.sh"
size=${SIZE:-256MiB}
seeds=${SEEDS:-11 12 13}
settings=(
    ''
    '--zstd-level 2'
    '--zstd-level 3'
    '--zstd-level 7'
    '--zstd-level 10'
    '--layout clustered'
    '--layout clustered --zstd-level 2'
    '--layout clustered --zstd-level 3'
    '--layout clustered --zstd-level 10'
    '--layout clustered --frame-size 2MiB'
    '--layout clustered --frame-size 16MiB'
    '--layout clustered --frame-size 32MiB'
)
build
scratch

ledgers=()
for seed in $seeds; do
    "$slotpress" -q synth "$work/synth-$seed" --size "$size" --seed "$seed" >/dev/null
    ledgers+=("$work/synth-$seed")
done

field() { sed -n "s/.*\"$1\":\([0-9.e-]*\).*/\1/p"; }

# Archives every ledger with every setting N. Appends size, seconds, CPU seconds and seconds of decoding to
# $work/run/N.
measure() {
    rm -rf "$work/run" "$work/out"
    mkdir "$work/run" "$work/out"
    for round in $(seq "$rounds"); do
        echo "round $round of $rounds" >&2
        for ledger in "$@"; do
            for number in "${!settings[@]}"; do
                # shellcheck disable=SC2086 # a setting is several words
                line=$("$slotpress" -q --json archive "$ledger" -o "$work/out" --threads "$threads" --force ${settings[number]})
                archive=$(ls "$work"/out/*.tar.zst)
                decoded=$(decode_seconds "$archive")
                echo "$(field output_bytes <<<"$line") $(field elapsed_seconds <<<"$line")" \
                    "$(field cpu_seconds <<<"$line") $decoded" >>"$work/run/$number"
                rm "$archive"
            done
        done
    done
}

decode_seconds() {
    local file=$work/decode
    /usr/bin/time -f %U -o "$file" zstd -q -dc "$1" >/dev/null
    cat "$file"
}

# Prints the median, over rounds, of a column for setting N, relative to the first setting.
column() { paste -d' ' "$work/run/$1" "$work/run/0" | awk -v n="$2" '$(n+4)>0 {print $n/$(n+4)}' >"$work/ratios" && median "$work/ratios"; }

table() {
    echo
    echo "| settings | size | seconds | CPU | decoding |"
    echo "|---|---|---|---|---|"
    for number in "${!settings[@]}"; do
        printf '| `%s` | %.4f | %.2f | %.2f | %.2f |\n' "${settings[number]:---zstd-level 1}" \
            "$(column "$number" 1)" "$(column "$number" 2)" "$(column "$number" 3)" "$(column "$number" 4)"
    done
}

measure "${ledgers[@]}"
echo "synthetic ledgers of $size, seeds $seeds, $threads threads, $(nproc) cores, $rounds rounds; against level 1"
table

make_other_ledger "$work/other" "$size"
measure "$work/other"
echo
echo "accounts of a different generator, $size"
table
rm -r "$work/other"

if [ -n "${AGAVE_ORACLE:-}" ]; then
    "$AGAVE_ORACLE" gen "$work/gen" --accounts "${GEN_ACCOUNTS:-100000}" --slots "${GEN_SLOTS:-90}" >/dev/null 2>&1
    settings=('' '--layout clustered' '--layout clustered --zstd-level 2')
    measure "$work/gen"
    echo
    echo "a ledger made by Agave, of mostly random bytes"
    table
fi
