#!/usr/bin/env bash
# Compares archiving and restoring with the tools that operators use today, and with the lower bound that
# bench/floor.rs measures.
#
#   bench/archive.sh            on a synthetic ledger of SIZE (2GiB), page cache warm, output on tmpfs
#   AGAVE_ORACLE=PROGRAM …      also measures Agave's own archiver, on a ledger that PROGRAM makes: see below
#
# Settings: SIZE, ROUNDS (5), THREADS (all cores), LEVEL (1), SCRATCH (/dev/shm). Needs tar, zstd,
# pzstd, GNU time, and about 4 x SIZE of memory.
. "$(dirname "$0")/lib.sh"
size=${SIZE:-2GiB}
level=${LEVEL:-1}
build
cargo build --release --quiet --manifest-path "$here/Cargo.toml" --example floor
floor=$(dirname "$slotpress")/examples/floor
scratch

echo "making a synthetic ledger of $size" >&2
"$slotpress" -q synth "$work/ledger" --size "$size" >/dev/null
mkdir "$work/out" "$work/reference"
"$slotpress" -q archive "$work/ledger" -o "$work/reference" --zstd-level "$level" >/dev/null
archive=$(ls "$work"/reference/*.tar.zst)
# The other archivers read the files of the archive, which have no obsolete records.
mkdir "$work/tree"
tar -C "$work/tree" --zstd -xf "$archive"

measure_floor() {
    "$floor" archive "$archive" "$threads" "$level" >"$work/floor"
    mkdir -p "$work/times" "$work/memory"
    cut -d' ' -f1 "$work/floor" >>"$work/times/floor"
    cut -d' ' -f2 "$work/floor" >>"$work/times/floor-restore"
    echo 0 >>"$work/memory/floor"
    echo 0 >>"$work/memory/floor-restore"
}

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    timed ours "$slotpress" -q archive "$work/ledger" -o "$work/out" --zstd-level "$level" --threads "$threads" --force
    measure_floor
    timed single sh -c "tar -C '$work/tree' -cf - version snapshots accounts | zstd -q -$level --single-thread -c >'$work/out/x'"
    timed zstd sh -c "tar -C '$work/tree' -cf - version snapshots accounts | zstd -q -$level -T$threads -c >'$work/out/x'"
    timed pzstd sh -c "tar -C '$work/tree' -cf - version snapshots accounts | pzstd -q -$level -p $threads -c >'$work/out/x'"
    rm "$work/out/x"
    new_ledger "$work/restored" "$archive"
    timed restore "$slotpress" -q restore "$work"/restored/*.tar.zst --ledger "$work/restored" --threads "$threads"
    rm -rf "$work/restored"
    mkdir "$work/restored"
    timed untar sh -c "zstd -q -dc '$archive' | tar -C '$work/restored' -xf -"
    rm -rf "$work/restored"
done

bytes=$("$slotpress" --json inspect "$archive" | sed 's/.*"tar_bytes":\([0-9]*\).*/\1/')
echo
echo "level $level, $threads threads, $(nproc) cores, $bytes bytes of tar, $rounds rounds; medians, ratios paired within rounds"
echo
printf '%-34s %11s %13s   %s\n' archive seconds 'peak memory' 'slotpress takes'
row ours "slotpress archive"
row floor "floor: frames in memory" "$(ratio ours floor) x as long"
row single "tar | zstd -$level --single-thread" "$(ratio ours single) x as long"
row zstd "tar | zstd -$level -T$threads" "$(ratio ours zstd) x as long"
row pzstd "tar | pzstd -$level -p $threads" "$(ratio ours pzstd) x as long"
echo
printf '%-34s %11s %13s   %s\n' restore seconds 'peak memory' 'slotpress takes'
row restore "slotpress restore"
row floor-restore "floor: frames in memory" "$(ratio restore floor-restore) x as long"
row untar "zstd -dc | tar xf -" "$(ratio restore untar) x as long"

# Agave's archiver, on a ledger that Agave's code made. The program is not part of slotpress. It must have the
# commands `gen OUT --accounts N --slots N`, and `loaddir DIR --archive-to DIR`, which prints the seconds that
# archiving alone takes.
if [ -n "${AGAVE_ORACLE:-}" ]; then
    echo
    "$AGAVE_ORACLE" gen "$work/gen" --accounts "${GEN_ACCOUNTS:-600000}" --slots "${GEN_SLOTS:-240}" >/dev/null 2>&1
    for round in $(seq "$rounds"); do
        timed gen "$slotpress" -q archive "$work/gen" -o "$work/out" --threads "$threads" --force
        # Agave changes the directory that it loads.
        rm -rf "$work/agave" "$work/gen-copy"
        cp -r "$work/gen" "$work/gen-copy"
        "$AGAVE_ORACLE" loaddir "$work"/gen-copy/snapshots/* --archive-to "$work/agave" --zstd-level 1 \
            --genesis "$work/gen" >"$work/agave.log" 2>&1 || { cat "$work/agave.log"; exit 1; }
        sed -n 's/^archiver: .*elapsed_seconds=//p' "$work/agave.log" >>"$work/times/agave"
        echo 0 >>"$work/memory/agave"
    done
    printf '%-34s %11s %13s   %s\n' "archive, a ledger made by Agave" seconds 'peak memory' 'slotpress takes'
    row gen "slotpress archive"
    row agave "Agave's own archiver" "$(ratio gen agave) x as long"
fi
