#!/usr/bin/env bash
# Measures the speed of verifying relative to decoding and hashing alone, and its memory.
#
#   bench/verify.sh                 measures the speed on a synthetic ledger of SIZE (1GiB), ROUNDS times
#   ACCOUNTS=50 bench/verify.sh     also measures memory, on a ledger of that many million records and its
#                                   archive, with enough memory and with too little; fails if the limit is
#                                   exceeded. With ROUNDS=0, it measures only memory
#
# SCRATCH is the directory for files (tmpfs unless it is set). 50 million records take about 27 GB, so use a
# disk.

. "$(dirname "$0")/lib.sh"
build --bin slotpress --example floor
scratch

speed() {
    "$slotpress" synth "$work/ledger" --size "${SIZE:-1GiB}" -q >/dev/null
    "$slotpress" archive "$work/ledger" --output "$work" -q >/dev/null
    rm -r "$work/ledger"
    archive=$(echo "$work"/snapshot-*.tar.zst)
    for _ in $(seq "$rounds"); do
        "$(dirname "$slotpress")/examples/floor" verify "$archive" "$threads" >>"$work/seconds"
    done
    for column in 1 2 3 4; do cut -d' ' -f$column "$work/seconds" >"$work/column$column"; done
    echo "$(stat -c %s "$archive") bytes, $(head -1 "$work/seconds" | cut -d' ' -f5) accounts, CPU seconds of $threads threads, medians of $rounds"
    of() { awk "{print $1}" "$work/seconds" | sort -g | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }
    printf '%-44s %8.3f s\n' "decoding alone" "$(of '$1')"
    printf '%-44s %8.3f s   %.0f %% of decoding'"'"'s speed\n' "reading all records, without hashing" "$(of '$2')" "$(of '100*$1/$2')"
    printf '%-44s %8.3f s   %.2f us an account\n' "hashing alone" "$(of '$3')" "$(of "\$3*1e6/\$5")"
    printf '%-44s %8.3f s   %.2f x hashing alone\n' "verify, less reading all records" "$(of '$4-$2')" "$(of '($4-$2)/$3')"
    printf '%-44s %8.3f s   %.2f x decoding and hashing\n' "verify" "$(of '$4')" "$(of '$4/($1+$3)')"
    rm "$archive"
}
[ "$rounds" = 0 ] || speed

[ -n "${ACCOUNTS:-}" ] || exit 0
needed=$((ACCOUNTS * 550 * 1000 * 1000)) free=$(($(stat -f -c '%a * %S' "$work")))
[ "$free" -gt "$needed" ] || { echo "$work: $needed bytes needed, $free free" >&2; exit 1; }
# A record of the synthetic ledger takes about 392 bytes.
"$slotpress" synth "$work/ledger" --size "$((ACCOUNTS * 393))MB" -q >/dev/null
"$slotpress" archive "$work/ledger" --output "$work" --threads "$threads" -q >/dev/null
for memory in 2048 512; do
    for input in "$work/ledger" "$work"/snapshot-*.tar.zst; do
        rm -rf "$work/times" "$work/memory"
        TMPDIR=$work timed verify "$slotpress" verify "$input" --memory ${memory}MiB --threads "$threads" --json -q
        kind=ledger
        [ -d "$input" ] || kind=archive
        row verify "the $kind, --memory ${memory}MiB" \
            "$(sed 's/.*"records":\([0-9]*\),"accounts":\([0-9]*\).*"superseded":\([0-9]*\),"spilled_bytes":\([0-9]*\).*/\1 records, \2 accounts, \3 superseded, \4 bytes spilled/' "$work/stdout")"
        [ "$(median "$work/memory/verify")" -le $((memory * 1024)) ] || { echo "more memory than given" >&2; exit 1; }
    done
done
