//! Archives, and the servers that lie about them.

use std::io;
use std::net::TcpStream;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use crate::common::http::{Connection, Request, Server, send_redirect, send_response};
use crate::common::site::{agave_archives, larger_archive};
use crate::common::*;

/// Answers a request for the archive.
pub type Behavior = fn(&ServerState, &Request, &mut TcpStream) -> io::Result<Connection>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveKind {
    /// Made by slotpress: many frames, with their hashes.
    Hashed,
    /// One frame of a few megabytes, as `zstd` makes it.
    Single,
    /// Made by Agave: one small frame.
    Agave,
}

impl ArchiveKind {
    pub fn label(self) -> &'static str {
        match self {
            Self::Hashed => "with frame hashes",
            Self::Single => "one frame",
            Self::Agave => "Agave's",
        }
    }
}

/// An archive, and another one of the same name.
pub struct Archive {
    pub name: String,
    pub original: Vec<u8>,
    pub other: Vec<u8>,
    /// Root of the archive; empty if it has no frame hashes.
    pub root: String,
}

impl Archive {
    /// Returns the archive of a kind, which is made once.
    pub fn get(kind: ArchiveKind) -> &'static Self {
        static ALL: [OnceLock<Archive>; 3] = [OnceLock::new(), OnceLock::new(), OnceLock::new()];
        ALL[kind as usize].get_or_init(|| Self::make(kind))
    }

    fn make(kind: ArchiveKind) -> Self {
        let files = if kind == ArchiveKind::Agave { agave_archives() } else { larger_archive() };
        let (name, original) =
            files.into_iter().find(|(name, _)| name.starts_with("snapshot-")).expect("a full archive");
        let dir = temp_dir();
        let path = dir.path().join(&name);
        let (original, root) = match kind {
            ArchiveKind::Hashed => {
                std::fs::write(&path, &original).expect("written");
                let output = slotpress().arg("inspect").arg(&path).arg("--json").output().expect("runs");
                let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
                let root =
                    stdout.split("\"root\":\"").nth(1).and_then(|rest| rest.get(..64)).expect("a root").to_string();
                (original, root)
            }
            // A negative level compresses little. The archive must be large enough for several pieces.
            ArchiveKind::Single => {
                let tar = zstd::stream::decode_all(original.as_slice()).expect("decodes");
                (zstd::stream::encode_all(tar.as_slice(), -50).expect("encodes"), String::new())
            }
            ArchiveKind::Agave => (original, String::new()),
        };
        let tar = zstd::stream::decode_all(original.as_slice()).expect("decodes");
        let other = match kind {
            // The same content in smaller frames, with other hashes.
            ArchiveKind::Hashed => {
                std::fs::write(&path, &original).expect("written");
                let out = dir.path().join("out");
                std::fs::create_dir(&out).expect("made");
                let arguments = ["--frame-size", "128KiB", "--check", "frames", "-o"];
                let output = slotpress().arg("recompress").arg(&path).args(arguments).arg(&out).output().expect("runs");
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                std::fs::read(out.join(&name)).expect("read")
            }
            _ => zstd::stream::encode_all(tar.as_slice(), 1).expect("encodes"),
        };
        // A larger archive has several pieces.
        assert!(kind == ArchiveKind::Agave || original.len() > 2 << 20, "only {} bytes", original.len());
        assert_ne!(original, other);
        Self { name, original, other, root }
    }
}

/// The state that a behavior sees.
pub struct ServerState {
    pub archive: &'static Archive,
    /// Number of GET requests for the archive that have been answered.
    pub get_count: AtomicUsize,
    /// Bytes of the archive that were requested and sent, over all connections.
    pub sent_bytes: AtomicUsize,
    /// A number that the behavior may use.
    pub counter: AtomicUsize,
}

pub struct LyingServer {
    server: Server,
    state: Arc<ServerState>,
}

impl LyingServer {
    pub fn start(archive: &'static Archive, behavior: Behavior) -> Self {
        let state = Arc::new(ServerState {
            archive,
            get_count: AtomicUsize::new(0),
            sent_bytes: AtomicUsize::new(0),
            counter: AtomicUsize::new(0),
        });
        let served = state.clone();
        let server = Server::start(move |request, stream| {
            let requested = request.path.trim_start_matches('/');
            match requested {
                "snapshot.tar.bz2" => send_redirect(stream, &format!("/{}", served.archive.name)),
                _ if requested == served.archive.name => {
                    let result = behavior(&served, request, stream);
                    if request.method == "GET" {
                        served.get_count.fetch_add(1, Relaxed);
                    }
                    result
                }
                _ => send_response(stream, "404 Not Found", &[], b""),
            }
        });
        Self { server, state }
    }

    /// Returns the archive's URL on the server.
    pub fn url(&self) -> String {
        self.server.url(&format!("/{}", self.state.archive.name))
    }

    pub fn sent_bytes(&self) -> usize {
        self.state.sent_bytes.load(Relaxed)
    }
}
