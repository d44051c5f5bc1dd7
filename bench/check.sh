#!/usr/bin/env bash
# Measures the CPU time that the state check adds to `restore` and `recompress`, on an archive without index and
# checksums. Each round has a run with the check and a run without it.
#
#   bench/check.sh       on a synthetic ledger of SIZE (512MiB), ROUNDS times
#
# SCRATCH is the directory for files (tmpfs unless it is set).

. "$(dirname "$0")/lib.sh"
build --bin slotpress
scratch

"$slotpress" synth "$work/ledger" --size "${SIZE:-512MiB}" -q >/dev/null
"$slotpress" archive "$work/ledger" --output "$work" -q >/dev/null
rm -r "$work/ledger"
ours=$(echo "$work"/snapshot-*.tar.zst)
mkdir "$work/plain" "$work/out"
# One frame without a checksum, as Agave up to 4.2 writes it.
zstd -dcq "$ours" | zstd -1 -q --no-check -o "$work/plain/$(basename "$ours")"
plain=$work/plain/$(basename "$ours")
rm "$ours"

# Appends the CPU seconds of a command to $work/times/NAME.
cpu() {
    local name=$1
    shift
    mkdir -p "$work/times"
    /usr/bin/time -f '%U %S' -o "$work/time" "$@" >"$work/stdout" 2>"$work/stderr" || { cat "$work/stderr" >&2; exit 1; }
    awk '{print $1 + $2}' "$work/time" >>"$work/times/$name"
}

for _ in $(seq "$rounds"); do
    for check in frames state; do
        cpu "restore-$check" "$slotpress" restore "$plain" --ledger "$work/restored" --check $check --threads "$threads" --json
        rm -r "$work/restored"
        cpu "recompress-$check" "$slotpress" recompress "$plain" -o "$work/out" --force --check $check --threads "$threads" --json
    done
done
accounts=$(sed 's/.*"accounts_checked":\([0-9]*\).*/\1/' "$work/stdout")
echo "$accounts accounts, CPU seconds of $threads threads, medians of $rounds"
for command in restore recompress; do
    frames=$(median "$work/times/$command-frames") state=$(median "$work/times/$command-state")
    printf '%-12s --check frames %.3f s, --check state %.3f s: %.2f x, %.0f ns an account\n' "$command" "$frames" "$state" \
        "$(ratio "$command-state" "$command-frames")" "$(awk "BEGIN {print ($state - $frames) * 1e9 / $accounts}")"
done
