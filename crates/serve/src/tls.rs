//! Certificates: read from files, read again when these change. rustls with ring, and nothing of the system's.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use slotpress_base::{Error, IoContext, Result, ShowPath};

/// A certificate with its chain, and its key, both PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate first, then those of who signed it.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The files are small; what is larger is something else.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// What connections are accepted with.
pub struct Certificates {
    files: TlsFiles,
    state: Mutex<State>,
}

struct State {
    config: Arc<ServerConfig>,
    /// The files that it is from.
    versions: Versions,
}

/// Device, inode, length and time of both files.
type Versions = [Option<(u64, u64, u64, i64, i64)>; 2];

impl Certificates {
    /// Reads them for the first time.
    ///
    /// # Errors
    /// They cannot be read, or do not belong together.
    pub fn new(files: TlsFiles) -> Result<Self> {
        let versions = versions(&files);
        let config = read(&files)?;
        Ok(Self { files, state: Mutex::new(State { config, versions }) })
    }

    /// What to accept the next connection with.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.state.lock().config.clone()
    }

    /// Reads them again if they have changed, or anyway. Returns whether they were.
    ///
    /// # Errors
    /// They cannot be used; what there was stays.
    pub fn reload(&self, is_forced: bool) -> Result<bool> {
        let versions = versions(&self.files);
        if !is_forced && versions == self.state.lock().versions {
            return Ok(false);
        }
        let config = read(&self.files)?;
        *self.state.lock() = State { config, versions };
        Ok(true)
    }
}

fn versions(files: &TlsFiles) -> Versions {
    [&files.cert, &files.key].map(|path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
    })
}

fn read(files: &TlsFiles) -> Result<Arc<ServerConfig>> {
    let no_certificate = || Error::failed(format!("{} holds no certificate in PEM", files.cert.shown()));
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&read_pem(&files.cert)?)
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| no_certificate())?;
    if certificates.is_empty() {
        return Err(no_certificate());
    }
    let key = PrivateKeyDer::from_pem_slice(&read_pem(&files.key)?)
        .map_err(|_| Error::failed(format!("{} holds no private key in PEM", files.key.shown())))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
        .map_err(|error| {
            let (cert, key) = (files.cert.shown(), files.key.shown());
            Error::failed(format!("cannot use {cert} with {key}: {error}")).with_hint(
                "give the certificate, with those of who signed it behind it, and the key that belongs to it",
            )
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn read_pem(path: &Path) -> Result<Vec<u8>> {
    let file = slotpress_base::files::open_file(path)?;
    let length = file.metadata().or_path("read", path)?.len();
    if length > PEM_BYTES_MAX {
        return Err(Error::failed(format!("{} is too large for a certificate or a key", path.shown())));
    }
    let mut pem = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(file, PEM_BYTES_MAX), &mut pem).or_path("read", path)?;
    Ok(pem)
}
