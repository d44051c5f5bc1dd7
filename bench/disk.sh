#!/usr/bin/env bash
# Measures archiving, restoring and verifying on a disk with an empty page cache, and compares them with the
# limits of the disk and the cores.
#
#   bench/disk.sh [SIZE]             on a synthetic ledger of SIZE (2GiB) in SCRATCH, which must be on
#                                    a disk
#   OTHER=PROGRAM bench/disk.sh      also measures another slotpress, in the same rounds
#
# Settings: ROUNDS (5), THREADS (all cores), SCRATCH (the directory of this checkout), SLOTPRESS (a
# program to use instead of building one). Drops the page cache of the machine before each run, so it
# must run as root. Needs fio, GNU time, Python, zstd, and about 3 x SIZE of free space.
SCRATCH=${SCRATCH:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
. "$(dirname "$0")/lib.sh"
for program in fio /usr/bin/time python3 zstd; do
    command -v $program >/dev/null || { echo "$program is not installed" >&2; exit 2; }
done
size=${1:-2GiB}
[ -n "${SLOTPRESS:-}" ] && slotpress=$SLOTPRESS || build
scratch
if [ "$(stat -f -c %T "$work")" = tmpfs ]; then
    echo "$work is on tmpfs: set SCRATCH to a directory on a disk" >&2
    exit 1
fi

"$slotpress" -q synth "$work/ledger" --size "$size" >/dev/null
mkdir "$work/out" "$work/reference" "$work/other"
"$slotpress" -q archive "$work/ledger" -o "$work/reference" >/dev/null
# Each program reads the archive that it wrote, because it knows its version of the index.
[ -z "${OTHER:-}" ] || "$OTHER" -q archive "$work/ledger" -o "$work/other" >/dev/null
archive=$(ls "$work"/reference/*.tar.zst)
bytes=$(du -sb "$work/ledger/accounts/run" | cut -f1)
files=$(ls "$work/ledger/accounts/run" | wc -l)
# As Agave 4.3 and later write it: frames of 32 MiB of tar with a content size, and no index.
mkdir "$work/agave"
agave=$work/agave/${archive##*/} part=$work/part
zstd -qdc "$archive" | part=$part agave=$agave split -b 32M --filter='cat >"$part" && zstd -q -1 --no-check -c "$part" >>"$agave"'
rm "$part"

cold() { # NAME COMMAND...
    rm -rf "$work/restored" "$work"/out/*
    # The new ledger already has the archive, so that the restore does not copy it.
    case $1 in
        *agave) new_ledger "$work/restored" "$agave" ;;
        other-frames | other-restore) new_ledger "$work/restored" "$work/other/${archive##*/}" ;;
        *frames | *restore) new_ledger "$work/restored" "$archive" ;;
    esac
    sync
    echo 3 >/proc/sys/vm/drop_caches
    timed "$@"
    cut -d' ' -f4 "$work/time" >>"$work/times/$1-kernel"
}

# Prints the seconds that jobs of fio take together, without the half second in which fio starts.
fio_seconds() { # OPTION…
    fio --output-format=json "$@" >"$work/fio.json"
    python3 -c 'import json, sys
print(max(job[way]["runtime"] for job in json.load(sys.stdin)["jobs"] for way in ("read", "write")) / 1000)' <"$work/fio.json"
}

# Measures writing as many new files as the ledger has, bypassing the page cache: four files at a time, with one
# request for each, and a sync at the end. The options may add jobs to run at the same time.
write_files() { # NAME [OPTION_OF_MORE_JOBS…]
    local each=$((bytes / files / 4096 * 4096)) name=$1 seconds start
    shift
    sync
    mkdir "$work/fio-files"
    seconds=$(fio_seconds --direct=1 --thread --group_reporting --name=files --directory="$work/fio-files" --numjobs=4 \
        --nrfiles=$((files / 4)) --filesize=$each --bs=$each --rw=write --ioengine=psync --create_on_open=1 --fallocate=none \
        --openfiles=1 --file_service_type=sequential "$@")
    start=$(now)
    sync -f "$work/fio-files"
    awk -v seconds="$seconds" -v start="$start" -v end="$(now)" 'BEGIN { print seconds + end - start }' >>"$work/times/$name"
    rm -r "$work/fio-files"
}

