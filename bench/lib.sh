# Functions that the measurements share. Sourced, not run.
#
# Machines are noisy, so every round runs each command once. The results are medians over rounds, and medians of
# the ratios within a round.

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
rounds=${ROUNDS:-5}
threads=${THREADS:-$(nproc)}

build() {
    cargo build --release --quiet --manifest-path "$here/Cargo.toml" "$@"
    slotpress=$(cargo metadata --format-version 1 --no-deps --manifest-path "$here/Cargo.toml" |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')/release/slotpress
}

# Makes a ledger of SIZE with accounts from a generator other than `slotpress synth` (bench/accounts.rs).
make_other_ledger() { # DIR SIZE
    cargo build --release --quiet --manifest-path "$here/Cargo.toml" --example accounts
    "$slotpress" -q synth "$1" --size "$2" --agave 4.4 >/dev/null
    "$(dirname "$slotpress")/examples/accounts" "$1" 1
}

# Makes a scratch directory, by default on tmpfs, so that no disk is measured. It is removed at the end.
scratch() {
    work=$(mktemp -d "${SCRATCH:-/dev/shm}/slotpress-bench-XXXXXX")
    trap 'rm -rf "$work"' EXIT
}

# Makes the directory of a new ledger with an archive in it, so that a restore does not copy the archive.
new_ledger() { # LEDGER ARCHIVE
    rm -rf "$1"
    mkdir "$1"
    ln "$2" "$1/"
}

# Runs a command and appends its seconds to $work/times/NAME, its CPU seconds to
# $work/times/NAME-cpu, and its peak memory in KiB to $work/memory/NAME.
timed() {
    local name=$1
    shift
    mkdir -p "$work/times" "$work/memory"
    /usr/bin/time -f '%e %M %U %S' -o "$work/time" "$@" >"$work/stdout" 2>"$work/stderr" || {
        cat "$work/stderr" >&2
        echo "failed: $*" >&2
        exit 1
    }
    cut -d' ' -f1 "$work/time" >>"$work/times/$name"
    cut -d' ' -f2 "$work/time" >>"$work/memory/$name"
    awk '{print $3+$4}' "$work/time" >>"$work/times/$name-cpu"
}

median() { sort -g "$1" | awk '{v[NR]=$1} END {print NR%2 ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2}'; }

# Prints the median over rounds of A/B.
ratio() { paste "$work/times/$1" "$work/times/$2" | awk '$2>0 {print $1/$2}' >"$work/ratios" && median "$work/ratios"; }

row() { printf '%-34s %9.3f s %9.0f MiB   %s\n' "$2" "$(median "$work/times/$1")" "$(median "$work/memory/$1" | awk '{print $1/1024}')" "${3:-}"; }

now() { echo "${EPOCHREALTIME/,/.}"; }

# Prints the bits per second of 100Mbit or 1Gbit.
bits() { awk -v text="$1" 'BEGIN {n = text+0; u = text; sub(/^[0-9.]+/, "", u); print n * (u=="Gbit" ? 1e9 : u=="Mbit" ? 1e6 : 1e3)}'; }

# Runs the script again in new namespaces, with two network namespaces (`ip netns exec sender`, `ip netns exec
# receiver`). At the end of the script, the namespaces and all processes in them end, too. `unshare` needs no root
# if users may make namespaces. Otherwise, a message says so, and the exit code is 2.
in_namespaces() { # SCRIPT [ARGUMENT]...
    if [ "${BENCH_INSIDE:-}" != yes ]; then
        unshare --map-root-user --net --mount --kill-child true 2>/dev/null || {
            echo "network namespaces are not allowed here: run it as root, or allow unprivileged user namespaces" >&2
            exit 2
        }
        [ -w /dev/net/tun ] || {
            echo "/dev/net/tun cannot be written: the link is made of TUN devices" >&2
            exit 2
        }
        export BENCH_INSIDE=yes slotpress
        exec unshare --map-root-user --net --mount --pid --fork --kill-child --mount-proc "$BASH" "$@"
    fi
    # `ip netns` keeps its names in /run. This mount is visible only in the namespaces.
    mount -t tmpfs tmpfs /run
    local space
    for space in sender receiver; do
        ip netns add $space
        ip netns exec $space ip link set lo up
    done
}

# Connects the sender, 10.77.0.1, to the receiver, 10.77.0.2. Needs the example link_shaper, built,
# and a scratch directory.
link_up() { # BITS RTT_SECONDS LOSS [RECEIVE_BUFFER_BYTES SEND_BUFFER_BYTES]
    "$(dirname "$slotpress")/examples/link_shaper" shape slot-a slot-b "$1" "$2" "$3" >"$work/shaper" &
    shaper_id=$!
    local end space device address
    for _ in $(seq 200); do grep -q ready "$work/shaper" && break; sleep 0.02; done
    ip link set slot-a netns sender
    ip link set slot-b netns receiver
    for end in sender:slot-a:10.77.0.1 receiver:slot-b:10.77.0.2; do
        IFS=: read -r space device address <<<"$end"
        ip netns exec "$space" ip address add "$address/24" dev "$device"
        ip netns exec "$space" ip link set "$device" mtu 1500 up
        [ $# -eq 3 ] || ip netns exec "$space" sh -c "echo '4096 131072 $4' >/proc/sys/net/ipv4/tcp_rmem
            echo '4096 65536 $5' >/proc/sys/net/ipv4/tcp_wmem
            echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save"
    done
}

link_down() {
    kill "$shaper_id"
    wait "$shaper_id" 2>/dev/null || true
}
