//! The list of archives that `slotpress serve` gives to programs (`docs/serving.md` describes it), as a client reads it.
//! What it says is the server's claim.

use {
    super::{Client, NetError, NetErrorKind, Url, servers::LISTING_BYTES_MAX},
    crate::{
        format::{
            frame_hashes::Root,
            listing::{FrameHashesAt, PATH, VERSION},
        },
        ledger::names::ArchiveName,
        progress::Progress,
    },
    serde::Deserialize,
};

/// An archive that a server lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedArchive {
    /// Its name.
    pub name: ArchiveName,
    /// Its length.
    pub size_bytes: Option<u64>,
    /// How long ago it was modified.
    pub age_seconds: Option<u64>,
    /// What stands for every byte of it, where it has frame hashes.
    pub root: Option<Root>,
    /// Where its frame hashes are.
    pub frame_hashes: Option<FrameHashesAt>,
}

#[derive(Deserialize)]
struct List {
    version: u32,
    archives: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    name: String,
    size_bytes: Option<u64>,
    age_seconds: Option<u64>,
    root: Option<String>,
    frame_hashes: Option<FrameHashesAt>,
}

/// Reads a list: `None` where it is something else. What has not the name of an archive is left out.
pub fn parse(document: &[u8]) -> Option<Vec<ListedArchive>> {
    let list: List = serde_json::from_slice(document).ok()?;
    if list.version != VERSION {
        return None;
    }
    let listed = list.archives.into_iter().filter_map(|entry| {
        Some(ListedArchive {
            name: ArchiveName::parse(&entry.name)?,
            size_bytes: entry.size_bytes,
            age_seconds: entry.age_seconds,
            root: entry.root.and_then(|root| root.parse().ok()),
            frame_hashes: entry.frame_hashes,
        })
    });
    Some(listed.collect())
}

impl Client {
    /// Asks the server at `url` for its list; `None` where it answers, and has none.
    ///
    /// # Errors
    /// The server cannot be reached, or the user asks to stop.
    pub fn listing(&self, url: &Url, stop: &dyn Progress) -> Result<Option<Vec<ListedArchive>>, NetError> {
        let mut list = url.clone();
        list.set_path(&format!("{}{PATH}", url.path().trim_end_matches('/')));
        match self.small(&list, LISTING_BYTES_MAX, stop) {
            Ok(document) => Ok(parse(&document)),
            Err(error) => match error.kind() {
                NetErrorKind::Connect | NetErrorKind::Timeout | NetErrorKind::Tls | NetErrorKind::Interrupted => {
                    Err(error)
                }
                // Whoever answers, but has no such list, may have archives all the same.
                _ => Ok(None),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use {super::*, proptest::prelude::*};

    const NAME: &str = "snapshot-26-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst";

    #[test]
    fn only_archives_of_a_known_version() {
        let list = |version: u32| {
            format!(
                r#"{{"version":{version},"archives":[{{"name":"{NAME}"}},{{"name":"../x","size_bytes":1}}],"more":1}}"#
            )
        };
        assert_eq!(parse(list(1).as_bytes()).map(|listed| listed.len()), Some(1));
        assert_eq!(parse(list(2).as_bytes()), None);
        assert_eq!(parse(b"<html>"), None);
    }

    proptest! {
        #[test]
        fn junk_never_panics(text in ".{0,200}", age in any::<u64>()) {
            let _ = parse(text.as_bytes());
            let json = format!(r#"{{"version":1,"archives":[{{"name":"{NAME}","age_seconds":{age},"root":"x"}}]}}"#);
            prop_assert!(parse(json.as_bytes()).is_some());
        }
    }
}
