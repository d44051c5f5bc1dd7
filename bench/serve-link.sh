#!/usr/bin/env bash
# The time of a download from `slotpress serve` beside nginx with sendfile, over a shaped link (as in bench/link.sh), paired.
#   RATE=1000000000 RTT=0.03 SIZE_MB=512 ROUNDS=3 bench/serve-link.sh
# Needs nginx, curl, iproute2, unshare, a release build of slotpress and of the example link_shaper.
set -euo pipefail
slotpress=${SLOTPRESS:-target/release/slotpress}
shaper=${SHAPER:-target/release/examples/link_shaper}
if [ "${LINK_BENCH_INSIDE:-}" != yes ]; then
    export LINK_BENCH_INSIDE=yes
    exec unshare --map-root-user --net --mount --pid --fork --kill-child --mount-proc "$BASH" "$0" "$@"
fi
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$dir"' EXIT
mount -t tmpfs tmpfs /run
ip netns add sender
ip netns add receiver
"$shaper" shape slot-a slot-b "${RATE:-1000000000}" "${RTT:-0.03}" 0 >"$dir/shaper" &
for _ in $(seq 200); do grep -q ready "$dir/shaper" && break; sleep 0.02; done
ip link set slot-a netns sender
ip link set slot-b netns receiver
for end in sender:slot-a:10.77.0.1 receiver:slot-b:10.77.0.2; do
    IFS=: read -r space device address <<<"$end"
    ip netns exec "$space" ip link set lo up
    ip netns exec "$space" ip address add "$address/24" dev "$device"
    ip netns exec "$space" ip link set "$device" mtu 1500 up
    ip netns exec "$space" sh -c "echo '4096 131072 67108864' >/proc/sys/net/ipv4/tcp_rmem
        echo '4096 65536 67108864' >/proc/sys/net/ipv4/tcp_wmem
        echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save"
done
name=snapshot-26-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst
mkdir "$dir/archives"
head -c "${SIZE_MB:-512}000000" /dev/urandom >"$dir/archives/$name"
chmod 755 "$dir" "$dir/archives"
cat >"$dir/nginx.conf" <<CONF
daemon off;
user root;
pid $dir/nginx.pid;
error_log $dir/error.log;
events { }
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    client_body_temp_path $dir/t1; proxy_temp_path $dir/t2; fastcgi_temp_path $dir/t3; uwsgi_temp_path $dir/t4; scgi_temp_path $dir/t5;
    server { listen 10.77.0.1:18890; root $dir/archives; }
}
CONF
ip netns exec sender nginx -c "$dir/nginx.conf" &
ip netns exec sender "$slotpress" -q serve "$dir/archives" --listen 10.77.0.1:18891 >/dev/null &
time_of() { ip netns exec receiver curl -sf -o /dev/null -w '%{time_total}' "http://10.77.0.1:$1/$name"; }
for port in 18890 18891; do
    until ip netns exec receiver curl -sf -o /dev/null -r 0-0 "http://10.77.0.1:$port/$name"; do sleep 0.1; done
done
for round in $(seq "${ROUNDS:-3}"); do
    if [ $((round % 2)) = 1 ]; then nginx=$(time_of 18890) own=$(time_of 18891); else own=$(time_of 18891) nginx=$(time_of 18890); fi
    awk -v a="$nginx" -v b="$own" 'BEGIN {printf "nginx %.2f s, slotpress %.2f s: %.3f\n", a, b, b / a}'
done