# Measures how fast the disk reads and writes as many bytes as the storages have, bypassing the page cache: in
# one file, with four requests of 4 MiB at a time; in as many new files as the ledger has; and in as many new
# files while the archive is read, as in a restore.
disk() {
    local one_file=(--bs=4M --ioengine=libaio --iodepth=4)
    rm -rf "$work/restored"
    write_files disk-files
    write_files disk-restore --new_group --name=archive --filename="$archive" --rw=read --numjobs=1 "${one_file[@]}"
    for way in write read; do
        sync
        fio_seconds --name=$way --filename="$work/fio" --rw=$way --size="$bytes" --direct=1 "${one_file[@]}" >>"$work/times/disk-$way"
    done
    rm "$work/fio"
}

round() { # PREFIX PROGRAM ARCHIVE
    cold "$1archive" "$2" -q archive "$work/ledger" -o "$work/out" --threads "$threads"
    cold "$1verify" "$2" -q verify "$3" --threads "$threads"
    cold "$1verify-ledger" "$2" -q verify "$work/ledger" --threads "$threads"
    cold "$1frames" "$2" -q restore "$work/restored/${archive##*/}" --ledger "$work/restored" --check frames --threads "$threads"
    cold "$1restore" "$2" -q restore "$work/restored/${archive##*/}" --ledger "$work/restored" --threads "$threads"
    cold "$1agave" "$2" -q restore "$work/restored/${archive##*/}" --ledger "$work/restored" --check frames --threads "$threads"
    rm -r "$work/restored"
}

mkdir -p "$work/times"
for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    disk
    [ -z "${OTHER:-}" ] || round other- "$OTHER" "$work/other/${archive##*/}"
    round "" "$slotpress" "$archive"
    cold tar sh -c "tar -C '$work/ledger/accounts' -cf - run | zstd -q -1 -T$threads -o '$work/out/tar.zst' && sync '$work/out/tar.zst'"
    cold untar sh -c "mkdir '$work/restored' && zstd -qdc '$archive' | tar -C '$work/restored' -xf - && sync -f '$work/restored'"
done

reading=$(median "$work/times/disk-read") writing=$(median "$work/times/disk-write")
writing_files=$(median "$work/times/disk-files") restoring=$(median "$work/times/disk-restore")

# Prints the time of a command, divided by the larger of the disk's and the cores' time.
ratio_to_bound() { # NAME DISK_SECONDS
    awk -v time="$(median "$work/times/$1")" -v disk="$2" -v cpu="$(median "$work/times/$1-cpu")" -v cores="$(nproc)" \
        'BEGIN { printf "%.2f", time / ((disk > cpu / cores) ? disk : cpu / cores) }'
}

# Prints time, memory, kernel time, and the time divided by each bound.
line() { # NAME TEXT DISK_SECONDS [is_restore]
    local cpu kernel ratio
    cpu=$(median "$work/times/$1-cpu") kernel=$(median "$work/times/$1-kernel")
    ratio="$(ratio_to_bound "$1" "$3") x what disk and cores allow"
    [ -z "${4:-}" ] || ratio+=", $(ratio_to_bound "$1" "$writing_files") x with as many files, $(ratio_to_bound "$1" "$restoring") x while the archive is read"
    [ -z "${OTHER:-}" ] || [ ! -e "$work/times/other-$1" ] || ratio+="; $(ratio "$1" "other-$1") x the other's, kernel $(ratio "$1-kernel" "other-$1-kernel") x"
    row "$1" "$2" "cpu $cpu s, of which kernel $kernel s; $ratio"
}

echo
echo "$bytes bytes of storages, $threads threads, $(nproc) cores, nothing in memory before each run, $rounds rounds; medians"
echo "fio, bypassing the page cache: reading as many bytes takes $reading s, and writing them $writing s; into $files files,"
echo "$writing_files s, or $restoring s while the archive is read"
echo
line archive "slotpress archive" "$reading"
line tar "tar | zstd -1 -T$threads; sync" "$reading"
line verify "slotpress verify ARCHIVE" "$(awk -v all="$reading" -v part="$(stat -c %s "$archive")" -v bytes="$bytes" 'BEGIN { print all * part / bytes }')"
line verify-ledger "slotpress verify LEDGER" "$reading"
line frames "slotpress restore --check frames" "$writing" is_restore
line agave "the same, frames of Agave" "$writing" is_restore
line restore "slotpress restore" "$writing" is_restore
line untar "zstd -dc | tar -x; sync" "$writing" is_restore
