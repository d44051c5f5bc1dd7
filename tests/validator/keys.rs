//! Keys in Solana's format, and transfers that openssl signs with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cluster::run_program;

#[derive(Clone)]
pub struct Key {
    /// The key in the format that `agave-validator` reads.
    pub file: PathBuf,
    pub address: String,
    pub public: [u8; 32],
    pem: PathBuf,
}

impl Key {
    /// Reads a key, or makes one.
    pub fn new(dir: &Path, name: &str) -> Self {
        let pem = dir.join(name).with_extension("pem");
        let file = dir.join(name).with_extension("json");
        if !pem.exists() {
            run_program(Command::new("openssl").args(["genpkey", "-algorithm", "ed25519", "-out"]).arg(&pem));
        }
        // Both documents end with the key.
        let [secret, public] = [&[][..], &["-pubout"]].map(|flags| {
            let der =
                run_program(Command::new("openssl").args(["pkey", "-outform", "DER", "-in"]).arg(&pem).args(flags));
            <[u8; 32]>::try_from(&der[der.len() - 32..]).expect("32 bytes")
        });
        fs::write(&file, format!("{:?}", [secret, public].concat())).expect("written");
        Self { file, pem, public, address: bs58::encode(public).into_string() }
    }

    /// Returns a transaction that moves lamports, in base 58.
    pub fn transfer(&self, to: &[u8; 32], lamports: u64, blockhash: &str) -> String {
        let blockhash = bs58::decode(blockhash).into_vec().expect("base 58");
        let system_program = [0; 32];
        let message = [
            &[1, 0, 1][..], // one signature; of the accounts that do not sign, one is read-only
            &[3],
            &self.public,
            to,
            &system_program,
            &blockhash,
            &[1, 2, 2, 0, 1, 12], // one instruction: program 2, accounts 0 and 1, 12 bytes of data
            &2u32.to_le_bytes(),
            &lamports.to_le_bytes(),
        ]
        .concat();
        let to_sign = self.pem.with_extension("message");
        fs::write(&to_sign, &message).expect("written");
        let signature = run_program(
            Command::new("openssl")
                .args(["pkeyutl", "-sign", "-rawin", "-inkey"])
                .arg(&self.pem)
                .arg("-in")
                .arg(to_sign),
        );
        bs58::encode([&[1][..], &signature, &message].concat()).into_string()
    }
}
