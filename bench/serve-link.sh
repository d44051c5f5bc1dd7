#!/usr/bin/env bash
# Measures a download from `slotpress serve` beside nginx with sendfile, over a shaped link (as in
# bench/link.sh), paired.
#   RATE=1000000000 RTT=0.03 SIZE_MB=512 ROUNDS=3 bench/serve-link.sh
# Needs nginx, curl, ip (iproute2), unshare.
. "$(dirname "$0")/lib.sh"
[ "${BENCH_INSIDE:-}" = yes ] || build --bins --example link_shaper
in_namespaces "$0" "$@"
scratch
link_up "${RATE:-1000000000}" "${RTT:-0.03}" 0 67108864 67108864
name=snapshot-26-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst
mkdir "$work/archives"
size=${SIZE_MB:-512}000000
# The file begins with a skippable frame: only files that look like archives are served.
python3 -c 'import sys; sys.stdout.buffer.write(b"\x5f\x2a\x4d\x18" + int(sys.argv[1]).to_bytes(4, "little"))' "$size" >"$work/archives/$name"
head -c "$size" /dev/urandom >>"$work/archives/$name"
chmod 755 "$work" "$work/archives"
cat >"$work/nginx.conf" <<CONF
daemon off;
user root;
pid $work/nginx.pid;
error_log $work/error.log;
events { }
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    client_body_temp_path $work/t1; proxy_temp_path $work/t2; fastcgi_temp_path $work/t3; uwsgi_temp_path $work/t4; scgi_temp_path $work/t5;
    server { listen 10.77.0.1:18890; root $work/archives; }
}
CONF
ip netns exec sender nginx -c "$work/nginx.conf" &
ip netns exec sender "$slotpress" -q serve "$work/archives" --listen 10.77.0.1:18891 >/dev/null &
time_of() { ip netns exec receiver curl -sf -o /dev/null -w '%{time_total}' "http://10.77.0.1:$1/$name"; }
for port in 18890 18891; do
    until ip netns exec receiver curl -sf -o /dev/null -r 0-0 "http://10.77.0.1:$port/$name"; do sleep 0.1; done
done
for round in $(seq "${ROUNDS:-3}"); do
    if [ $((round % 2)) = 1 ]; then nginx=$(time_of 18890) own=$(time_of 18891); else own=$(time_of 18891) nginx=$(time_of 18890); fi
    awk -v a="$nginx" -v b="$own" 'BEGIN {printf "nginx %.2f s, slotpress %.2f s: %.3f\n", a, b, b / a}'
done
