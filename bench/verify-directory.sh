#!/usr/bin/env bash
# Measures verifying a directory of one full archive and four incremental ones on it, beside reading
# each of them once, and beside verifying each incremental one with the full one; with enough
# memory, and with so little that it spills.
#
#   bench/verify-directory.sh    a state of SIZE MiB (1024); the incremental archives have 1, 2, 5
#                                and 10 % of its storages, each with the changes of the one before
#
# Settings: ROUNDS (3), THREADS (all cores), LITTLE (64MiB, too little memory), SCRATCH (/dev/shm;
# temporary files go to /var/tmp).
ROUNDS=${ROUNDS:-3}
. "$(dirname "$0")/lib.sh"
size=${SIZE:-1024}
build
scratch

mkdir "$work/archives"
for permille in 10 20 50 100; do
    "$slotpress" -q synth "$work/ledger" --size "${size}MiB" --incremental "$((size * 1024 * permille / 1000))KiB" >/dev/null
    # The same for all of them.
    [ -n "${full:-}" ] || "$slotpress" -q archive "$work/ledger/at-full" -o "$work/archives" >/dev/null
    full=$(echo "$work"/archives/snapshot-*)
    "$slotpress" -q archive "$work/ledger" --base-slot "$(basename "$full" | cut -d- -f2)" -o "$work/archives" >/dev/null
    rm -rf "$work/ledger"
done
incrementals=("$work"/archives/incremental-*)
[ ${#incrementals[@]} = 4 ]

echo "${size} MiB of storages, $threads threads, medians of $rounds"
for memory in 4GiB "${LITTLE:-64MiB}"; do
    rm -rf "$work/times" "$work/memory"
    flags=(--memory "$memory" --threads "$threads" --temporary-dir /var/tmp -q)
    for _ in $(seq "$rounds"); do
        timed directory "$slotpress" verify "$work/archives" "${flags[@]}"
        timed full "$slotpress" verify "$full" "${flags[@]}"
        for at in 0 1 2 3; do
            timed "alone$at" "$slotpress" verify "${incrementals[$at]}" --check frames "${flags[@]}"
            timed "pair$at" "$slotpress" verify "$full" "${incrementals[$at]}" "${flags[@]}"
        done
    done
    for kind in alone pair; do
        for suffix in "" -cpu; do
            paste "$work/times/full$suffix" "$work"/times/$kind[0-3]"$suffix" | awk '{print $1+$2+$3+$4+$5}' >"$work/times/$kind$suffix"
        done
    done
    cat "$work"/memory/pair[0-3] | sort -g | tail -1 >"$work/memory/pair"
    cp "$work/memory/full" "$work/memory/alone"
    spilled=$("$slotpress" verify "$work/archives" "${flags[@]}" --json | sed 's/.*"spilled_bytes":\([0-9]*\).*/\1/' | sort -g | tail -1)
    echo "== --memory $memory: $spilled bytes spilled"
    row directory "the directory" "$(ratio directory-cpu alone-cpu) x the CPU seconds of each archive once"
    row alone "each archive once" "$(ratio directory alone) x"
    row pair "the full one, and each pair" "$(ratio directory pair) x"
done
