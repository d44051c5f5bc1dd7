#!/usr/bin/env bash
# Measures hashing an account with each implementation that this machine can run, ROUNDS times
# (bench/lattice.rs says what it prints): first as the program is built, then beside a blake3 crate
# without AVX-512, as most machines run it.

. "$(dirname "$0")/lib.sh"
build --example lattice
scratch

echo "as built:"
"$(dirname "$slotpress")/examples/lattice" "$rounds"

# The crate's build asks the C compiler whether it knows AVX-512, and leaves it out if not.
cat >"$work/cc" <<'CC'
#!/bin/sh
for arg in "$@"; do case "$arg" in -mavx512*) exit 1 ;; esac; done
exec cc "$@"
CC
chmod +x "$work/cc"
target=$(dirname "$(dirname "$slotpress")")/without-avx512
CC="$work/cc" CARGO_TARGET_DIR="$target" \
    cargo build --release --quiet --manifest-path "$here/Cargo.toml" --example lattice 2>/dev/null
echo "the crate without AVX-512:"
"$target/release/examples/lattice" "$rounds"
