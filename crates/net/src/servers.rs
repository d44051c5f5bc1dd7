//! Parses SOURCE arguments, and asks sources for their archives.
//!
//! Agave's RPC server redirects `/snapshot.tar.bz2` and `/incremental-snapshot.tar.bz2` to its
//! newest archives. Firedancer does the same, and so does `slotpress serve`, which also has a list
//! of all archives. Other web servers list a directory. Only names of archives are taken from such
//! a page, never links, which the server could point anywhere.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};
use std::{fmt, fs};

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::{Error, EscapePath, IoContext, Progress, Result};
use slotpress_format::{
    ArchiveName, ArchiveRoot, Hash, LISTING_PATH, NEWEST_FULL, NEWEST_INCREMENTAL, SlotTime, SlotTimeSource,
};
use slotpress_read::catalog::usable::judge_source;
use slotpress_read::{Catalog, LocalFile, REMOTE_DIR, Source, parse_list};

use super::{Client, NetError, NetErrorKind, Remote, Url, parse_url, show_url, stores, url_of_host};

/// Limit on the size of a list in bytes: enough for tens of thousands of names, or for a few thousand
/// archives with all their fields.
const LISTING_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Limit on the archives taken from one listing: the newest.
const LISTED_MAX: usize = 1000;

/// Limit on the full archives of a listing that are requested: the newest.
const FULL_ARCHIVES_MAX: usize = 4;

/// Limit on the incremental archives that are requested for each of the [`FULL_ARCHIVES_MAX`] newest bases.
/// It is more than one, because the newest may be deleted before it is requested. For older bases, only the
/// newest is requested.
const INCREMENTALS_PER_BASE_MAX: usize = 2;

/// Limit on the bases for which incremental archives are requested: the newest. A node may have any of these
/// bases. The limit covers a month if a mirror rebases onto one more full archive every day.
const BASES_MAX: usize = 32;

/// A source of archives, parsed from a URL or from a path that exists. A URL whose last path segment
/// contains `.tar` is one archive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[warn(missing_docs)]
pub enum SourceLocation {
    /// A server or a store that has archives.
    Server(Url),
    /// One archive at a URL.
    ArchiveUrl(Url),
    /// An archive on a local disk.
    ArchiveFile(PathBuf),
    /// A directory of archives on a local disk.
    Directory(PathBuf),
}

#[warn(missing_docs)]
impl SourceLocation {
    fn from_url(url: Url) -> Self {
        let last_segment = url.path_segments().and_then(|mut segments| segments.next_back()).unwrap_or_default();
        if last_segment.contains(".tar") {
            Self::ArchiveUrl(url)
        } else if url.scheme() == stores::SCHEME {
            Self::Server(join_name(&url, ""))
        } else {
            Self::Server(url)
        }
    }

    /// Returns the URL of the source; `None` for a local source.
    pub fn url(&self) -> Option<&Url> {
        match self {
            Self::Server(url) | Self::ArchiveUrl(url) => Some(url),
            Self::ArchiveFile(_) | Self::Directory(_) => None,
        }
    }
}

impl FromStr for SourceLocation {
    type Err = Error;

