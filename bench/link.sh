#!/usr/bin/env bash
# Compares the times that `slotpress levels link` predicts with measured times of real archives over a real TCP
# connection.
#
#   bench/link.sh            ends with exit code 1 if a prediction is more than LIMIT percent off
#
# A link with a bandwidth and a delay connects two network namespaces. Sender and receiver have one worker each
# (THREADS=1), so that each has its own core on a machine of at least two cores. The levels are measured with
# the same number of workers.
#
# - store and forward: `archive` writes a file, which is sent over the link into a second file, from which
#   `restore` reads. Archiving and restoring do not depend on the link, and are timed once per level.
# - streaming: `archive -o -` writes into the link, and `zstd -dc | tar -x` reads from it at the same time.
#
# Times and predictions are medians of ROUNDS; each round measures the levels again.
#
# The rates of reading and placing are measured first, with a plain tar, and passed to the model.
# TCP's buffers are large (64 MiB at both ends), so that the link is the limit. BUFFERS=default uses
# Linux's defaults, which the default --window of `levels link` describes.
#
# Settings: RATES, RTTS, LEVELS (none is uncompressed), SIZE (of the ledger; by default, large
# enough to take seconds), WAYS, BUFFERS, ROUNDS (3), THREADS, LIMIT (10), SCRATCH (/dev/shm), MEASURED
# (a file to which the rows are appended). Needs zstd, tar, ip (iproute2), unshare.
. "$(dirname "$0")/lib.sh"
rounds=${ROUNDS:-3}
threads=${THREADS:-1}
receive_buffer=67108864
send_buffer=67108864
# Two thirds of the send buffer, as the default of `levels link`.
window=(--window 44739242)
if [ "${BUFFERS:-}" = default ]; then receive_buffer=6291456 send_buffer=4194304 window=(); fi
limit=${LIMIT:-10}
read -ra rates <<<"${RATES:-100Mbit 1Gbit}"
read -ra rtts <<<"${RTTS:-0 30ms 60ms}"
read -ra levels <<<"${LEVELS:-none 1 3 9}"
read -ra ways <<<"${WAYS:-store_and_forward streaming}"

[ "${BENCH_INSIDE:-}" = yes ] || build --bins --example link_shaper
in_namespaces "$0" "$@"
shaper=$(dirname "$slotpress")/examples/link_shaper
scratch

since() { awk -v a="$1" -v b="$(now)" 'BEGIN {printf "%.4f", b-a}'; }
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([-0-9.a-z_]*\).*/\1/p"; }
seconds_of() { awk -v text="$1" 'BEGIN {print (text ~ /ms$/) ? text/1000 : text+0}'; }

serve() { ip netns exec sender "$shaper" serve 10.77.0.1:7000 cubic; }
fetch() { ip netns exec receiver "$shaper" fetch 10.77.0.1:7000; }

# Prints the flags of `archive` for a level.
flags() { if [ "$1" = none ]; then echo "--format none"; else echo "--zstd-level $1"; fi; }

