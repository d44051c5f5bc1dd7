//! What the clients accept in an archive (format page, section 6): every rule that an archive can break, and for each
//! client whether it still loads the archive. The one table of its kind.

use {serde::Serialize, std::fmt};

/// A validator client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Client {
    /// Agave, 3.0 to 4.4.
    Agave,
    /// Firedancer.
    Firedancer,
}

impl Client {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Agave, Self::Firedancer];
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agave => "Agave",
            Self::Firedancer => "Firedancer",
        })
    }
}

/// A client's verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClientVerdict {
    /// The client.
    pub client: Client,
    /// Whether it loads the archive, as far as was checked.
    pub loads: bool,
    /// Why not.
    pub because: Option<&'static str>,
}

/// Why a client refuses an archive that breaks these rules; empty where it loads it.
pub fn refusals(broken: impl Iterator<Item = Rule>, client: Client) -> Vec<&'static str> {
    broken.filter(|rule| !rule.is_tolerated_by(client)).map(Rule::what).collect()
}

/// The verdict of every client on an archive that breaks these rules.
pub fn verdicts(broken: impl Iterator<Item = Rule> + Clone) -> Vec<ClientVerdict> {
    let verdict = |client| {
        let because = refusals(broken.clone(), client).first().copied();
        ClientVerdict { client, loads: because.is_none(), because }
    };
    Client::ALL.into_iter().map(verdict).collect()
}

/// Who loads an archive that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loads {
    /// Nobody.
    None,
    /// Agave; Firedancer refuses.
    Agave,
    /// Firedancer; Agave refuses.
    Firedancer,
    /// Both clients: other readers, or other versions, may not.
    Both,
}

/// What to do about a broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    Download,
    Source,
    Recompress,
    Name,
    Ledger,
    Storage,
    Hints,
    Look,
}

impl Remedy {
    fn text(self) -> &'static str {
        match self {
            Self::Download => "download the archive again, from another source if it comes out the same",
            Self::Source => "do not use it; take the archive from another source",
            Self::Recompress => "restore it and archive it again with slotpress, which writes what both clients read",
            Self::Name => "do not use it: somebody renamed it or made it up; take it from another source",
            Self::Ledger => "take the ledger from its source again, or restore it from an archive",
            Self::Storage => "name every accounts path with --accounts, or restore the ledger from an archive",
            Self::Hints => "remove the file startup_hints from the bank snapshot: a validator starts without it",
            Self::Look => "look into it before you trust it",
        }
    }
}

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident, $loads:ident, $remedy:ident, $what:expr;)*) => {
        /// Something that a sound archive keeps to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Rule { $($(#[$doc])* $rule,)* }

        impl Rule {
            /// Every rule.
            pub const ALL: &'static [Self] = &[$(Self::$rule,)*];

            fn row(self) -> (Loads, Remedy, &'static str) {
                match self { $(Self::$rule => (Loads::$loads, Remedy::$remedy, $what),)* }
            }
        }
    };
}

