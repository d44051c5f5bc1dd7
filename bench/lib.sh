# What the measurements share. Sourced, not run.
#
# Machines are noisy: every round runs each command once, in turn, and what is quoted are medians, and medians of the
# ratios within a round.

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
rounds=${ROUNDS:-5}
threads=${THREADS:-$(nproc)}

build() {
    cargo build --release --quiet --manifest-path "$here/Cargo.toml" "$@"
    slotpress=$(cargo metadata --format-version 1 --no-deps --manifest-path "$here/Cargo.toml" |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')/release/slotpress
}

# A scratch directory on tmpfs, so that no disk is measured; removed at the end.
scratch() {
    work=$(mktemp -d "${SCRATCH:-/dev/shm}/slotpress-bench-XXXXXX")
    trap 'rm -rf "$work"' EXIT
}

# Runs a command and appends its seconds to $work/times/NAME and its peak memory in KiB to $work/memory/NAME.
timed() {
    local name=$1
    shift
    mkdir -p "$work/times" "$work/memory"
    /usr/bin/time -f '%e %M' -o "$work/time" "$@" >"$work/stdout" 2>"$work/stderr" || {
        cat "$work/stderr" >&2
        echo "failed: $*" >&2
        exit 1
    }
    cut -d' ' -f1 "$work/time" >>"$work/times/$name"
    cut -d' ' -f2 "$work/time" >>"$work/memory/$name"
}

median() { sort -g "$1" | awk '{v[NR]=$1} END {print NR%2 ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2}'; }

# The median over rounds of A/B.
ratio() { paste "$work/times/$1" "$work/times/$2" | awk '$2>0 {print $1/$2}' >"$work/ratios" && median "$work/ratios"; }

row() { printf '%-34s %9.3f s %9.0f MiB   %s\n' "$2" "$(median "$work/times/$1")" "$(median "$work/memory/$1" | awk '{print $1/1024}')" "${3:-}"; }
