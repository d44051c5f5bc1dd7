#!/usr/bin/env bash
# Measures the time, CPU time and memory of exports, relative to verifying the same archive, and the bytes for each
# account.
#
#   bench/export.sh       on a state of SIZE: accounts (sorted, unsorted, with data), token accounts, all tables
#
# Settings: ROUNDS (3), SIZE in MiB (1864: 5 million accounts), THREADS (all cores), SCRATCH
# (/dev/shm).
ROUNDS=${ROUNDS:-3}
. "$(dirname "$0")/lib.sh"
size=${SIZE:-1864}
build --features export
scratch

"$slotpress" -q synth "$work/ledger" --size "${size}MiB" >/dev/null
mkdir "$work/archive"
"$slotpress" -q archive "$work/ledger" -o "$work/archive" >/dev/null
rm -rf "$work/ledger"
archive=$(echo "$work"/archive/*)
export_as() { # NAME FLAGS
    local name=$1
    shift
    rm -rf "$work/out"
    mkdir "$work/out"
    timed "$name" "$slotpress" -q export "$archive" -o "$work/out" --threads "$threads" "$@"
    du -sb "$work/out" | cut -f1 >"$work/bytes-$name"
    cat "$work"/out/*/_manifest-* | head -1 | sed 's/.*"accounts":\([0-9]*\).*/\1/' >"$work/rows-$name"
}
for _ in $(seq "$rounds"); do
    timed verify "$slotpress" -q verify "$archive" --threads "$threads"
    export_as accounts
    export_as unordered --order none
    export_as tokens --table token-accounts
    export_as tokens-unordered --table token-accounts --order none
    export_as both --table accounts,token-accounts
    export_as data --data full
    export_as all --table accounts,token-accounts,mints,stakes,votes,programs
done
echo "${size} MiB of storages, $(cat "$work/rows-accounts") accounts, $threads threads, medians of $rounds"
row verify verify ""
for name in accounts unordered tokens tokens-unordered both data all; do
    row "$name" "$name" "$(ratio "$name" verify) x verify, CPU $(ratio "$name-cpu" verify-cpu) x"
    awk -v b="$(cat "$work/bytes-$name")" -v r="$(cat "$work/rows-$name")" 'BEGIN {printf "%.1f bytes per account\n", b/r}'
done
