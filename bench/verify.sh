#!/usr/bin/env bash
# Verifying: its speed against decoding and hashing alone, and its memory.
#
#   bench/verify.sh                 speed on a synthetic ledger of SIZE (1GiB), ROUNDS times
#   ACCOUNTS=50 bench/verify.sh     and the memory bound: so many million accounts, with much memory and with 256 MiB
#
# SCRATCH is where files go (tmpfs unless told otherwise; 50 million accounts take some 25 GB: give a disk).

. "$(dirname "$0")/lib.sh"
build --bin slotpress --example verify_floor
scratch

"$slotpress" synth "$work/ledger" --size "${SIZE:-1GiB}" -q >/dev/null
"$slotpress" archive "$work/ledger" --output "$work" -q >/dev/null
rm -r "$work/ledger"
archive=$(echo "$work"/snapshot-*.tar.zst)
for _ in $(seq "$rounds"); do
    "$(dirname "$slotpress")/examples/verify_floor" "$archive" "$threads" >>"$work/seconds"
done
for column in 1 2 3 4; do cut -d' ' -f$column "$work/seconds" >"$work/column$column"; done
echo "$(stat -c %s "$archive") bytes, $(head -1 "$work/seconds" | cut -d' ' -f5) accounts, CPU seconds of $threads threads, medians of $rounds"
of() { awk "{print $1}" "$work/seconds" | sort -g | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }
printf '%-44s %8.3f s\n' "decoding alone" "$(of '$1')"
printf '%-44s %8.3f s   %.0f %% of decoding'"'"'s speed\n' "steps 1 to 5" "$(of '$2')" "$(of '100*$1/$2')"
printf '%-44s %8.3f s   %.2f us an account\n' "hashing alone" "$(of '$3')" "$(of "\$3*1e6/\$5")"
printf '%-44s %8.3f s   %.2f x decoding and hashing\n' "verify" "$(of '$4')" "$(of '$4/($1+$3)')"
rm "$archive"

[ -n "${ACCOUNTS:-}" ] || exit 0
# The synthetic ledger's records take some 480 bytes each.
"$slotpress" synth "$work/ledger" --size "$((ACCOUNTS * 480))MB" -q >/dev/null
for memory in 16GiB 256MiB; do
    rm -rf "$work/times" "$work/memory"
    timed verify "$slotpress" verify "$work/ledger" --memory $memory --temporary-dir "$work" --threads "$threads" --json -q
    row verify "verify the ledger, --memory $memory" \
        "$(sed 's/.*"records":\([0-9]*\).*"spilled_bytes":\([0-9]*\).*/\1 records, \2 bytes spilled/' "$work/stdout")"
done
