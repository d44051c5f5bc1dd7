#!/usr/bin/env bash
# What converting an archive of Firedancer's costs: a ledger of one, and the archive beside it, against restoring the same state
# from Agave's archive and archiving that ledger.
#
#   bench/firedancer.sh             on a synthetic ledger of SIZE (1GiB), ROUNDS times
#
# SCRATCH is where files go (tmpfs unless told otherwise; three times SIZE).

. "$(dirname "$0")/lib.sh"
build --bin slotpress
scratch

"$slotpress" synth "$work/ledger" --size "${SIZE:-1GiB}" --agave 4.4 --like firedancer -q >/dev/null
mkdir "$work/agave"
mv "$work/ledger/firedancer" "$work/firedancer"
"$slotpress" archive "$work/ledger" --output "$work/agave" -q >/dev/null
cp "$work/ledger/genesis.bin" "$work/genesis.bin"
rm -r "$work/ledger"
restore() { # NAME
    rm -rf "$work/restored"
    mkdir "$work/restored"
    cp "$work/genesis.bin" "$work/restored"
    timed "restore-$1" "$slotpress" restore "$work/$1"/snapshot-*.tar.zst --ledger "$work/restored" --threads "$threads" -q
}
for _ in $(seq "$rounds"); do
    restore firedancer
    restore agave
    mkdir -p "$work/restored/out"
    timed archive "$slotpress" archive "$work/restored" --output "$work/restored/out" --threads "$threads" -q
done
paste "$work"/times/{restore-firedancer,restore-agave,archive} |
    awk '{print $1/($2+$3) > "'"$work"'/both"; print ($1-$3)/$2 > "'"$work"'/unpacking"}'
paste "$work"/times/{restore-firedancer,restore-agave,archive}-cpu |
    awk '{print $1/($2+$3) > "'"$work"'/both-cpu"; print ($1-$3)/$2 > "'"$work"'/unpacking-cpu"}'
for name in restore-firedancer restore-agave archive; do
    row $name "$name" "CPU $(median "$work/times/$name-cpu") s"
done
echo "restore-firedancer / (restore-agave + archive): $(median "$work/both"), CPU $(median "$work/both-cpu")"
echo "(restore-firedancer - archive) / restore-agave: $(median "$work/unpacking"), CPU $(median "$work/unpacking-cpu")"
