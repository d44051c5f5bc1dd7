#!/usr/bin/env bash
# What others concluded about compressing small things, looked at with slotpress: which part holds, and for which data.
#
#   bench/conclusions.sh
#
# Transactions and log entries are made up by bench/samples.rs, accounts by `slotpress synth`; docs/levels.md says what
# that means. Sizes are exact and the same on every machine. Settings: SCRATCH (/dev/shm), TIME (1: seconds per table).
. "$(dirname "$0")/lib.sh"
build
build --example samples
samples=$(dirname "$slotpress")/examples/samples
scratch
time=${TIME:-1}

bundles() { "$slotpress" -q levels frames --sizes 1MiB --time "$time" --json "$@" | grep '"type":"bundle"'; }
field() { sed -n "s/.*\"$1\":\(-\{0,1\}[0-9.]*\).*/\1/p"; }
saving() { bundles "$@" | while read -r line; do
    printf '   %4s per frame: %6.1f %%\n' "$(field units_per_frame <<<"$line")" "$(field saving_percent <<<"$line")"
done; }

for codec in zlib:6 zstd:1; do
    echo "Transactions with $codec (published: -3 % below 250 bytes, 18 to 22 % above 1 KB, 20 % for 175 bundled)"
    for shape in "1 0 100000" "8 0 20000" "8 50 20000"; do
        read -r inputs reuse count <<<"$shape"
        unit=$((148 * inputs + 78))
        "$samples" transactions "$inputs" "$reuse" "$count" >"$work/transactions"
        echo " of $unit bytes, $reuse % of the inputs with the key of the one before:"
        saving "$work/transactions" --unit-size "$unit" --bundles 1,2,10,175 --codec "$codec"
    done
    echo "Log entries with $codec (published: 24, 47, 68, 75 % for 1, 2, 5, 10)"
    "$samples" logs 20000 >"$work/logs"
    saving "$work/logs" --lines --bundles 1,2,5,10,175 --codec "$codec"
    if [ ! -d "$work/ledger" ]; then "$slotpress" -q synth "$work/ledger" --size 128MiB >/dev/null; fi
    echo "Accounts with $codec, by size of the record:"
    "$slotpress" -q levels sizes "$work/ledger" --unit record --codec "$codec" --max-time "$time"
    echo "Accounts with $codec, bundled:"
    saving "$work/ledger" --codec "$codec"
done

echo "Frames of an archive that a rule of 20 % minimum saving stores raw (archive --min-savings 20):"
mkdir "$work/archive"
"$slotpress" -q archive "$work/ledger" -o "$work/archive" --min-savings 20 --json 2>/dev/null |
    sed -n 's/.*"frames":\([0-9]*\),"stored_frames":\([0-9]*\).*/   \2 of \1/p'
