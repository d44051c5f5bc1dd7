#!/usr/bin/env bash
# Counts the bytes that a store sends to DuckDB for queries for one key, if the rows of tables are sorted.
#
#   bench/export-reads.sh     on a state of SIZE, exported to versitygw
#
# Settings: SIZE in MiB (1864: 5 million accounts), QUERIES of each kind (8), PYTHON with the packages
# duckdb and s3fs (python3), SCRATCH (a directory on a disk, because the store needs file attributes).
SCRATCH=${SCRATCH:-/var/tmp}
. "$(dirname "$0")/lib.sh"
build --features export
scratch

"$slotpress" -q synth "$work/ledger" --size "${SIZE:-1864}MiB" >/dev/null
mkdir -p "$work/buckets/tables"
export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret SLOTPRESS_REGION=us-east-1
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export SLOTPRESS_ENDPOINT=http://127.0.0.1:$port
versitygw --access key --secret secret --quiet --port "127.0.0.1:$port" posix "$work/buckets" >/dev/null 2>&1 &
gateway=$!
trap 'kill $gateway; rm -rf "$work"' EXIT
until curl -s "$SLOTPRESS_ENDPOINT" >/dev/null; do sleep 0.1; done
TMPDIR=$work "$slotpress" -q export "$work/ledger" -o s3://tables/state --table accounts,token-accounts >/dev/null

"${PYTHON:-python3}" - "$work/buckets/tables/state" "$port" "${QUERIES:-8}" <<'PYTHON'
import glob, json, socket, sys, threading, time
import duckdb, s3fs

root, store, queries = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sent_bytes, lock = [0], threading.Lock()

def forward(source, target, is_counted):
    try:
        while data := source.recv(1 << 16):
            with lock:
                sent_bytes[0] += len(data) * is_counted
            target.sendall(data)
    except OSError:
        pass
    target.close()

def listen(server):
    while True:
        client, gateway = server.accept()[0], socket.create_connection(("127.0.0.1", store))
        for direction in ((client, gateway, False), (gateway, client, True)):
            threading.Thread(target=forward, args=direction, daemon=True).start()

server = socket.create_server(("127.0.0.1", 0), backlog=100)
threading.Thread(target=listen, args=(server,), daemon=True).start()
endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"

def run_query(table, where):
    files = s3fs.S3FileSystem(key="key", secret="secret", client_kwargs={"endpoint_url": endpoint},
                              default_cache_type="none", skip_instance_cache=True)
    database = duckdb.connect()  # a new one has empty caches
    database.register_filesystem(files)
    sent_bytes[0] = 0
    rows = database.sql(f"select * from read_parquet('s3://tables/state/{table}/*/*.parquet') where {where}").fetchall()
    time.sleep(0.05)
    return len(rows), sent_bytes[0]

print("DuckDB", duckdb.__version__)
for table in (json.load(open(path)) for path in sorted(glob.glob(f"{root}/*/_manifest-*.json"))):
    name, size, count = table["table"], table["bytes"], table["rows"]
    print(f"{name}: {count} rows, {size} bytes")
    first = "owner" if name == "accounts" else "mint"
    keys = duckdb.sql(f"select {first}, address from '{root}/{name}/*/*.parquet' using sample {queries} rows (reservoir, 7)").fetchall()
    for columns in ([first], [first, "address"], ["address"]):
        percentages = []
        for key in keys:
            values = dict(zip((first, "address"), key))
            rows, served = run_query(name, " and ".join(f"{column} = '{values[column]}'" for column in columns))
            percentages.append(100 * max(0, served - rows * size / count) / size)
        percentages.sort()
        print(f"  {' and '.join(columns):20} beyond the rows: median {percentages[len(percentages) // 2]:.2f}%, at most {percentages[-1]:.2f}%")
PYTHON