# Makes a ledger of a size and its archives, once, and measures archiving and restoring.
prepare() { # SIZE
    dir=$work/$1
    [ ! -d "$dir" ] || return 0
    mkdir -p "$dir"
    "$slotpress" -q synth "$dir/ledger" --size "$1" >/dev/null
    local level round start
    for level in none "${levels[@]}"; do
        [ ! -d "$dir/$level" ] || continue
        mkdir "$dir/$level"
        mkdir -p "$work/times"
        for round in $(seq "$rounds"); do
            start=$(now)
            # shellcheck disable=SC2046
            "$slotpress" -q archive "$dir/ledger" -o "$dir/$level" --force --threads "$threads" $(flags "$level") >/dev/null 2>&1
            since "$start" >>"$work/times/$1-archive-$level"
            echo >>"$work/times/$1-archive-$level"
            # slotpress does not restore a plain tar, so `tar` measures the time to place its files.
            new_ledger "$dir/restored" "$dir/$level"/*.tar*
            start=$(now)
            if [ "$level" = none ]; then
                tar -C "$dir/restored" -xf "$dir/restored"/*.tar
            else
                "$slotpress" -q restore "$dir/restored"/*.tar* --ledger "$dir/restored" --threads "$threads" >/dev/null 2>&1
            fi
            since "$start" >>"$work/times/$1-restore-$level"
            echo >>"$work/times/$1-restore-$level"
            rm -rf "$dir/restored"
        done
    done
    # Reading alone, without writing an archive; and placing alone, from a plain tar.
    for round in $(seq "$rounds"); do
        start=$(now)
        "$slotpress" -q archive "$dir/ledger" -o - --threads "$threads" --format none 2>/dev/null >/dev/null
        since "$start" >>"$work/times/$1-read"
        echo >>"$work/times/$1-read"
    done
    tar_bytes=$(stat -c %s "$dir"/none/*.tar)
    awk -v bytes="$tar_bytes" -v s="$(median "$work/times/$1-read")" 'BEGIN {printf "%.0fkB/s", bytes/s/1000}' >"$dir/read-rate"
    awk -v bytes="$tar_bytes" -v s="$(median "$work/times/$1-restore-none")" 'BEGIN {printf "%.0fkB/s", bytes/s/1000}' >"$dir/place-rate"
}

predict() { # RATE RTT
    local list=() level
    for level in "${levels[@]}"; do [ "$level" = none ] || list+=("$level"); done
    for _ in $(seq "$rounds"); do "$slotpress" -q --json levels link "$dir/ledger" --levels "$(IFS=,; echo "${list[*]:-1}")" --threads "$threads" \
        --bandwidth "$1" --rtt "$2" "${window[@]}" \
        --read-rate "$(cat "$dir/read-rate")" --place-rate "$(cat "$dir/place-rate")" 2>/dev/null; done >"$work/predicted"
}
predicted() { # LEVEL WAY
    local codec=zstd level=$1
    if [ "$1" = none ]; then codec=none level=0; fi
    grep "\"type\":\"link_level\",\"codec\":\"$codec\",\"level\":$level," "$work/predicted" | field "$2_seconds" >"$work/predictions"
    median "$work/predictions"
}

measure_store_and_forward() { # LEVEL
    local start file
    file=$(echo "$dir/$1"/*.tar*)
    serve <"$file" &
    sleep 0.3
    start=$(now)
    fetch >"$work/arrived"
    sent=$(since "$start")
    wait $!
    cmp -s "$file" "$work/arrived" || { echo "level $1: different bytes arrived" >&2; exit 1; }
    rm "$work/arrived"
    awk -v sent="$sent" -v a="$(median "$work/times/$size-archive-$1")" -v r="$(median "$work/times/$size-restore-$1")" \
        'BEGIN {printf "%.4f", a+sent+r}'
}
measure_streaming() { # LEVEL
    local start decode="zstd -q -dc"
    if [ "$1" = none ]; then decode=cat; fi
    mkdir "$work/tree"
    start=$(now)
    # shellcheck disable=SC2046
    "$slotpress" -q archive "$dir/ledger" -o - --threads "$threads" $(flags "$1") 2>/dev/null | serve &
    fetch | $decode | tar -C "$work/tree" -xf -
    since "$start"
    wait $!
    rm -rf "$work/tree"
}

printf '%-9s %-6s %-6s %-18s %10s %10s %7s\n' rate rtt level way predicted measured ratio
worst=0
for rate in "${rates[@]}"; do
    rate_bits=$(bits "$rate")
    size=${SIZE:-$(awk -v bits="$rate_bits" 'BEGIN {print (bits < 3e8) ? "96MiB" : "512MiB"}')}
    prepare "$size"
    for rtt in "${rtts[@]}"; do
        predict "$rate" "$rtt"
        link_up "$rate_bits" "$(seconds_of "$rtt")" 0 "$receive_buffer" "$send_buffer"
        for way in "${ways[@]}"; do
            for level in "${levels[@]}"; do
                : >"$work/runs"
                for _ in $(seq "$rounds"); do echo "$("measure_$way" "$level")" >>"$work/runs"; done
                measured=$(median "$work/runs")
                line=$(awk -v p="$(predicted "$level" "$way")" -v m="$measured" -v rate="$rate" -v rtt="$rtt" -v level="$level" -v way="$way" \
                    'BEGIN {printf "%-9s %-6s %-6s %-18s %8.2f s %8.2f s %7.3f", rate, rtt, level, way, p, m, m/p}')
                echo "$line"
                [ -z "${MEASURED:-}" ] || echo "$line" >>"$MEASURED"
                worst=$(awk -v line="$line" -v worst="$worst" 'BEGIN {n = split(line, f, " "); r = f[n]; off = 100 * (r > 1 ? r-1 : 1-r); print (off > worst) ? off : worst}')
            done
        done
        link_down
    done
done
awk -v worst="$worst" -v limit="$limit" 'BEGIN {printf "worst: %.1f %% off (limit %s %%)\n", worst, limit; exit !(worst <= limit)}'
