#!/usr/bin/env bash
# Measures converting an archive of Firedancer's, beside recompressing and verifying Agave's archive
# of the same state.
#
#   bench/firedancer.sh             on a synthetic ledger of SIZE (1GiB), ROUNDS times
#
# SCRATCH is the directory for files (tmpfs unless it is set); they take three times SIZE.

. "$(dirname "$0")/lib.sh"
build --bin slotpress
scratch

"$slotpress" synth "$work/ledger" --size "${SIZE:-1GiB}" --agave 4.4 --like firedancer -q >/dev/null
mkdir "$work/agave" "$work/out"
mv "$work/ledger/firedancer" "$work/firedancer"
"$slotpress" archive "$work/ledger" --output "$work/agave" -q >/dev/null
cp "$work/ledger/genesis.bin" "$work/genesis.bin"
rm -r "$work/ledger"
for _ in $(seq "$rounds"); do
    timed convert "$slotpress" recompress "$work"/firedancer/snapshot-*.tar.zst --for agave --genesis "$work/genesis.bin" \
        --output "$work/out" --force --threads "$threads" -q
    timed recompress "$slotpress" recompress "$work"/agave/snapshot-*.tar.zst --output "$work/out" --force --threads "$threads" -q
    timed verify "$slotpress" verify "$work"/out/snapshot-*.tar.zst --threads "$threads" -q
done
for name in convert recompress verify; do
    row $name "$name" "CPU $(median "$work/times/$name-cpu") s"
done
paste "$work"/times/{convert,recompress,verify} | awk '{print $1/($2+$3)}' >"$work/both"
echo "convert / (recompress + verify): $(median "$work/both")"
