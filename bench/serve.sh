#!/usr/bin/env bash
# Compares `slotpress serve` with nginx (using sendfile) on loopback: time and CPU time of the server per GB, and
# memory of idle and of slow connections. Both serve the same file from the page cache, one after the other.
# Needs nginx, curl, python3 and a release build.
#
#   bench/serve.sh [ROUNDS]
set -euo pipefail
rounds=${1:-5}
slotpress=${SLOTPRESS:-target/release/slotpress}
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$dir"' EXIT
name=snapshot-26-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst
gb=1
mkdir "$dir/archives"
# A skippable frame, and an empty seek table: only files that look like archives are served.
{
    printf '\x5f\x2a\x4d\x18\x00\xca\x9a\x3b'
    head -c ${gb}000000000 /dev/urandom
    printf '\x5e\x2a\x4d\x18\x09\0\0\0\0\0\0\0\0\xb1\xea\x92\x8f'
} > "$dir/archives/$name"
cat "$dir/archives/$name" > /dev/null

cat > "$dir/nginx.conf" <<CONF
worker_processes auto;
daemon off;
pid $dir/nginx.pid;
error_log $dir/error.log;
events { worker_connections 20000; }
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    sendfile_max_chunk 2m;
    client_body_temp_path $dir/t1; proxy_temp_path $dir/t2; fastcgi_temp_path $dir/t3; uwsgi_temp_path $dir/t4; scgi_temp_path $dir/t5;
    server { listen 127.0.0.1:18890 backlog=16384; root $dir/archives; }
}
CONF
chmod 755 "$dir" "$dir/archives"
ulimit -n 65536 2>/dev/null || ulimit -n "$(ulimit -Hn)"
nginx -c "$dir/nginx.conf" &
"$slotpress" -q serve "$dir/archives" --listen 127.0.0.1:18891 --max-connections 20000 --max-connections-per-client 20000 \
    --head-timeout 600s >/dev/null &
slotpress_pid=$!
for port in 18890 18891; do
    until curl -sf -o /dev/null -r 0-0 "http://127.0.0.1:$port/$name"; do sleep 0.1; done
done

python3 - "$dir/nginx.pid" "$slotpress_pid" "$name" "$gb" "$rounds" <<'PY'
import os, re, socket, statistics, subprocess, sys, time

nginx_pid, slotpress_pid, name, gb, rounds = int(open(sys.argv[1]).read()), int(sys.argv[2]), sys.argv[3], float(sys.argv[4]), int(sys.argv[5])
children = subprocess.run(["pgrep", "-P", str(nginx_pid)], capture_output=True, text=True).stdout.split()
processes = {"nginx": ([nginx_pid] + [int(pid) for pid in children], 18890), "slotpress": ([slotpress_pid], 18891)}

def cpu_seconds(pids):
    ticks = 0
    for pid in pids:
        fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")

def memory_bytes(pids):
    return sum(int(re.search(r"Pss:\s+(\d+)", open(f"/proc/{pid}/smaps_rollup").read()).group(1)) for pid in pids) * 1024

def transfer(server, connections):
    pids, port = processes[server]
    before, start = cpu_seconds(pids), time.time()
    size = int(gb * 1e9)
    total = 4 * size if connections == 1 else 8 * size
    part = total // connections
    clients = []
    for number in range(connections):
        urls = []
        remaining = part
        while remaining > 0:
            length = min(remaining, size)
            urls += ["-r", f"0-{length - 1}", "-o", "/dev/null", f"http://127.0.0.1:{port}/{name}", "--next"]
            remaining -= length
        clients.append(subprocess.Popen(["curl", "-sf"] + urls[:-1]))
    for client in clients:
        assert client.wait() == 0
    return (cpu_seconds(pids) - before) / (part * connections / 1e9), (time.time() - start) / (part * connections / 1e9)

for connections in (1, 64):
    results = {"nginx": [], "slotpress": []}
    cpu_ratios = []
    time_ratios = []
    for round in range(rounds):
        order = list(processes) if round % 2 == 0 else list(processes)[::-1]
        measured = {server: transfer(server, connections) for server in order}
        for server in order:
            results[server].append(measured[server])
        cpu_ratios.append(measured["slotpress"][0] / max(measured["nginx"][0], 1e-9))
        time_ratios.append(measured["slotpress"][1] / measured["nginx"][1])
    for server, values in results.items():
        print(f"{connections:3} connections, {server:9}: {statistics.median(v[0] for v in values):.3f} s of CPU time and "
              f"{statistics.median(v[1] for v in values):.3f} s per GB")
    for quantity, values in [("time", time_ratios), ("CPU time", cpu_ratios)]:
        print(f"{connections:3} connections: {statistics.median(values):.2f} times the {quantity} of nginx "
              f"(from {min(values):.2f} to {max(values):.2f})")

# Slow connections come before idle ones, because a server keeps the memory that many connections have taken.
slow, seconds = 500, 20
for server, (pids, port) in processes.items():
    sockets, memory_max, received_bytes = [], 0, 0
    for number in range(slow):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.connect(("127.0.0.1", port))
        client.sendall(f"GET /{name} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        sockets.append(client)
    for second in range(seconds):
        end = time.time() + 1
        lengths = [len(client.recv(65536)) for client in sockets]
        assert all(lengths), "a connection has ended"
        received_bytes, memory_max = received_bytes + sum(lengths), max(memory_max, memory_bytes(pids))
        time.sleep(max(0, end - time.time()))
    print(f"{slow} slow connections, {server}: {memory_max / 2**20:.0f} MiB at most, {received_bytes / slow / seconds / 1024:.0f} KiB/s each")
    for client in sockets:
        client.close()

idle = 10_000
for server, (pids, port) in processes.items():
    before = memory_bytes(pids)
    sockets = []
    for number in range(idle):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(f"GET /{name} HTTP/1.1\r\nHost: x\r\nRange: bytes=0-9\r\n\r\n".encode())
        sockets.append(client)
        client.recv(4096)
    time.sleep(1)
    print(f"{idle} idle connections after a request, {server}: {(memory_bytes(pids) - before) / idle / 1024:.1f} KiB each")
    for client in sockets:
        client.close()
PY
