//! The archives of the lies, and the servers that play them.

use std::io;
use std::net::TcpStream;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use crate::common::http::{Request, Server, Then, answer, redirect};
use crate::common::site::{agaves_archives, larger_archive};
use crate::common::*;

/// What a server does with a request for the archive.
pub type Play = fn(&Scene, &Request, &mut TcpStream) -> io::Result<Then>;

/// Kinds of archives for lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By slotpress: many frames, with their hashes.
    Hashed,
    /// Of some megabytes in a single frame, as by `zstd`.
    Single,
    /// By Agave: small, one frame.
    Agave,
}

impl Kind {
    /// Name in the table.
    pub fn told(self) -> &'static str {
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
    pub right: Vec<u8>,
    pub other: Vec<u8>,
    /// Its root; empty without frame hashes.
    pub root: String,
}

impl Archive {
    /// Made once.
    pub fn of(kind: Kind) -> &'static Self {
        static ALL: [OnceLock<Archive>; 3] = [OnceLock::new(), OnceLock::new(), OnceLock::new()];
        ALL[kind as usize].get_or_init(|| Self::make(kind))
    }

    fn make(kind: Kind) -> Self {
        let files = if kind == Kind::Agave { agaves_archives() } else { larger_archive() };
        let (name, right) = files.into_iter().find(|(name, _)| name.starts_with("snapshot-")).expect("a full archive");
        let dir = temp_dir();
        let path = dir.path().join(&name);
        let (right, root) = match kind {
            Kind::Hashed => {
                std::fs::write(&path, &right).expect("written");
                let output = slotpress().arg("inspect").arg(&path).arg("--json").output().expect("runs");
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                let root =
                    said.split("\"root\":\"").nth(1).and_then(|rest| rest.get(..64)).expect("a root").to_string();
                (right, root)
            }
            // The content compresses like mainnet's, so that the archive has some pieces.
            Kind::Single => {
                let tar = zstd::stream::decode_all(right.as_slice()).expect("decodes");
                (zstd::stream::encode_all(tar.as_slice(), -50).expect("encodes"), String::new())
            }
            Kind::Agave => (right, String::new()),
        };
        let tar = zstd::stream::decode_all(right.as_slice()).expect("decodes");
        let other = match kind {
            // Made again with other frames and their hashes.
            Kind::Hashed => {
                std::fs::write(&path, &right).expect("written");
                let out = dir.path().join("out");
                std::fs::create_dir(&out).expect("made");
                let arguments = ["--frame-size", "128KiB", "--check", "frames", "-o"];
                let output = slotpress().arg("recompress").arg(&path).args(arguments).arg(&out).output().expect("runs");
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                std::fs::read(out.join(&name)).expect("read")
            }
            _ => zstd::stream::encode_all(tar.as_slice(), 1).expect("encodes"),
        };
        assert!(kind == Kind::Agave || right.len() > 2 << 20, "{} bytes are not some pieces", right.len());
        assert_ne!(right, other);
        Self { name, right, other, root }
    }
}

/// The state that a play sees.
pub struct Scene {
    pub archive: &'static Archive,
    /// Requests for bytes so far, this one not counted.
    pub gets: AtomicUsize,
    /// Bytes of the archive that were requested and sent, over all connections.
    pub sent: AtomicUsize,
    /// A number for the play's own use.
    pub own: AtomicUsize,
}

/// A server that plays.
pub struct Stage {
    server: Server,
    scene: Arc<Scene>,
}

impl Stage {
    pub fn start(archive: &'static Archive, play: Play) -> Self {
        let scene =
            Arc::new(Scene { archive, gets: AtomicUsize::new(0), sent: AtomicUsize::new(0), own: AtomicUsize::new(0) });
        let playing = scene.clone();
        let server = Server::start(move |request, stream| {
            let asked = request.path.trim_start_matches('/');
            match asked {
                "snapshot.tar.bz2" => redirect(stream, &format!("/{}", playing.archive.name)),
                _ if asked == playing.archive.name => {
                    let result = play(&playing, request, stream);
                    if request.method == "GET" {
                        playing.gets.fetch_add(1, Relaxed);
                    }
                    result
                }
                _ => answer(stream, "404 Not Found", &[], b""),
            }
        });
        Self { server, scene }
    }

    /// Returns the archive's URL on the server.
    pub fn url(&self) -> String {
        self.server.url(&format!("/{}", self.scene.archive.name))
    }

    pub fn sent_bytes(&self) -> usize {
        self.scene.sent.load(Relaxed)
    }
}
