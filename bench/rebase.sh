#!/usr/bin/env bash
# Measures the time of rebasing relative to verifying both states, its memory, and the size of its result, for
# several shares of changed storages.
#
#   bench/rebase.sh       on a state of SIZE MiB (1024), and newer ones in which 0.1, 1, 10 and 30% of the
#                         storages are newer
#
# Settings: ROUNDS (3), SIZE, THREADS (all cores), SCRATCH (/dev/shm). The results are compared with the
# incremental archives of the same ledgers on the same slot, which hold the changed records in the storages in
# which the validator has them.
ROUNDS=${ROUNDS:-3}
. "$(dirname "$0")/lib.sh"
size=${SIZE:-1024}
build
scratch

echo "${size} MiB of storages, $threads threads, medians of $rounds"
for permille in 1 10 100 300; do
    rm -rf "$work"/*
    kib=$((size * 1024 * permille / 1000))
    "$slotpress" -q synth "$work/ledger" --size "${size}MiB" --incremental "${kib}KiB" >/dev/null
    mkdir "$work/old" "$work/new" "$work/out"
    "$slotpress" -q archive "$work/ledger/at-full" -o "$work/old" >/dev/null
    "$slotpress" -q archive "$work/ledger" -o "$work/new" >/dev/null
    old=$(echo "$work"/old/*) new=$(echo "$work"/new/*)
    base_slot=$(basename "$old" | cut -d- -f2)
    "$slotpress" -q archive "$work/ledger" --base-slot "$base_slot" --force-base -o "$work/out" >/dev/null
    incremental_bytes=$(stat -c %s "$work"/out/incremental-*)
    rm -rf "$work/ledger"
    for _ in $(seq "$rounds"); do
        timed old "$slotpress" -q verify "$old" --threads "$threads"
        timed new "$slotpress" -q verify "$new" --threads "$threads"
        timed rebase "$slotpress" -q --json rebase "$new" --onto "$old" -o "$work/out" --force --threads "$threads"
    done
    paste "$work/times/old" "$work/times/new" | awk '{print $1+$2}' >"$work/times/both"
    counts=$(sed 's/.*"accounts_changed":\([0-9]*\),"accounts_new":\([0-9]*\),"accounts_closed":\([0-9]*\).*/\1 changed, \2 new, \3 closed/' "$work/stdout")
    bytes=$(sed 's/.*"output_bytes":\([0-9]*\).*/\1/' "$work/stdout")
    echo "== $((permille / 10)).$((permille % 10)) % newer: $counts"
    row rebase rebase "$(ratio rebase both) x verifying both"
    awk -v b="$bytes" -v n="$(stat -c %s "$new")" -v a="$incremental_bytes" \
        'BEGIN {printf "%d bytes, %.1f %% of the full archive, %.2f x the ledger'"'"'s incremental archive\n", b, 100*b/n, b/a}'
done
