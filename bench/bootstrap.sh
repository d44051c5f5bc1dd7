#!/usr/bin/env bash
# Compares `slotpress bootstrap`, which makes a bootable ledger from the archive of a server, with the tools that
# operators use today: over a shaped link between two network namespaces, and over loopback. All candidates but
# `restore` fetch from the same nginx. Each runs once in each round. Prints medians over ROUNDS.
#
#   bench/bootstrap.sh
#
# `bootstrap_on_old` runs on a node that has an older full archive: CHURN percent of the storages are newer.
#
# Settings: SIZE (of the ledger, in MiB: 1024), CHURN (1), RATES ("1Gbit none"; none is loopback),
# RTT (30ms), ROUNDS (3), SCRATCH (/dev/shm; a disk includes the time of syncing), STREAMS
# (8), BEFORE (an earlier slotpress, which takes part in each round; ratios to it are paired). Needs
# nginx, curl, aria2c, zstd, tar, ip (iproute2), unshare.
#
# curl and tar only unpack: they check nothing, and their result does not boot. The lower bound of `bootstrap` is
# the time of its slower stage alone: the download (fetch), or the restore from a file with the same checks. After
# the last byte, `bootstrap` completes the state check, syncs and renames.
. "$(dirname "$0")/lib.sh"
rounds=${ROUNDS:-3}
rtt=${RTT:-30ms}
streams=${STREAMS:-8}
size=${SIZE:-1024}
churn=${CHURN:-1}
read -ra rates <<<"${RATES:-1Gbit none}"

if [ "${BENCH_INSIDE:-}" != yes ]; then
    build --bins --example link_shaper
    for program in nginx curl aria2c zstd tar ip; do
        command -v "$program" >/dev/null || { echo "bench/bootstrap.sh needs $program" >&2; exit 2; }
    done
fi
in_namespaces "$0" "$@"
scratch

"$slotpress" -q synth "$work/ledger" --size "${size}MiB" --incremental "$((size * 1024 * churn / 100))KiB" >/dev/null
# Makes the full archives of both states, and the newer state on the older full archive.
make_archives() { # PROGRAM NEW OLD
    mkdir "$2" "$3"
    "$1" -q archive "$work/ledger/at-full" -o "$3" >/dev/null
    "$1" -q archive "$work/ledger" -o "$2" >/dev/null
    "$1" -q rebase "$2"/snapshot-* --onto "$3"/snapshot-* -o "$2" >/dev/null
}
make_archives "$slotpress" "$work/www" "$work/old"
# Each program reads the archives that it wrote, because it knows their version of the index.
[ -z "${BEFORE:-}" ] || make_archives "$BEFORE" "$work/www/before" "$work/old-before"
rm -rf "$work/ledger"
archive=$(basename "$work"/www/snapshot-*)
bytes=$(stat -c %s "$work/www/$archive")
cat >"$work/nginx.conf" <<CONF
worker_processes 1; pid $work/nginx.pid; error_log $work/nginx.err; daemon off; user root;
events { worker_connections 256; }
http { access_log off; sendfile on; client_body_temp_path $work/a; proxy_temp_path $work/b; fastcgi_temp_path $work/c;
  uwsgi_temp_path $work/d; scgi_temp_path $work/e; server { listen 0.0.0.0:7080; root $work/www; autoindex on; } }
CONF

clean() { rm -rf "$work/out" && mkdir "$work/out"; }