rules! {
    /// Frames decode, and their checksums are right.
    FrameDamaged, None, Download, "a frame does not decode";
    /// The file ends with a whole frame.
    CutOff, None, Download, "the archive is cut off";
    /// Nothing but frames follows the last frame.
    TrailingBytes, Agave, Recompress, "bytes that are no frame follow the end";
    /// No frame needs a window of more than 2^27 bytes.
    WindowRefused, None, Recompress, "a frame needs a larger window than both clients give";
    /// No frame needs a window of more than 2^25 bytes.
    WindowLarge, Agave, Recompress, "a frame needs a larger window than Firedancer gives";
    /// Index and seek table say what is there.
    Index, Both, Recompress, "the archive's own index does not fit its frames";
    /// The marks of pzstd say how long the frames after them are.
    PzstdMark, Both, Recompress, "a mark of pzstd does not fit the frame after it";
    /// Tar headers can be read.
    TarDamaged, None, Download, "the tar stream is damaged";
    /// Every name has a place in a snapshot archive.
    ForeignEntry, None, Source, "an entry that has no place in a snapshot archive";
    /// Files and directories only, each where it belongs.
    EntryKind, None, Source, "an entry of a kind that clients refuse";
    /// Entries are as large as they may be.
    EntrySize, None, Source, "an entry of a size that clients refuse";
    /// No PAX headers and no GNU long names.
    ExtensionHeader, Agave, Recompress, "a PAX header or GNU long name";
    /// GNU or ustar headers.
    OldHeader, Agave, Recompress, "a tar header from before ustar";
    /// One version, one status cache, one bank file, one slot's directory.
    DuplicateEntry, Agave, Source, "an entry that is there twice";
    /// The bank of one slot.
    TwoBanks, None, Source, "bank files of two slots";
    /// One storage per slot, over the full and the incremental archive.
    DuplicateStorage, None, Source, "two storages of one slot";
    /// Storages hold something.
    EmptyStorage, None, Recompress, "an empty storage";
    /// The bank file comes before the accounts.
    Order, Agave, Recompress, "an order of entries that Firedancer does not read";
    /// Version, status cache and bank file are there.
    MissingEntry, None, Source, "something that every archive holds is missing";
    /// Slots are below 2^32.
    LargeSlot, Agave, Look, "a slot of 2^32 or above, on which Firedancer aborts";
    /// Storages are not newer than the bank.
    StorageTooNew, None, Source, "a storage is newer than the bank";
    /// Storages of an incremental archive are newer than its base.
    StorageTooOld, None, Source, "a storage is not newer than the base slot";
    /// At most 5,000,000 entries, 64 TiB.
    TooLarge, Firedancer, Source, "more than Agave unpacks";
    /// 1,024 zero bytes end the tar stream.
    EndMissing, Agave, Recompress, "the tar stream lacks its end of 1,024 zero bytes";
    /// No more than those.
    EndLong, Agave, Recompress, "more zero bytes than 1,024 end the tar stream";
    /// Nothing follows them.
    JunkAfterEnd, Agave, Recompress, "something follows the end of the tar stream";
    /// The file has the name of a snapshot archive.
    NameUnknown, None, Name, "the file does not have the name of a snapshot archive";
    /// It is zstd, not lz4.
    Lz4, Agave, Recompress, "an lz4 archive, which Firedancer does not read";
    /// It is zstd, not a plain tar.
    Plain, Firedancer, Recompress, "a plain tar, which Agave does not read";
    /// It is zstd, not bzip2 or gzip.
    OldCompression, None, Recompress, "compressed in a way that clients no longer read";
    /// The name's ending is what the file is.
    ExtensionWrong, None, Name, "the file is not compressed as its name says";
    /// Slot, base slot and hash of the name are the bank's.
    NameMismatch, None, Name, "the archive is not what its name says";
    /// The incremental archive builds on the full one.
    BaseMismatch, None, Source, "the incremental archive does not build on this full one";
    /// The state is the one that was asked for.
    NotExpected, Both, Source, "this is not the state that was asked for";
    /// The version is known.
    Version, None, Source, "an unknown snapshot version";
    /// The bank file can be read to its end.
    BankFile, None, Source, "the bank file makes no sense";
    /// Nothing follows its last field, and that is whole.
    BankFileEnd, Agave, Source, "the bank file does not end where it should";
    /// Its fields agree with each other.
    BankField, Both, Look, "the bank file contradicts itself";
    /// Storages and storage map agree.
    StorageMap, Both, Look, "storages and the bank file's storage map differ: Agave 4.0 and 4.1 refuse that";
    /// Every storage that the storage map names is there, and as long as it says.
    StorageMapGap, Both, Source, "a storage of the bank file's storage map is missing or too short";
    /// The status cache can be read to its end.
    StatusCache, None, Source, "the status cache makes no sense";
    /// Records end where their storage ends.
    RecordCutOff, Agave, Source, "a storage ends inside a record";
    /// Zero bytes do not follow the last record.
    StoragePadded, Agave, Recompress, "zero bytes follow the last record, which Firedancer takes for an account";
    /// Accounts hold at most 10 MiB.
    DataLength, None, Source, "a record claims more data than an account can hold";
    /// Executable is 0 or 1.
    Executable, None, Source, "a record's executable flag is neither 0 nor 1";
    /// A storage holds an account once.
    DuplicateAccount, None, Source, "an account is twice in one storage";
    /// The lamports of all accounts add up.
    Capitalization, None, Source, "the lamports of all accounts do not add up to the bank file's capitalization";
    /// The lattice hash of all accounts is the bank's.
    LatticeHash, Firedancer, Source, "the accounts are not those that the bank file's lattice hash covers";
    /// Every storage that a ledger's lists name is there.
    MissingStorage, None, Storage, "a storage is missing";
    /// The ledger is complete.
    Ledger, None, Ledger, "the ledger is not sound";
    /// A validator's notes to itself can be read.
    StartupHints, None, Hints, "the startup hints are damaged, which stops a boot of Agave 4.4 and later";
}

impl Rule {
    /// What it means that the rule is broken.
    pub fn what(self) -> &'static str {
        self.row().2
    }

    /// What keeps to the rule, where that is the same in every place.
    pub fn expected(self) -> Option<&'static str> {
        Some(match self {
            Self::FrameDamaged => "a frame that decodes",
            Self::CutOff => "whole frames, and a whole tar stream",
            Self::TrailingBytes => "nothing after the end of the tar stream",
            Self::Index => "an index and a seek table that fit the frames",
            Self::TarDamaged => "a tar header, or the end of the archive",
            Self::ForeignEntry => "only what a snapshot archive holds",
            Self::EntrySize => "at most 16 GiB, and nothing in a directory",
            Self::BankFile | Self::BankFileEnd => "a bank file that can be read to its last byte",
            Self::StatusCache => "a status cache that can be read to its last byte",
            Self::Ledger => "storages, lists and bank file that agree",
            _ => return None,
        })
    }

    /// What to do about it.
    pub fn remedy(self) -> &'static str {
        self.row().1.text()
    }

    /// Whether the client loads an archive that breaks the rule.
    pub fn is_tolerated_by(self, client: Client) -> bool {
        match self.row().0 {
            Loads::None => false,
            Loads::Both => true,
            Loads::Agave => client == Client::Agave,
            Loads::Firedancer => client == Client::Firedancer,
        }
    }
}
