//! Makes data that others measured compression on, so that their conclusions can be looked at: transactions and log
//! entries. Made up, by a generator with a fixed seed: the shapes are real, the contents are not.
//!
//!   samples transactions INPUTS REUSE_PERCENT COUNT   Bitcoin transactions that pay from INPUTS outputs to two addresses;
//!                                                     of 148 x INPUTS + 78 bytes each; REUSE_PERCENT of the inputs have
//!                                                     the key of the input before
//!   samples logs COUNT                                log entries of a cluster as JSON, one per line

use std::io::{BufWriter, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| -> Result<u64, String> {
        let text = arguments.get(at).ok_or("too few arguments: the head of bench/samples.rs lists them")?;
        text.parse().map_err(|_| format!("{text} is not a number"))
    };
    let mut random = Random(0x5107_9235);
    let mut out = BufWriter::new(std::io::stdout().lock());
    match arguments.first().map(String::as_str) {
        Some("transactions") => {
            let (inputs, reuse_percent) = (number(1)?.clamp(1, 200), number(2)?);
            for _ in 0..number(3)? {
                out.write_all(&transaction(&mut random, inputs as u8, reuse_percent))?;
            }
        }
        Some("logs") => {
            for at in 0..number(1)? {
                writeln!(out, "{}", log_entry(&mut random, at))?;
            }
        }
        _ => return Err("samples transactions INPUTS REUSE_PERCENT COUNT, or samples logs COUNT".into()),
    }
    Ok(out.flush()?)
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// What hashes, keys and signatures look like.
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next() as u8)
    }
}

/// A transaction as before segregated witness: version, inputs with signature and key, two outputs to the hash of a key.
fn transaction(random: &mut Random, inputs: u8, reuse_percent: u64) -> Vec<u8> {
    let mut bytes = vec![1, 0, 0, 0, inputs];
    let mut key: [u8; 32] = random.bytes();
    for input in 0..inputs {
        if input > 0 && random.below(100) >= reuse_percent {
            key = random.bytes();
        }
        bytes.extend(random.bytes::<32>());
        bytes.extend((random.below(3) as u32).to_le_bytes());
        // The script: a signature in DER of 72 bytes with its kind, and a compressed key.
        bytes.extend([107, 72, 0x30, 0x45, 0x02, 0x21, 0x00]);
        bytes.extend(random.bytes::<32>());
        bytes.extend([0x02, 0x20]);
        bytes.extend(random.bytes::<32>());
        bytes.extend([0x01, 33, 2 + (key[0] & 1)]);
        bytes.extend(key);
        bytes.extend([0xff; 4]);
    }
    bytes.push(2);
    for _ in 0..2 {
        bytes.extend(random.below(5_000_000_000).to_le_bytes());
        bytes.extend([25, 0x76, 0xa9, 20]);
        bytes.extend(random.bytes::<20>());
        bytes.extend([0x88, 0xac]);
    }
    bytes.extend([0; 4]);
    bytes
}

/// What a collector makes of a line that a container logged: the line's fields, and where it came from.
fn log_entry(random: &mut Random, at: u64) -> String {
    const SERVICES: [&str; 5] = ["payments-api", "payments-worker", "mandates", "dashboard", "webhooks"];
    const EVENTS: [&str; 6] =
        ["request.completed", "job.started", "job.finished", "db.query", "cache.miss", "http.retry"];
    let service = random.below(5);
    let name = SERVICES[service as usize];
    let pod = format!("{name}-{:08x}-{:05x}", service * 0x0151_7e11 + 77, (service * 7 + random.below(4)) * 0x1234);
    let second = at / 20;
    format!(
        "{{\"timestamp\":\"2020-07-11T{:02}:{:02}:{:02}.{:06}Z\",\"level\":\"info\",\"event\":\"{}\",\"request_id\":\"{:016x}{:016x}\",\
         \"duration\":{:.6},\"status\":{},\"path\":\"/{}/{:08X}\",\"kubernetes\":{{\"namespace\":\"production\",\"pod\":\"{pod}\",\
         \"container\":\"{name}\",\"host\":\"node-{:012x}\"}}}}",
        second / 3600 % 24,
        second / 60 % 60,
        second % 60,
        random.below(1_000_000),
        EVENTS[random.below(6) as usize],
        random.next(),
        random.next(),
        random.below(3_000_000) as f64 / 1e6,
        [200, 200, 200, 201, 404][random.below(5) as usize],
        ["payments", "mandates", "customers"][random.below(3) as usize],
        random.below(1 << 32),
        random.below(12) * 0x1_d0b7_55a1,
    )
}
