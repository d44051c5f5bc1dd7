#!/usr/bin/env bash
# Compares publishing archives to a bucket, and reading them from there, with rclone and with each stage alone.
# All use one versitygw on loopback, which runs on the same cores. Every round runs each candidate once. Prints
# medians over ROUNDS, and medians of the ratios within a round.
#
#   bench/publish.sh
#
# Settings: SIZE (of the ledger, 1GiB), ROUNDS (3), MEMORY (256MiB), THREADS, SCRATCH (/dev/shm). Needs versitygw,
# rclone, zstd, curl, GNU time. SCRATCH must have extended attributes, and space for the ledger and six
# times its archive (12 GB for 4 GiB).
#
# - `publish` reads an archive in one frame, as validators up to Agave 4.2 write it. `--as-is` checks everything
#   in it and the state, and sends the file meanwhile. rclone sends it and checks nothing, so `verify` is
#   measured, too. From the report of `publish --as-is`, two times are printed: that of the check, during which
#   parts are sent, and that of the rest.
# - rclone sends the same parts as slotpress, 16 MiB each and eight at a time. Its flags leave out what slotpress
#   does not do either: an MD5 of the whole file before sending, a request for the bucket, and a second's wait
#   for a "100 Continue" before each part. Both sign each part with its SHA-256; rclone adds an MD5.
# - Commands that overlap stages are compared with the slower of the stages alone, in the same round. slotpress
#   syncs what it writes to a disk.
# - The last rows are the peak memory with --memory MEMORY. If it exceeds the documented limit, the exit code
#   is 1.
. "$(dirname "$0")/lib.sh"
rounds=${ROUNDS:-3}
size=${SIZE:-1GiB}
memory=${MEMORY:-256MiB}
for program in versitygw rclone zstd curl; do
    command -v "$program" >/dev/null || { echo "bench/publish.sh needs $program" >&2; exit 2; }
done
[ -n "${SLOTPRESS:-}" ] && slotpress=$SLOTPRESS || build --bins
scratch

port=${PORT:-17370}
bucket=$work/buckets/bench
mkdir -p "$bucket" "$work/validator" "$work/out"
for name in $(compgen -e | grep -E '^(SLOTPRESS|AWS|RCLONE)_'); do unset "$name"; done
export AWS_ACCESS_KEY_ID=bench AWS_SECRET_ACCESS_KEY=secret-of-bench AWS_REGION=us-east-1 AWS_ENDPOINT_URL=http://127.0.0.1:$port
export AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null
export RCLONE_CONFIG=/dev/null RCLONE_CONFIG_STORE_TYPE=s3 RCLONE_CONFIG_STORE_PROVIDER=Other RCLONE_CONFIG_STORE_ENV_AUTH=true
export RCLONE_CONFIG_STORE_ENDPOINT=$AWS_ENDPOINT_URL RCLONE_CONFIG_STORE_REGION=$AWS_REGION
versitygw --access "$AWS_ACCESS_KEY_ID" --secret "$AWS_SECRET_ACCESS_KEY" --keep-alive --quiet --port 127.0.0.1:$port posix "$work/buckets" \
    >"$work/gateway" 2>&1 &
gateway=$!
trap 'kill $gateway; rm -rf "$work"' EXIT
for _ in $(seq 100); do curl -s -o /dev/null "$AWS_ENDPOINT_URL" && break; sleep 0.05; done

"$slotpress" -q synth "$work/ledger" --size "$size" >/dev/null
"$slotpress" -q archive "$work/ledger" -o "$work" --threads "$threads" >/dev/null
ours=$(echo "$work"/snapshot-*)
name=$(basename "$ours")
# One frame, without an index.
theirs=$work/validator/$name
zstd -q -dc "$ours" | zstd -q -1 --single-thread -o "$theirs"
their_bytes=$(stat -c %s "$theirs")