    /// Parses a URL, or a path that must exist.
    fn from_str(text: &str) -> Result<Self> {
        // A URL with an unknown scheme is an error, not a path.
        if text.contains("://") {
            return Ok(Self::from_url(parse_url(text)?));
        }
        let path = Path::new(text);
        match fs::metadata(path).or_path("open", path) {
            Ok(metadata) if metadata.is_dir() => Ok(Self::Directory(path.to_path_buf())),
            Ok(_) => Ok(Self::ArchiveFile(path.to_path_buf())),
            Err(error) => Err(match url_of_host(text) {
                Some(url) => error.with_hint(format!("for a server, write {url}")),
                None => error.with_hint("a source is a URL, an archive, or a directory of archives"),
            }),
        }
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(url) | Self::ArchiveUrl(url) => f.write_str(&show_url(url)),
            Self::ArchiveFile(path) | Self::Directory(path) => path.escaped().fmt(f),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there are thousands at most, nearly all of them remote")]
pub enum OfferPlace {
    Remote(Remote),
    Local(PathBuf),
}

/// An archive that a source offers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct Offer {
    /// Parsed file name of the archive. Its slots and hash are the source's claim.
    pub name: ArchiveName,
    #[doc(hidden)]
    pub place: OfferPlace,
    /// Source that offers the archive: its URL or path as the operator or a peer stated it, without
    /// secrets.
    #[doc(hidden)]
    pub source: String,
    /// Length in bytes; `None` if the server does not state it.
    pub file_bytes: Option<u64>,
    /// Root of the frame hashes, as a list claims it. Nothing proves it.
    pub root: Option<ArchiveRoot>,
    /// Time of the file's last modification, if known: from a server's list, `Last-Modified`, or
    /// the local file system. It says nothing about the state's age, since a copy has a new time.
    pub modified: Option<SystemTime>,
    /// Time of the newest blockhash in its bank file, if known: from a server's list, or from the bank file
    /// itself.
    pub bank_time: Option<SystemTime>,
    #[doc(hidden)]
    pub slot_time: Option<SlotTime>,
    /// Snapshot hash of the full archive on which the archive builds, if `rebase` made it and a list or
    /// the file states the hash.
    pub rebased_on: Option<Hash>,
}

/// Serializes the place without secrets, and the known facts.
impl Serialize for Offer {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let accepts_ranges = self.remote().map(|remote| remote.accepts_ranges);
        let mut fields = serializer.serialize_struct("Offer", 6)?;
        fields.serialize_field("location", &self.location())?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("file_bytes", &self.file_bytes)?;
        fields.serialize_field("accepts_ranges", &accepts_ranges)?;
        fields.serialize_field("root", &self.root)?;
        fields.serialize_field("rebased_on", &self.rebased_on)?;
        fields.end()
    }
}

#[warn(missing_docs)]
impl Offer {
    /// True if it is a full archive.
    pub fn is_full(&self) -> bool {
        self.name.base_slot.is_none()
    }

    /// True if it is a file on a local disk.
    pub fn is_local(&self) -> bool {
        matches!(self.place, OfferPlace::Local(_))
    }

    /// Returns a source that has only this archive.
    pub fn as_source(&self) -> SourceLocation {
        match &self.place {
            OfferPlace::Remote(remote) => SourceLocation::ArchiveUrl(remote.url.clone()),
            OfferPlace::Local(path) => SourceLocation::ArchiveFile(path.clone()),
        }
    }

    /// Returns the archive's URL without secrets, or its path.
    pub fn location(&self) -> String {
        match &self.place {
            OfferPlace::Remote(remote) => show_url(&remote.url),
            OfferPlace::Local(path) => path.escaped(),
        }
    }

    /// Creates an offer of a local file. Returns `None` if the file is not named as an archive or cannot be
    /// opened. If the archive is damaged, warns and returns `None`.
    fn from_file(path: &Path, progress: &dyn Progress) -> Option<Self> {
        let name = ArchiveName::from_path(path)?;
        let file = LocalFile::open(path).ok()?;
        let hashes = judge_source(&file)
            .inspect_err(|fault| progress.warn(&format!("{} is not used: {fault}", path.escaped())))
            .ok()?;
        Some(Self {
            file_bytes: file.length_bytes(),
            modified: path.metadata().and_then(|metadata| metadata.modified()).ok(),
            rebased_on: hashes.and_then(|hashes| hashes.rebased_on),
            ..Self::new(name, OfferPlace::Local(path.to_path_buf()))
        })
    }
}

// Only the crates of the workspace use these functions.
#[doc(hidden)]
impl Offer {
    /// Creates an offer with a name and a place, and no other facts.
    pub fn new(name: ArchiveName, place: OfferPlace) -> Self {
        Self {
            name,
            place,
            source: String::new(),
            file_bytes: None,
            root: None,
            modified: None,
            bank_time: None,
            slot_time: None,
            rebased_on: None,
        }
    }

    /// True for an incremental archive that builds on this full archive, according to its name and its
    /// source.
    pub fn builds_on(&self, full: &ArchiveName) -> bool {
        self.name.base_slot == Some(full.slot) && self.rebased_on.is_none_or(|hash| hash == full.hash)
    }

    pub fn remote(&self) -> Option<&Remote> {
        match &self.place {
            OfferPlace::Remote(remote) => Some(remote),
            OfferPlace::Local(_) => None,
        }
    }

    /// True if the operator named the source; false if it is a peer.
    pub fn is_named_by_operator(&self) -> bool {
        self.remote().is_none_or(|remote| remote.named_by_operator)
    }
}

impl Client {
    /// Returns the full and incremental archives that a source offers, newest first. Sends at most a few
    /// dozen requests.
    ///
    /// # Errors
    /// The source cannot be reached or read, or has no archive.
    pub fn list_offers(&self, source: &SourceLocation, progress: &dyn Progress) -> Result<Vec<Offer>> {
        self.list_offers_and_failure(source, progress).map(|(offers, _)| offers)
    }

