#!/usr/bin/env bash
# Measures what the clustered layout saves and costs on data unlike mainnet's: the table of account
# mixes in docs/compression.md.
#
#   bench/mixes.sh     ledgers of `slotpress synth --mix` (SIZE, 128MiB each), one of another
#                      generator (bench/accounts.rs), and one that a validator left (tests/fixtures)
#
# Settings: LEDGER (one more, of a stopped validator or another generator), MIXES, ROUNDS (5),
# THREADS (all cores), SCRATCH (/dev/shm). Every round archives each ledger once with each setting,
# in turn. Prints medians of the ratios to level 1 within a round, for size, seconds and CPU
# seconds.
. "$(dirname "$0")/lib.sh"
size=${SIZE:-128MiB}
mixes=${MIXES:-mainnet tokens nfts programs empty random}
settings=('' '--layout clustered' '--layout clustered --zstd-level 2')
build
scratch
mkdir "$work/out" "$work/run"

ledgers=()
for mix in $mixes; do
    "$slotpress" -q synth "$work/$mix" --size "$size" --mix "$mix" >/dev/null
    ledgers+=("$mix")
done
other_accounts "$work/other" "$size"
ledgers+=(other)
validator=$(ls "$here"/tests/fixtures/agave-validator-4.2.2/snapshot-*.tar.* 2>/dev/null | head -1 || true)
if [ -n "$validator" ]; then
    "$slotpress" -q restore "$validator" --ledger "$work/validator" >/dev/null
    ledgers+=(validator)
fi

if [ -n "${LEDGER:-}" ]; then
    ln -s "$(realpath "$LEDGER")" "$work/ledger"
    ledgers+=(ledger)
fi

number() { sed -n "s/.*\"$1\":\([0-9.e-]*\).*/\1/p"; }

# Archiving a ledger of a few MiB takes less time than can be measured: archive small ones several
# times.
archive() {
    local name=$1 at=$2 repeat=1 line seconds=0 cpu=0 bytes
    [ "$name" = validator ] && repeat=10
    for _ in $(seq "$repeat"); do
        # shellcheck disable=SC2086 # a setting is several words
        line=$("$slotpress" -q --json archive "$work/$name" -o "$work/out" --threads "$threads" --force ${settings[at]})
        bytes=$(number output_bytes <<<"$line")
        seconds=$(awk -v a="$seconds" -v b="$(number elapsed_seconds <<<"$line")" 'BEGIN {print a + b}')
        cpu=$(awk -v a="$cpu" -v b="$(number cpu_seconds <<<"$line")" 'BEGIN {print a + b}')
        rm "$work"/out/*
    done
    echo "$bytes $seconds $cpu" >>"$work/run/$name-$at"
}

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    for name in "${ledgers[@]}"; do
        for at in "${!settings[@]}"; do archive "$name" "$at"; done
    done
done

column() { paste -d' ' "$work/run/$1-$2" "$work/run/$1-0" | awk -v n="$3" '$(n+3)>0 {print $n/$(n+3)}' >"$work/ratios" && median "$work/ratios"; }

echo "size, seconds and CPU against level 1; $size each, $threads threads, $(nproc) cores, $rounds rounds"
echo
echo "| accounts | ratio at level 1 | settings | size | seconds | CPU |"
echo "|---|--:|---|--:|--:|--:|"
for name in "${ledgers[@]}"; do
    content=$(du -sb "$work/$name/accounts" | cut -f1)
    packed=$(head -1 "$work/run/$name-0" | cut -d' ' -f1)
    for at in "${!settings[@]}"; do
        [ "$at" = 0 ] && continue
        printf '| %s | %.2f | `%s` | %.3f | %.2f | %.2f |\n' "$name" \
            "$(awk -v a="$content" -v b="$packed" 'BEGIN {print a / b}')" "${settings[at]}" \
            "$(column "$name" "$at" 1)" "$(column "$name" "$at" 2)" "$(column "$name" "$at" 3)"
    done
done