clean() {
    rm -rf "$work/out" "$work/snapshots" "$work/snapshots.publish" "${bucket:?}"/*
    mkdir "$work/out" "$work/snapshots"
    ln "$theirs" "$work/snapshots/$name"
}
slotpress_timed() { # NAME COMMAND [ARGUMENT]...
    clean
    timed "$1" "$slotpress" --json --progress none "${@:2}" --threads "$threads"
}
rclone_timed() { # NAME FILE
    clean
    timed "$1" rclone copyto "$2" "store:bench/mainnet/$name" --s3-chunk-size 16Mi --s3-upload-concurrency 8 --s3-upload-cutoff 16Mi \
        --s3-disable-checksum --s3-no-check-bucket --expect-continue-timeout 0 --retries 1
}
# Records the seconds of a stage, from a line of JSON that the last command printed.
record_stage() { # NAME TYPE
    sed -n "s/.*\"type\":\"$2\".*\"elapsed_seconds\":\([0-9.]*\).*/\1/p" "$work/stdout" >>"$work/times/$1"
    tail -n 1 "$work/memory/as-is" >>"$work/memory/$1"
}
combine() { # NAME A B max|sum, within each round
    paste "$work/times/$2" "$work/times/$3" | awk -v how="$4" '{print (how=="sum" ? $1+$2 : $1>$2 ? $1 : $2)}' >"$work/times/$1"
    paste "$work/memory/$2" "$work/memory/$3" | awk '{print ($1>$2 ? $1 : $2)}' >"$work/memory/$1"
}
publish=(publish "$work/snapshots" --to s3://bench/mainnet --once --writer agave)

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    slotpress_timed verify verify "$theirs"
    rclone_timed rclone-theirs "$theirs"
    slotpress_timed as-is "${publish[@]}" --as-is
    record_stage as-is-check publish_prepared
    record_stage as-is-after published
    rclone_timed rclone-ours "$ours"
    slotpress_timed recompress recompress "$theirs" -o "$work/out"
    cmp "$work/out/$name" "$ours"
    slotpress_timed publish "${publish[@]}"
    cmp "$bucket/mainnet/$name" "$ours"
    slotpress_timed archive archive "$work/ledger" -o "$work/out"
    slotpress_timed archive-bucket archive "$work/ledger" -o s3://bench/mainnet
    cmp "$bucket/mainnet/$name" "$ours"
done
# Once more with little memory.
slotpress_timed little-as-is "${publish[@]}" --as-is --memory "$memory"
slotpress_timed little-publish "${publish[@]}" --memory "$memory"
slotpress_timed little-archive archive "$work/ledger" -o s3://bench/mainnet --memory "$memory"
# Free space for the ledger that bootstrap makes.
rm -r "$work/ledger" "$theirs"
for round in $(seq "$rounds"); do
    echo "bootstrap: round $round of $rounds" >&2
    rm -rf "$work/out" "${bucket:?}"/*
    mkdir "$work/out" "$bucket/mainnet"
    ln "$ours" "$bucket/mainnet/$name"
    timed fetch "$slotpress" -q fetch s3://bench/mainnet -o "$work/out" --no-incremental
    rm -r "$work/out"/*
    timed restore "$slotpress" -q restore "$ours" --ledger "$work/out/ledger" --threads "$threads"
    rm -r "$work/out"/*
    timed bootstrap "$slotpress" -q bootstrap s3://bench/mainnet --ledger "$work/out/ledger" --no-incremental --threads "$threads"
done
combine verify-rclone verify rclone-theirs sum
combine slower-publish recompress rclone-ours max
combine slower-archive archive rclone-ours max
combine slower-bootstrap fetch restore max

# Checks that memory is at most FACTOR times MEMORY, plus what the program and its threads take.
peak() { # NAME FACTOR TEXT
    local bytes_max=$(($(numfmt --from=auto "${memory%B}") * $2 + (64 << 20))) kib
    kib=$(tail -n 1 "$work/memory/$1")
    printf '%-34s %23.0f MiB   at most %d x %s and 64 MiB\n' "$3" "$((kib / 1024))" "$2" "$memory"
    [ $((kib * 1024)) -le "$bytes_max" ] || { echo "$1 uses more memory than that" >&2; exit_code=1; }
}

echo
echo "$size of ledger, archives of $their_bytes (one frame) and $(stat -c %s "$ours") bytes; $threads threads on $(nproc) cores;"
echo "$(stat -f -c %T "$work"); $(rclone version | head -n 1); $rounds rounds; medians, ratios paired within rounds"
printf '\n%-34s %11s %13s   %s\n' "a file as it is" seconds 'peak memory' ''
row rclone-theirs "rclone copyto"
row verify "slotpress verify"
row as-is "publish --as-is" "$(ratio as-is rclone-theirs) x rclone; $(ratio as-is verify-rclone) x verify, then rclone"
row as-is-check "  of that: the check"
row as-is-after "  of that: sending after the check"
printf '\n%s\n' "recompressed"
row recompress "recompress, into a directory"
row rclone-ours "rclone copyto, of the result"
row publish "publish" "$(ratio publish slower-publish) x the slower"
printf '\n%s\n' "of a ledger"
row archive "archive, into a directory"
row archive-bucket "archive, into the bucket" "$(ratio archive-bucket slower-archive) x the slower of this and rclone"
printf '\n%s\n' "to a ledger"
row fetch "fetch, from the bucket"
row restore "restore, of the file"
row bootstrap "bootstrap, from the bucket" "$(ratio bootstrap slower-bootstrap) x the slower"
printf '\n%s\n' "with --memory $memory"
exit_code=0
# Buffers, the state check, and the parts of an upload may each take this much.
peak little-as-is 3 "publish --as-is"
peak little-publish 3 "publish"
peak little-archive 1 "archive, into the bucket"
exit $exit_code