    /// Same as [`Client::list_offers`]. Also returns the error of a server that has a full archive, but
    /// failed when it was asked for an incremental one.
    ///
    /// # Errors
    /// Those of [`Client::list_offers`].
    #[doc(hidden)]
    pub fn list_offers_and_failure(
        &self,
        source: &SourceLocation,
        progress: &dyn Progress,
    ) -> Result<(Vec<Offer>, Option<NetError>)> {
        let mut failure = None;
        let mut offers = match source {
            SourceLocation::Server(url) => self.ask_server(url, &mut failure, progress)?,
            SourceLocation::ArchiveUrl(url) => vec![self.request_offer(url, progress)?],
            SourceLocation::ArchiveFile(path) => Vec::from_iter(Offer::from_file(path, progress)),
            SourceLocation::Directory(path) => {
                let mut entries: Vec<_> = fs::read_dir(path).or_path("read", path)?.flatten().collect();
                // Agave puts its downloads here. A link is not followed.
                let downloads = path.join(REMOTE_DIR);
                if downloads.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
                    entries.extend(fs::read_dir(&downloads).into_iter().flatten().flatten());
                }
                let offers = entries.iter().filter_map(|entry| Offer::from_file(&entry.path(), progress));
                keep_newest(offers, |offer| &offer.name)
            }
        };
        if offers.is_empty() {
            return Err(Error::failed(format!("{source} has no snapshot archive")).with_hint(
                "archives are named snapshot-SLOT-HASH.tar.zst or incremental-snapshot-BASE-SLOT-HASH.tar.zst",
            ));
        }
        for offer in &mut offers {
            offer.source = source.to_string();
        }
        offers.sort_by_key(|offer| Reverse((offer.name.slot, offer.name.base_slot)));
        Ok((offers, failure))
    }

    /// Requests the list of the server at `url`, as `slotpress serve` offers it. Nothing proves its content.
    /// Returns `None` if the server can be reached, but has no valid list or refuses the request.
    ///
    /// # Errors
    /// The server cannot be reached, or `progress` is interrupted.
    #[doc(hidden)]
    pub fn get_list(&self, url: &Url, progress: &dyn Progress) -> Result<Option<Catalog>, NetError> {
        use NetErrorKind::{Connect, Interrupted, Timeout, Tls};
        let mut list_url = url.clone();
        list_url.set_path(&format!("{}{LISTING_PATH}", url.path().trim_end_matches('/')));
        match self.get_document(&list_url, LISTING_BYTES_MAX, progress) {
            Ok(document) => Ok(parse_list(&document, &show_url(url))),
            Err(error) if matches!(error.kind(), Connect | Timeout | Tls | Interrupted) => Err(error),
            // A server without a list may have archives.
            Err(_) => Ok(None),
        }
    }

    /// Returns the archives of a store or a server. A server's archives are those in its list, or else those
    /// to which it redirects, or else those that its directory page names. Peers are asked only for redirects,
    /// because there are thousands of peers, and hardly any has a list. Sets `failure` to the error of a
    /// server that has a full archive, but failed when it was asked for an incremental one.
    fn ask_server(
        &self,
        url: &Url,
        failure: &mut Option<NetError>,
        progress: &dyn Progress,
    ) -> Result<Vec<Offer>, NetError> {
        let mut names = None;
        // A store's own listing says which archives exist. A list that `publish` wrote adds facts.
        if url.scheme() == stores::SCHEME {
            names = Some(self.list_store(url, progress)?);
        }
        let list = if self.trusts_urls { self.get_list(url, progress)? } else { None };
        if let (None, Some(list)) = (&names, &list) {
            names = Some(list.archives().iter().map(|archive| archive.name.clone()).collect());
        }
        if let Some(names) = names {
            let mut offers = self.request_offers(url, names, progress)?;
            if let Some(list) = &list {
                add_listed_facts(&mut offers, list);
            }
            return Ok(offers);
        }
        let mut offers = Vec::new();
        let mut missing_error = None;
        for path in [NEWEST_FULL, NEWEST_INCREMENTAL] {
            match self.request_offer(&join_name(url, path.trim_start_matches('/')), progress) {
                Ok(offer) => offers.push(offer),
                Err(error) if error.kind() == NetErrorKind::Gone => {}
                Err(error) if is_missing(&error) => {
                    missing_error.get_or_insert(error);
                }
                // A server with a full archive is useful even if the request for an incremental one fails.
                Err(error) if !offers.is_empty() && !progress.is_interrupted() => *failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        if offers.is_empty() && self.trusts_urls {
            match self.get_document(&join_name(url, ""), LISTING_BYTES_MAX, progress) {
                Ok(page) => offers = self.request_offers(url, find_names(&page), progress)?,
                Err(error) if error.kind() == NetErrorKind::Gone => {}
                Err(error) if is_missing(&error) => missing_error = Some(error),
                Err(error) => return Err(error),
            }
        }
        match missing_error {
            Some(error) if offers.is_empty() => Err(error),
            _ => Ok(offers),
        }
    }

    fn request_offer(&self, url: &Url, progress: &dyn Progress) -> Result<Offer, NetError> {
        let remote = self.head(url, progress)?;
        let Some(name) = remote.archive_name() else {
            let why = "the file does not have the name of a snapshot archive";
            return Err(NetError::bad_answer(&remote.url, why));
        };
        Ok(Offer {
            file_bytes: remote.length_bytes,
            modified: remote.modified_time(),
            ..Offer::new(name, OfferPlace::Remote(remote))
        })
    }

    fn request_offers(
        &self,
        url: &Url,
        names: Vec<ArchiveName>,
        progress: &dyn Progress,
    ) -> Result<Vec<Offer>, NetError> {
        let mut offers = Vec::new();
        for name in select_names(names) {
            match self.request_offer(&join_name(url, &name.to_string()), progress) {
                Ok(offer) => offers.push(offer),
                // The archive may have been deleted since it was listed.
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(offers)
    }
}

fn add_listed_facts(offers: &mut [Offer], list: &Catalog) {
    let time = |since_1970| SystemTime::UNIX_EPOCH.checked_add(since_1970);
    for offer in offers {
        if list.slot_time.source() != SlotTimeSource::Assumed {
            offer.slot_time = Some(list.slot_time);
        }
        let Some(listed) = list.find(&offer.name.to_string()) else { continue };
        offer.root = listed.hashes.map(|hashes| hashes.root);
        offer.rebased_on = listed.rebased_on();
        let seconds = listed.bank_unix_seconds.filter(|seconds| *seconds > 0);
        offer.bank_time = seconds.and_then(|seconds| time(Duration::from_secs(seconds)));
        if listed.modified_ns > 0 {
            offer.modified = time(Duration::from_nanos(listed.modified_ns));
        }
    }
}

/// True if the server works, but does not serve the file.
fn is_missing(error: &NetError) -> bool {
    matches!(
        error.kind(),
        NetErrorKind::Gone | NetErrorKind::Status(400 | 401 | 403 | 405 | 501) | NetErrorKind::BadAnswer
    )
}

/// Returns the URL of a file in a directory. Keeps the query, which may contain an access key.
pub fn join_name(url: &Url, name: &str) -> Url {
    let mut url = url.clone();
    // Fails only for URLs without a host.
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().push(name);
    }
    url
}

/// Finds all names of archives in a listing of any format, such as HTML, JSON, XML or plain text.
fn find_names(listing: &[u8]) -> Vec<ArchiveName> {
    let is_name_byte = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let words = listing.split(|byte| !is_name_byte(byte)).filter(|word| word.len() < 256);
    let names = words.filter_map(|word| ArchiveName::parse(std::str::from_utf8(word).ok()?));
    // A page in HTML often has each name twice: in the link and in its text.
    let unique: BTreeMap<String, ArchiveName> = names.map(|name| (name.to_string(), name)).collect();
    unique.into_values().collect()
}

/// Selects the newest full archives, and the newest incremental ones on each of the newest bases: a node
/// that has an older full archive needs an incremental archive that builds on it.
fn select_names(names: Vec<ArchiveName>) -> Vec<ArchiveName> {
    let mut selected = Vec::new();
    let mut by_base: BTreeMap<Reverse<u64>, Vec<ArchiveName>> = BTreeMap::new();
    for name in keep_newest(names.into_iter(), |name| name) {
        match name.base_slot {
            Some(base) => by_base.entry(Reverse(base)).or_default().push(name),
            None if selected.len() < FULL_ARCHIVES_MAX => selected.push(name),
            None => {}
        }
    }
    for (rank, names) in by_base.into_values().take(BASES_MAX).enumerate() {
        let max = if rank < FULL_ARCHIVES_MAX { INCREMENTALS_PER_BASE_MAX } else { 1 };
        selected.extend(names.into_iter().take(max));
    }
    selected
}

/// Sorts by slot, newest first, and keeps at most [`LISTED_MAX`].
fn keep_newest<T>(items: impl Iterator<Item = T>, name: impl Fn(&T) -> &ArchiveName) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort_by_key(|item| Reverse((name(item).slot, name(item).base_slot)));
    items.truncate(LISTED_MAX);
    items
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH: &str = "D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi";

    #[test]
    fn arguments_are_urls_or_paths() {
        let parse = |text: &str| text.parse::<SourceLocation>().expect("an argument");
        assert!(matches!(parse("http://10.0.0.1:8899"), SourceLocation::Server(_)));
        assert!(matches!(parse("https://host/dir/"), SourceLocation::Server(_)));
        assert!(matches!(parse(&format!("https://host/snapshot-5-{HASH}.tar.zst?x=1")), SourceLocation::ArchiveUrl(_)));
        assert!(matches!(parse("http://host:8899/snapshot.tar.bz2"), SourceLocation::ArchiveUrl(_)));
        assert!(matches!(parse("/"), SourceLocation::Directory(_)));
        assert!(matches!(parse("s3://bucket/x"), SourceLocation::Server(url) if url.as_str() == "s3://bucket/x/"));
        assert!(matches!(parse(&format!("s3://bucket/snapshot-5-{HASH}.tar.zst")), SourceLocation::ArchiveUrl(_)));
        for text in ["gs://bucket/x", "/no/such/path"] {
            assert!(SourceLocation::from_str(text).is_err(), "{text}");
        }
        let url = parse("https://user:secret@host/dir/?token=secret");
        assert!(!url.to_string().contains("secret"), "{url}");
    }

    #[test]
    fn names_are_found_in_listings_of_any_format() {
        let full = format!("snapshot-5-{HASH}.tar.zst");
        let incremental = format!("incremental-snapshot-5-9-{HASH}.tar.zst");
        for listing in [
            format!(
                "<a href=\"{full}\">snapshot-5-D5jEKFz..&gt;</a> 5 <a href='./{incremental}'>x</a>\n<a href=\"../\">../</a>"
            ),
            format!("[{{\"name\":\"{full}\",\"size\":5}},{{\"name\":\"{incremental}\"}}]"),
            format!("{incremental}\n{full}\n"),
            format!("<Key>dir/{full}</Key><Key>http://10.0.0.1/{incremental}</Key>"),
        ] {
            let names: Vec<String> = find_names(listing.as_bytes()).iter().map(ToString::to_string).collect();
            assert_eq!(names, [incremental.clone(), full.clone()], "{listing}");
        }
        assert!(find_names(b"\xff\xfe<html>").is_empty());
    }

    #[test]
    fn names_are_joined_to_the_path_of_a_url() {
        assert_eq!(join_name(&Url::parse("http://h/a/b/?k=1").expect("a URL"), "x").as_str(), "http://h/a/b/x?k=1");
        assert_eq!(join_name(&Url::parse("http://h").expect("a URL"), "x").as_str(), "http://h/x");
    }

    #[test]
    fn the_newest_archives_of_the_newest_bases_are_requested() {
        let name = |base_slot, slot| {
            let hash = slotpress_format::ledger::names::Hash([7; 32]);
            let compression = slotpress_format::ledger::names::ArchiveCompression::Zstd;
            ArchiveName { base_slot, slot, hash, compression }
        };
        let fulls = (1..8).map(|number| name(None, number * 100));
        let incrementals = (1..8).flat_map(|base| (1..5).map(move |slots| (base * 100, base * 100 + slots)));
        let names = fulls.chain(incrementals.map(|(base, slot)| name(Some(base), slot))).collect();
        let selected: Vec<(Option<u64>, u64)> =
            select_names(names).into_iter().map(|name| (name.base_slot, name.slot)).collect();
        let fulls = [700, 600, 500, 400].map(|slot| (None, slot));
        let incrementals = [700, 600, 500, 400].map(|base| [(Some(base), base + 4), (Some(base), base + 3)]).concat();
        let on_older = [300, 200, 100].map(|base| (Some(base), base + 4));
        assert_eq!(selected, [fulls.to_vec(), incrementals, on_older.to_vec()].concat());
    }

    proptest! {
        #[test]
        fn any_listing_is_parsed_without_a_panic(listing in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _ = find_names(&listing);
        }
    }
}
