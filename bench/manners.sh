#!/usr/bin/env bash
# Measures how much of a validator's working set stays in the page cache while a larger, cold ledger
# beside it is archived and recompressed.
#
#   bench/manners.sh            a ledger of SIZE (512MiB), twice WARM_MIB (64) of warm files, and
#                               MEMORY_MIB (256) for everything
#
# Half of the warm files were used once, half more than once: Linux protects the latter well by
# itself, the former not at all.
#
# Everything runs in a memory control group (version 2 or 1, as root), so that memory is short, and
# on a real disk: SCRATCH (/var/tmp). Without root, it only shows how much of the ledger's own files
# is in memory. Needs fincore (util-linux).
. "$(dirname "$0")/lib.sh"
size=${SIZE:-512MiB}
warm_mib=${WARM_MIB:-64}
memory_mib=${MEMORY_MIB:-256}
SCRATCH=${SCRATCH:-/var/tmp}
[ -n "${SLOTPRESS:-}" ] && slotpress=$SLOTPRESS || build
scratch
if [ "$(stat -f -c %T "$work")" = tmpfs ]; then
    echo "$work is on tmpfs, where nothing can be dropped: set SCRATCH to a directory on a disk" >&2
    exit 1
fi

# Prints how much of the given files is in the page cache, in MiB.
resident() { find "$@" -type f -print0 | xargs -0 fincore --bytes --noheadings --output RES | awk '{sum += $1} END {printf "%.1f", sum / 1048576}'; }

cold() {
    sync -f "$work"
    find "$@" -type f -exec dd if={} iflag=nocache count=0 status=none \;
}

# Makes a control group that ends with the script. A page is charged to the group that first read
# it, so the warm set is read in the group too.
group=
make_group() {
    local name=slotpress-bench-$$
    if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
        echo +memory >/sys/fs/cgroup/cgroup.subtree_control && mkdir "/sys/fs/cgroup/$name" || return 0
        group=/sys/fs/cgroup/$name
        echo "${memory_mib}M" >"$group/memory.max"
    elif [ -d /sys/fs/cgroup/memory ]; then
        mkdir "/sys/fs/cgroup/memory/$name" || return 0
        group=/sys/fs/cgroup/memory/$name
        echo "${memory_mib}M" >"$group/memory.limit_in_bytes"
    fi
}
make_group 2>/dev/null || group=
trap 'rm -rf "$work"; [ -z "$group" ] || rmdir "$group"' EXIT
[ -n "$group" ] || echo "no memory control group (not root?): memory is not short, and the warm set stays in any case" >&2

in_group() { (
    [ -z "$group" ] || echo "$BASHPID" >"$group/cgroup.procs"
    exec "$@"
); }

echo "making a synthetic ledger of $size, and $warm_mib MiB of warm files" >&2
"$slotpress" -q synth "$work/ledger" --size "$size" >/dev/null
mkdir "$work/once" "$work/more"
for number in $(seq 8); do
    head -c $((warm_mib * 1048576 / 8)) /dev/urandom | tee "$work/once/$number" >"$work/more/$number"
done

columns='%-8s %12s %12s %12s %12s %12s %12s\n'
echo "MiB in the page cache, before and after; $size of ledger, $memory_mib MiB of memory"
printf "$columns" io-hint 'used once' after 'used more' after ledger archives
for hint in none gentle; do
    rm -rf "$work/archive" "$work/recompressed"
    mkdir "$work/archive" "$work/recompressed"
    cold "$work"
    in_group sh -c "cat '$work'/more/* '$work'/more/* '$work'/once/* >/dev/null"
    once=$(resident "$work/once") more=$(resident "$work/more")
    in_group "$slotpress" -q archive "$work/ledger" -o "$work/archive" --threads "$threads" --io-hint "$hint" >/dev/null
    in_group "$slotpress" -q recompress "$work"/archive/*.tar.zst -o "$work/recompressed" --threads "$threads" \
        --io-hint "$hint" >/dev/null
    printf "$columns" "$hint" "$once" "$(resident "$work/once")" "$more" "$(resident "$work/more")" \
        "$(resident "$work/ledger")" "$(resident "$work/archive" "$work/recompressed")"
done
