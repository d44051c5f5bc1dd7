//! Measures hashing an account with each implementation that this machine can run.
//!
//! `cargo run --release --example lattice [ROUNDS]` prints nanoseconds of CPU time per account, on
//! one thread: the median of the rounds, each of which runs every code once, and the median of the
//! ratios to the crate alone. `bench/lattice.sh` does the same beside a crate that was built
//! without AVX-512.

use std::error::Error;

use slotpress_base::Stopwatch;
use slotpress_format::{AccountView, Backend, LatticeAccumulator, LatticeHash};

/// Accounts of one size, or a mix, and the number hashed in a round.
const SIZES: [(&str, &[usize], usize); 9] = [
    // Of 1,000 accounts: 740 of tokens, 120 with lamports only, 60 mints, 50 stakes, 25 of some
    // hundred bytes, 4 votes, one large; 203 bytes on average.
    ("mix", &[], 200_000),
    ("0", &[0], 100_000),
    ("82", &[82], 100_000),
    ("165", &[165], 100_000),
    ("900", &[900], 50_000),
    ("1,500", &[1500], 50_000),
    ("3,762", &[3762], 50_000),
    ("16,000", &[16_000], 10_000),
    ("1,000,000", &[1_000_000], 200),
];

fn mixed(number: usize) -> usize {
    match number.wrapping_mul(0x9e37_79b9) % 1000 {
        0..740 => 165,
        740..860 => 0,
        860..920 => 82,
        920..970 => 200,
        970..995 => 300 + number * 13 % 600,
        995..999 => 3762,
        _ => 36_000,
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(11), |text| text.parse())?;
    let backends: Vec<Backend> = Backend::ALL.into_iter().filter(|backend| backend.is_available()).collect();
    let data: Vec<u8> = (0..1_000_000u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    print!("{:<12}", "data bytes");
    backends.iter().for_each(|backend| print!("{:>18}", format!("{backend:?}")));
    println!();
    for (name, sizes, count) in SIZES {
        let size = |number: usize| if sizes.is_empty() { mixed(number) } else { sizes[number % sizes.len()] };
        let mut taken = vec![Vec::new(); backends.len()];
        let mut sums: Vec<LatticeHash> = Vec::new();
        for _ in 0..rounds.max(1) {
            for (backend, taken) in backends.iter().zip(&mut taken) {
                let mut accumulator = LatticeAccumulator::with_backend(*backend).ok_or("checked above")?;
                let start = Stopwatch::start();
                for number in 0..count {
                    accumulator.add(&AccountView {
                        pubkey: &[number as u8; 32],
                        owner: &[2; 32],
                        lamports: number as u64 + 1,
                        executable: false,
                        data: &data[..size(number)],
                    });
                }
                sums.push(accumulator.take());
                taken.push(start.elapsed().cpu.as_secs_f64() * 1e9 / count as f64);
            }
        }
        if sums.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err("sums differ".into());
        }
        print!("{name:<12}");
        for own in &taken {
            let ratios = own.iter().zip(&taken[0]).map(|(own, other)| own / other).collect();
            print!("{:>18}", format!("{:.0} ns {:.2} x", median(own.clone()), median(ratios)));
        }
        println!();
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