# The candidates. Each processes the archive at $url, in the namespace $space.
fetch() { "$slotpress" -q fetch "$url" -o "$work/out" --streams "$streams"; }
restore() { "$slotpress" -q restore "$work/www/$archive" --ledger "$work/out/ledger" --check state; }
bootstrap() { "$slotpress" --json --progress none bootstrap "$url" --ledger "$work/out/ledger" --no-incremental --streams "$streams"; }
bootstrap_frames() { "$slotpress" --json --progress none bootstrap "$url" --ledger "$work/out/ledger" --no-incremental --streams "$streams" --check frames; }
bootstrap_on_old() { "$slotpress" --json --progress none bootstrap "${url%/*}/" --ledger "$work/out/ledger" --streams "$streams"; }
bootstrap_before() { slotpress=$BEFORE url=${url%/*}/before/$archive bootstrap; }
bootstrap_on_old_before() { slotpress=$BEFORE url=${url%/*}/before/$archive bootstrap_on_old; }
curl_zstd_tar() { curl -sf "$url" | zstd -dc | tar -x -C "$work/out" -f -; }
aria2c_then_tar() { aria2c -q -x16 -s16 -k1M -d "$work/out" "$url" && zstd -dc "$work/out/$archive" | tar -x -C "$work/out" -f -; }
curl_then_tar() { curl -sf -o "$work/out/$archive" "$url" && zstd -dc "$work/out/$archive" | tar -x -C "$work/out" -f -; }
export -f fetch restore bootstrap bootstrap_frames bootstrap_on_old bootstrap_before bootstrap_on_old_before curl_zstd_tar aria2c_then_tar curl_then_tar
export slotpress work archive streams

candidates=(fetch restore bootstrap bootstrap_frames bootstrap_on_old curl_zstd_tar aria2c_then_tar curl_then_tar)
[ -z "${BEFORE:-}" ] || candidates=(bootstrap bootstrap_before bootstrap_on_old bootstrap_on_old_before)
echo "$archive, $bytes bytes; $(nproc) cores; $(stat -f -c %T "$work")"
for rate in "${rates[@]}"; do
    if [ "$rate" = none ]; then
        space=sender url=http://127.0.0.1:7080/$archive
    else
        link_up "$(bits "$rate")" "$(awk -v t="$rtt" 'BEGIN {print (t+0)/1000}')" 0
        space=receiver url=http://10.77.0.1:7080/$archive
    fi
    export url
    ip netns exec sender nginx -c "$work/nginx.conf" & nginx_id=$!
    for _ in $(seq 50); do ip netns exec "$space" curl -sfI "$url" >/dev/null && break; sleep 0.1; done
    for _ in $(seq "$rounds"); do
        for candidate in "${candidates[@]}"; do
            clean
            if [[ $candidate == bootstrap_on_old* ]]; then
                mkdir "$work/out/ledger"
                old=$work/old
                [[ $candidate != *_before ]] || old+=-before
                ln "$old"/snapshot-* "$work/out/ledger"
            fi
            start=$(now)
            ip netns exec "$space" /usr/bin/time -f %M -o "$work/memory" "$BASH" -c "set -o pipefail; $candidate" >"$work/log" 2>&1 || {
                echo "$candidate failed:" >&2
                cat "$work/log" >&2
                exit 1
            }
            sync -f "$work/out"
            awk -v a="$start" -v b="$(now)" 'BEGIN {printf "%.3f\n", b-a}' >>"$work/$rate-$candidate"
            sed -n 's/.*"after_last_byte_seconds":\([0-9.]*\).*/\1/p' "$work/log" >>"$work/$rate-$candidate-after"
            { grep -o '"fetched_bytes":[0-9]*' "$work/log" || true; } | awk -F: '{sum += $2} END {print sum+0}' >"$work/$rate-$candidate-bytes"
            awk 'END {print $1/1024}' "$work/memory" >>"$work/$rate-$candidate-memory"
        done
    done
    echo "== $rate$([ "$rate" = none ] || echo ", $rtt")"
    for candidate in "${candidates[@]}"; do
        after=$([ ! -s "$work/$rate-$candidate-after" ] || median "$work/$rate-$candidate-after")
        fetched=$(cat "$work/$rate-$candidate-bytes")
        printf '%-18s %8s s   %6.0f MiB%s%s\n' "$candidate" "$(median "$work/$rate-$candidate")" \
            "$(median "$work/$rate-$candidate-memory")" "${after:+   ${after:0:5} s after the last byte}" \
            "$([ "$fetched" = 0 ] || echo ", $fetched bytes fetched")"
    done
    for candidate in bootstrap bootstrap_on_old; do
        [ -n "${BEFORE:-}" ] || break
        paste "$work/$rate-$candidate" "$work/$rate-${candidate}_before" | awk '{print $1/$2}' >"$work/ratios"
        echo "$candidate takes $(median "$work/ratios") x as long as with BEFORE"
    done
    kill "$nginx_id"; wait "$nginx_id" 2>/dev/null || true
    [ "$rate" = none ] || link_down
done
