//! Reads the server's certificate and key from files. Reads the files again when asked, and then uses the new
//! certificate if they have changed. rustls encrypts, with ring as its provider of cryptography.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use slotpress_base::{Error, EscapePath, Result, open_file, quantity, read_at_most};

/// PEM files of a certificate chain and its private key.
#[derive(Clone, Debug)]
#[warn(missing_docs)]
pub struct TlsFiles {
    /// File with the server's certificate, followed by its issuers' certificates.
    pub cert: PathBuf,
    /// File with the private key.
    pub key: PathBuf,
}

const PEM_BYTES_MAX: u64 = 1 << 20;

pub struct Certificates {
    files: TlsFiles,
    current: Mutex<LoadedCertificates>,
}

struct LoadedCertificates {
    config: Arc<ServerConfig>,
    cert_pem: Vec<u8>,
    key_pem: Vec<u8>,
}

impl Certificates {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// The files cannot be read, are not in PEM, or do not belong together.
    pub fn new(files: TlsFiles) -> Result<Arc<Self>> {
        let cert_pem = read_pem(&files.cert)?;
        let key_pem = read_pem(&files.key)?;
        let config = build_config(&files, &cert_pem, &key_pem)?;
        let current = Mutex::new(LoadedCertificates { config, cert_pem, key_pem });
        Ok(Arc::new(Self { files, current }))
    }

    pub fn config(&self) -> Arc<ServerConfig> {
        self.current.lock().config.clone()
    }

    /// Reads the files again, and uses them if they have changed. Returns true if they have.
    ///
    /// # Errors
    /// The files cannot be used; the old certificate stays in use.
    pub fn reload(&self) -> Result<bool> {
        let cert_pem = read_pem(&self.files.cert)?;
        let key_pem = read_pem(&self.files.key)?;
        let mut current = self.current.lock();
        if cert_pem == current.cert_pem && key_pem == current.key_pem {
            return Ok(false);
        }
        let config = build_config(&self.files, &cert_pem, &key_pem)?;
        *current = LoadedCertificates { config, cert_pem, key_pem };
        Ok(true)
    }
}

fn build_config(files: &TlsFiles, cert_pem: &[u8], key_pem: &[u8]) -> Result<Arc<ServerConfig>> {
    let cert_path = files.cert.escaped();
    let key_path = files.key.escaped();
    let certificates = CertificateDer::pem_slice_iter(cert_pem).collect::<std::result::Result<Vec<_>, _>>();
    let certificates = certificates.unwrap_or_default();
    if certificates.is_empty() {
        let message = format!("{cert_path} does not contain a certificate in PEM");
        return Err(Error::failed(message).with_hint("pass the file that has a line -----BEGIN CERTIFICATE-----"));
    }
    let Ok(key) = PrivateKeyDer::from_pem_slice(key_pem) else {
        let message = format!("{key_path} does not contain a private key in PEM");
        let hint = "pass the file that has a line -----BEGIN PRIVATE KEY-----, without a password";
        return Err(Error::failed(message).with_hint(hint));
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
        .map_err(|error| {
            let message = format!("cannot use {cert_path} with {key_path}: {error}");
            let hint = "pass the certificate, followed by those that signed it, and the key that belongs to it";
            Error::failed(message).with_hint(hint)
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn read_pem(path: &Path) -> Result<Vec<u8>> {
    let pem = read_at_most(open_file(path)?, PEM_BYTES_MAX + 1, path)?;
    if pem.len() as u64 > PEM_BYTES_MAX {
        let path = path.escaped();
        let limit = quantity::bytes(PEM_BYTES_MAX);
        let message = format!("{path} is larger than {limit}, the limit for a certificate or key file");
        let hint = "pass a file in PEM, with this certificate and those that signed it, or this key alone";
        return Err(Error::failed(message).with_hint(hint));
    }
    Ok(pem)
}
