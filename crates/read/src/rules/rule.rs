//! The table of rules (see docs/snapshot-format.md): each rule for archives and ledgers, the
//! clients that refuse what breaks it, and how this is known.

#![warn(missing_docs)]

use std::fmt;

use serde::Serialize;
use slotpress_base::{Error, ErrorKind};

use SnapshotClient::*;

/// A version of a validator client.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub enum SnapshotClient {
    #[serde(rename = "agave-4.2")]
    Agave42,
    #[serde(rename = "agave-4.3")]
    Agave43,
    #[serde(rename = "agave-4.4")]
    Agave44,
    #[serde(rename = "agave-4.5")]
    Agave45,
    /// Firedancer since September 2026.
    #[serde(rename = "firedancer")]
    Firedancer,
    /// Syndica's sig.
    #[serde(rename = "sig")]
    Sig,
}

impl SnapshotClient {
    /// All clients that are judged unless others are asked for, the oldest version of each first.
    pub const ALL: [Self; 5] = [Agave42, Agave43, Agave44, Agave45, Firedancer];

    /// All versions of Agave; "Agave" without a version means these.
    pub const AGAVE: [Self; 4] = [Agave42, Agave43, Agave44, Agave45];

    /// Clients that are judged only if they are asked for.
    pub const WHERE_ASKED: [Self; 1] = [Sig];

    /// True for all versions of Agave.
    pub fn is_agave(self) -> bool {
        Self::AGAVE.contains(&self)
    }
}

impl fmt::Display for SnapshotClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Agave42 => "Agave 4.2",
            Agave43 => "Agave 4.3",
            Agave44 => "Agave 4.4",
            Agave45 => "Agave 4.5",
            Firedancer => "Firedancer",
            Sig => "sig",
        })
    }
}

/// The checks, in the order in which reports list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Check {
    /// Frames: magic, sizes, checksums, windows, trailing bytes; index and seek table.
    Frames,
    /// Entries: names, kinds, order, duplicates, sizes, end of archive.
    Entries,
    /// Name of the archive against the bank file; the snapshot version.
    Name,
    /// Bank file and status cache to their last byte; storage map against storages.
    Bank,
    /// Records: lengths, flags, padding; no account twice in a storage.
    Records,
    /// Newest version of every account: capitalization, lattice hash, stakes, sysvars.
    State,
}

impl Check {
    /// All checks, in the order in which reports list them.
    pub const ALL: [Self; 6] = [Self::Frames, Self::Entries, Self::Name, Self::Bank, Self::Records, Self::State];

    /// Name in reports, in lowercase letters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Frames => "frames",
            Self::Entries => "entries",
            Self::Name => "name",
            Self::Bank => "bank",
            Self::Records => "records",
            Self::State => "state",
        }
    }
}

/// Sets of clients that refuse what breaks a rule.
const ALL: &[SnapshotClient] = &[Agave42, Agave43, Agave44, Agave45, Firedancer, Sig];
const ALL_BUT_SIG: &[SnapshotClient] = &SnapshotClient::ALL;
const NOBODY: &[SnapshotClient] = &[];
const FIREDANCER: &[SnapshotClient] = &[Firedancer];
const AGAVE: &[SnapshotClient] = &SnapshotClient::AGAVE;
const UP_TO_4_3: &[SnapshotClient] = &[Agave42, Agave43];
const UP_TO_4_4: &[SnapshotClient] = &[Agave42, Agave43, Agave44];
const FROM_4_3: &[SnapshotClient] = &[Agave43, Agave44, Agave45];
const FROM_4_5: &[SnapshotClient] = &[Agave45];
const SIG: &[SnapshotClient] = &[Sig];
const AGAVE_AND_SIG: &[SnapshotClient] = &[Agave42, Agave43, Agave44, Agave45, Sig];
const FIREDANCER_AND_SIG: &[SnapshotClient] = &[Firedancer, Sig];

const SEEN: &str = "Agave's own loader, 4.2.2, 4.4.0 and 4.5.0-alpha.4, on altered archives (tests/verify)";
const PAGE_BANK_SNAPSHOT: &str = "docs/snapshot-format.md#bank-snapshot";
const PAGE_BANK_FILE: &str = "docs/snapshot-format.md#bank-file";
const PAGE_ARCHIVE: &str = "docs/snapshot-format.md#archive";
const PAGE_FIREDANCER: &str = "docs/snapshot-format.md#firedancer";
const PAGE_STATUS_CACHE: &str = "docs/snapshot-format.md#status-cache";
const PAGE_FRAMES: &str = "docs/snapshot-format.md#frames";
const PAGE_RECORDS: &str = "docs/snapshot-format.md#records";
const PAGE_NAMES: &str = "docs/snapshot-format.md#names";
const PAGE_FIELDS: &str = "docs/snapshot-format.md#fields";
const SEEN_BY_BOTH: &str = "Agave's own loader, 4.2.2, 4.4.0 and 4.5.0-alpha.4, and Firedancer's, on altered archives";
const FD_SOURCE: &str = "read in Firedancer's loader, August 2026 (fd_snapin_tile.c)";
const SIG_SOURCE: &str = "read in sig's loader of 31 July 2026 (v2/lib/solana/snapshot.zig)";
const READ: &str = "read in solana-runtime 4.2.2, 4.4.0 and 4.5.0-alpha.4";
const OWN: &str = "no client checks it; slotpress writes it, or is asked to check it";

/// Advice for a broken rule.
const DOWNLOAD: &str = "download the archive again; if the result is the same, from another source";
const BASE: &str = "give the full archive that it builds on";
const SOURCE: &str = "do not use it; take the archive from another source";
const RECOMPRESS: &str = "recompress it: that makes an archive that all clients read";
const OTHER_MAKER: &str = "take Agave's archive, or one that Firedancer wrote since September 2026";
const OTHER_PAIR: &str = "take Agave's full archive, or Firedancer's incremental one";
const NAME: &str = "do not use it: it was renamed or made up; take it from another source";
const LEDGER: &str = "take the ledger from its source again, or restore it from an archive";
const STORAGE: &str = "name every accounts path, or restore the ledger from an archive";
const VERSION: &str = "load it with a version of Agave that knows it, or take an archive of an older node";
const LAYOUT: &str = "archive it, and restore the archive: that makes a ledger for Agave 4.2 to 4.5";
const FOR_SIG: &str = "take an archive that Agave 4.2 or later wrote";
const LOOK: &str = "look into it before you trust it";

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident, $check:ident, $severity:ident, $refused_by:ident, $remedy:ident, $source:ident, $what:expr;)*) => {
        /// A rule that a sound archive obeys.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Rule { $($(#[$doc])* $rule,)* }

        impl Rule {
            /// All rules, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$rule,)*];

            fn row(self) -> RuleRow {
                match self { $(Self::$rule => RuleRow {
                    check: Check::$check,
                    severity: Severity::$severity,
                    refused_by: $refused_by,
                    remedy: $remedy,
                    source: $source,
                    what: $what,
                },)* }
            }
        }
    };
}

/// What a broken rule means for what is made from an archive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Severity {
    /// Nothing may be made from it.
    Broken,
    /// The rule concerns only packing or naming, which unpacking corrects; the contents are sound.
    Packing,
    /// Archives or ledgers of a version of Agave normally break it. A violation counts only for
    /// clients that refuse it.
    OfVersion,
    /// Like `OfVersion`, for archives of Firedancer. No version of Agave loads the result.
    OfFiredancer,
}

/// Row of the table.
struct RuleRow {
    check: Check,
    severity: Severity,
    refused_by: &'static [SnapshotClient],
    remedy: &'static str,
    /// How the rule is known.
    source: &'static str,
    what: &'static str,
}

rules! {
    /// Frames decode, and their checksums are right.
    FrameDamaged, Frames, Broken, ALL, DOWNLOAD, SEEN, "a frame does not decode";
    /// The file does not end inside a frame, and the tar stream does not end inside an entry.
    CutOff, Frames, Broken, ALL, DOWNLOAD, SEEN, "the archive is cut off";
    /// Only frames that decode follow the end of the tar stream.
    TrailingBytes, Frames, Broken, FIREDANCER, RECOMPRESS, PAGE_FRAMES, "bytes that are not a zstd frame follow the last frame";
    /// No frame needs a window of more than 2^27 bytes.
    WindowRefused, Frames, Broken, ALL, RECOMPRESS, SEEN, "a frame needs a larger window than both clients give";
    /// No frame needs a window of more than 2^25 bytes.
    WindowLarge, Frames, Packing, FIREDANCER, RECOMPRESS, PAGE_FRAMES, "a frame needs a larger window than Firedancer gives";
    /// Index and seek table match the frames.
    Index, Frames, Packing, NOBODY, RECOMPRESS, OWN, "the archive's own index does not fit its frames";
    /// Frames match their hashes.
    FrameHash, Frames, Broken, NOBODY, DOWNLOAD, OWN, "a frame does not match its hash";
    /// Tar headers are of entries that a snapshot archive holds, and such as its writers make.
    TarDamaged, Entries, Broken, ALL, DOWNLOAD, SEEN, "the tar stream is not one of a snapshot";
    /// There is at most one version entry: Agave may read the file while a second entry replaces
    /// it.
    VersionTwice, Entries, Broken, ALL, SOURCE, SEEN, "there are two version entries";
    /// There is one status cache, one bank file, and no directory of a slot other than the bank
    /// file's.
    DuplicateEntry, Entries, Broken, FIREDANCER_AND_SIG, SOURCE, PAGE_ARCHIVE, "an entry occurs twice";
    /// All bank files are of one slot.
    TwoBanks, Entries, Broken, ALL, SOURCE, SEEN, "bank files of two slots";
    /// The full and the incremental archive together have one storage per slot.
    DuplicateStorage, Entries, Broken, AGAVE, SOURCE, SEEN, "two storages of one slot";
    /// Storages are of different slots. Firedancer wrote all of them under the bank's slot before
    /// September 2026.
    SharedSlot, Entries, OfFiredancer, AGAVE, OTHER_MAKER, PAGE_FIREDANCER, "all storages are of one slot, as Firedancer wrote them before September 2026";
    /// Storages are not empty.
    EmptyStorage, Entries, Broken, ALL_BUT_SIG, RECOMPRESS, SEEN, "an empty storage";
    /// The bank file comes before the accounts.
    Order, Entries, Packing, FIREDANCER_AND_SIG, SOURCE, PAGE_ARCHIVE, "an order of entries that Firedancer does not read";
    /// Version, status cache and bank file are present.
    MissingEntry, Entries, Broken, ALL, SOURCE, SEEN, "an entry that every archive holds is missing";
    /// Slots of storages are below 2^32.
    LargeSlot, Entries, Broken, FIREDANCER, LOOK, PAGE_ARCHIVE, "a slot of 2^32 or above, on which Firedancer aborts";
    /// Storages are not newer than the bank.
    StorageTooNew, Entries, Broken, AGAVE_AND_SIG, SOURCE, SEEN, "a storage is newer than the bank";
    /// Storages of an incremental archive are newer than its base.
    StorageTooOld, Entries, Broken, AGAVE, SOURCE, SEEN, "a storage is not newer than the base slot";
    /// The contents of all entries take at most 4 TiB.
    TooLarge, Entries, Broken, AGAVE, SOURCE, PAGE_ARCHIVE, "the archive is larger than Agave unpacks";
    /// At least 1,024 zero bytes end the tar stream.
    EndMissing, Entries, Broken, FIREDANCER, DOWNLOAD, PAGE_ARCHIVE, "the tar stream lacks its end of 1,024 zero bytes";
    /// At most 1,024 zero bytes end the tar stream.
    EndLong, Entries, Packing, FIREDANCER, RECOMPRESS, PAGE_ARCHIVE, "more zero bytes than 1,024 end the tar stream";
    /// Only zero bytes follow the end of the tar stream.
    JunkAfterEnd, Entries, Broken, FIREDANCER, RECOMPRESS, PAGE_ARCHIVE, "something follows the end of the tar stream";
    /// The file is named like a snapshot archive.
    NameUnknown, Name, Packing, ALL, NAME, SEEN, "the file does not have the name of a snapshot archive";
    /// The slot of an incremental archive is above its base slot.
    BaseIsSlot, Name, Broken, AGAVE, SOURCE, PAGE_FIREDANCER, "an incremental archive of the slot of its full archive";
    /// The archive is zstd, not lz4.
    Lz4, Name, Packing, FIREDANCER_AND_SIG, RECOMPRESS, PAGE_NAMES, "an lz4 archive, which Firedancer does not read";
    /// The archive is zstd, not a plain tar.
    Plain, Name, Packing, AGAVE_AND_SIG, RECOMPRESS, PAGE_NAMES, "a plain tar, which Agave does not read";
    /// The archive is zstd, not bzip2 or gzip.
    OldCompression, Name, Packing, ALL, RECOMPRESS, PAGE_NAMES, "compressed in a way that clients no longer read";
    /// The file name extension matches the compression.
    ExtensionWrong, Name, Packing, ALL, NAME, SEEN, "the file is not compressed as its name says";
    /// Slot and hash in the name are those of the bank file.
    NameMismatch, Name, Broken, ALL, NAME, SEEN, "the archive does not match its name";
    /// The incremental archive builds on the full one.
    BaseMismatch, Name, Broken, ALL, BASE, SEEN, "the incremental archive does not build on this full one";
    /// Slot and hash of the state are those that the caller expects.
    NotExpected, Name, Broken, NOBODY, SOURCE, OWN, "the state is not the expected one";
    /// The root over the frame hashes is the one that the caller expects.
    RootNotExpected, Frames, Broken, NOBODY, SOURCE, OWN, "this is not the archive that was asked for";
    /// The snapshot version is known.
    Version, Name, Broken, ALL, SOURCE, SEEN, "an unknown snapshot version";
    /// The version entry holds nothing but the version.
    VersionLength, Name, Broken, FIREDANCER, SOURCE, PAGE_FIREDANCER, "the version is surrounded by white space";
    /// The bank file can be read to its end.
    BankFile, Bank, Broken, ALL, SOURCE, SEEN, "the bank file is invalid";
    /// After the lattice hash, the bank file holds at most a whole block id.
    BankFileEnd, Bank, Broken, FIREDANCER, SOURCE, PAGE_BANK_FILE, "the bank file does not end where it should";
    /// Fields of the bank file agree with each other.
    BankField, Bank, Broken, NOBODY, LOOK, PAGE_BANK_FILE, "the bank file contradicts itself";
    /// Fields of the epoch schedule agree with each other.
    EpochSchedule, Bank, Broken, ALL, SOURCE, SEEN_BY_BOTH, "the epoch schedule contradicts itself";
    /// The unused epoch stakes field is empty.
    UnusedEpochStakes, Bank, Broken, ALL, SOURCE, SEEN_BY_BOTH, "the unused epoch stakes are not empty";
    /// The epoch stakes cover all epochs from the bank's to the last whose leaders are known, and
    /// none after it.
    EpochStakes, Bank, Broken, ALL, SOURCE, SEEN_BY_BOTH, "the epoch stakes lack an epoch, or hold a later one";
    /// The flag in the unused rent collector is 0 or 1.
    RentCollector, Bank, Broken, AGAVE, SOURCE, SEEN, "the flag in the unused rent collector is neither 0 nor 1";
    /// Every vote account in the newest epoch stakes has stake.
    NoStake, Bank, OfVersion, FIREDANCER, VERSION, PAGE_FIELDS, "a vote account without stake is in the newest epoch stakes, as Agave writes them without admission tickets";
    /// An epoch has at most 2,000 vote accounts: the limit that admission tickets set.
    VoteAccountLimit, Bank, OfVersion, FIREDANCER, VERSION, PAGE_FIELDS, "the epoch stakes hold more vote accounts than Firedancer takes, as Agave writes them without admission tickets";
    /// Numbers in bank file and status cache are within Firedancer's limits.
    FiredancerLimit, Bank, Broken, FIREDANCER, SOURCE, PAGE_FIELDS, "a number in bank file or status cache is beyond what Firedancer takes";
    /// The highest tick is the last one of the bank's slot.
    MaxTickHeight, Bank, Broken, AGAVE, SOURCE, SEEN, "the bank file's highest tick is not the last of its slot";
    /// A tick has at least 2 hashes, unless the chain has no fixed number of them.
    HashesPerTick, Bank, Broken, AGAVE, SOURCE, READ, "a tick has fewer hashes than Agave starts with";
    /// If a chain has no fixed number of hashes per tick, its bank file states none.
    NoHashesPerTick, Bank, OfFiredancer, AGAVE, OTHER_MAKER, SEEN, "the bank file says 0 hashes per tick, as Firedancer writes it where the chain has no number";
    /// The bank hash is the hash of its parts.
    BankHash, Bank, Broken, ALL, SOURCE, SEEN, "the bank hash is not the hash of its parts";
    /// The bank file holds stakes.
    NoStakes, Bank, OfFiredancer, AGAVE, OTHER_MAKER, PAGE_FIREDANCER, "the bank file holds no stakes, as Firedancer writes it";
    /// The bank file's leader is the one that follows from the epoch stakes for its slot.
    Leader, Bank, Broken, AGAVE, SOURCE, SEEN, "the bank file names another leader than the epoch stakes give its slot";
    /// The vote accounts in the stakes can be parsed.
    InvalidVoteAccount, Bank, Broken, FROM_4_3, SOURCE, SEEN, "the stakes hold a vote account that Agave cannot read";
    /// The status cache can be read to its end.
    StatusCache, Bank, Broken, ALL, SOURCE, SEEN, "the status cache is invalid";
    /// The status cache holds at least one blockhash.
    NoTransactions, Bank, OfVersion, FIREDANCER, VERSION, FD_SOURCE, "the status cache holds no blockhash, as Agave writes it if there were no transactions";
    /// The slots of the status cache are the newest ones of the slot history.
    CachedSlots, State, Broken, ALL, SOURCE, SEEN_BY_BOTH, "the slots of the status cache are not the newest that the SlotHistory sysvar knows";
    /// The status cache holds all slots of the slot history, or its newest 300.
    CachedSlotsGap, State, Broken, ALL, SOURCE, SEEN, "the status cache lacks older slots that the SlotHistory sysvar knows";
    /// The status cache holds more than one slot, if the bank file holds no stakes: Firedancer wrote
    /// only the newest slot before September 2026.
    FewCachedSlots, Bank, Broken, ALL, OTHER_MAKER, PAGE_FIREDANCER, "the status cache holds one slot alone, which is enough only for Firedancer of before September 2026";
    /// No storage ends inside the data of a record, and only zero bytes follow its last record.
    RecordCutOff, Records, Broken, FIREDANCER_AND_SIG, SOURCE, PAGE_RECORDS, "a storage ends inside a record";
    /// No storage ends inside the header of a record.
    StorageTail, Records, Broken, SIG, LOOK, PAGE_FIREDANCER, "fewer bytes than a record takes follow the last record of a storage";
    /// No zero bytes follow the last record of a storage.
    StoragePadded, Records, Broken, FIREDANCER_AND_SIG, SOURCE, PAGE_RECORDS, "zero bytes follow the last record, which Firedancer takes for an account";
    /// Accounts hold at most 10 MiB.
    DataLength, Records, Broken, ALL, SOURCE, SEEN, "a record claims more data than an account can hold";
    /// The executable flag of a record is 0 or 1.
    Executable, Records, Broken, ALL, SOURCE, SEEN, "a record's executable flag is neither 0 nor 1";
    /// A storage holds each account once.
    DuplicateAccount, Records, Broken, ALL, SOURCE, SEEN, "an account occurs twice in one storage";
    /// The lamports of all accounts add up to the capitalization.
    Capitalization, State, Broken, ALL, SOURCE, SEEN, "the lamports of all accounts do not add up to the bank file's capitalization";
    /// The lattice hash of all accounts equals that in the bank file.
    LatticeHash, State, Broken, AGAVE, SOURCE, SEEN, "the accounts are not those that the bank file's lattice hash covers";
    /// The vote accounts in the stakes equal those of the state.
    StakesVoteAccount, State, Broken, AGAVE, SOURCE, SEEN, "the bank file's stakes hold another vote account than the state";
    /// Rent epochs of vote accounts in the stakes equal those of the state. No hash covers them.
    StakesRentEpoch, State, Broken, AGAVE, OTHER_PAIR, SEEN, "a vote account has another rent epoch than in the bank file's stakes";
    /// Like `StakesRentEpoch`, if one of the archives comes from Firedancer, which keeps no rent
    /// epochs.
    NoRentEpoch, State, OfFiredancer, AGAVE, OTHER_PAIR, SEEN, "a vote account does not have the rent epoch that the bank file's stakes have, because Firedancer keeps none";
    /// The last 8 bytes of delegations, which used to be a rate, equal those of the state.
    StakesRate, State, Broken, UP_TO_4_3, SOURCE, SEEN, "a delegation in the bank file's stakes has another rate than in the state";
    /// The stakes hold the vote account of every delegated stake account.
    StakesVoter, State, Broken, FROM_4_5, SOURCE, SEEN, "the bank file's stakes lack the vote account of a stake account";
    /// The delegations in the stakes equal those of the state.
    StakesDelegation, State, Broken, UP_TO_4_4, SOURCE, SEEN, "the bank file's stakes hold another delegation than the state";
    /// The state holds the SlotHistory sysvar.
    SlotHistory, State, Broken, ALL, SOURCE, PAGE_STATUS_CACHE, "the state holds no SlotHistory sysvar that can be read";
    /// Slots are as long as the active features for shorter slots require.
    SlotTime, State, Broken, AGAVE, SOURCE, SEEN, "the bank file's slots are not as long as the features for shorter slots require";
    /// Every storage in a ledger's lists is present.
    MissingStorage, Entries, Broken, ALL, STORAGE, PAGE_BANK_SNAPSHOT, "a storage is missing";
    /// The ledger is complete, and its files agree with each other.
    Ledger, Entries, Broken, ALL, LEDGER, PAGE_BANK_SNAPSHOT, "the ledger is damaged";
    /// All Agave versions know the transaction errors in the status cache.
    NewerErrors, Bank, OfVersion, UP_TO_4_3, VERSION, PAGE_STATUS_CACHE, "the status cache holds an error that Agave knows from 4.4 on";
    /// The ledger does not use hard links to its storages (fastboot 2).
    HardLinks, Entries, OfVersion, FROM_4_5, LAYOUT, READ, "a ledger of Agave 3.1 to 4.1, whose storages are found by hard links";
    /// The ledger does not use a storages list that distinguishes append vecs from split files
    /// (fastboot 4 and 5).
    TaggedList, Entries, OfVersion, UP_TO_4_4, LAYOUT, READ, "a ledger of Agave 4.5, whose list distinguishes kinds of storages";
    /// The version is the first file, and bank file and status cache come before the accounts.
    VersionFirst, Entries, OfVersion, SIG, FOR_SIG, SIG_SOURCE, "an order of entries that sig does not read";
    /// The bank file holds a block id.
    BlockId, Bank, OfVersion, SIG, FOR_SIG, SIG_SOURCE, "the bank file holds no block id";
    /// Records hold zeros in place of a hash.
    StoredHash, Records, OfVersion, SIG, FOR_SIG, SIG_SOURCE, "a record holds a hash, as Agave wrote it before 1.18";
    /// Some client loads the archive. Each broken rule may be normal for some client, but not all
    /// together.
    NoClient, Bank, Broken, ALL, OTHER_MAKER, OWN, "no client loads it";
}

impl Rule {
    /// Description of an archive that breaks the rule.
    pub fn what(self) -> &'static str {
        self.row().what
    }

    /// Why the client refuses an archive that breaks the rule. If the client loads some of these
    /// archives, the text says which.
    pub fn why(self, client: SnapshotClient) -> &'static str {
        match (self, client) {
            (Self::EndLong, Firedancer) => {
                "more zero bytes than 1,024 end the tar stream; it loads up to 20 blocks if one of its buffers holds them all"
            }
            (Self::DuplicateAccount, Firedancer) => {
                "an account occurs twice in one storage; it loads that, and takes the later, if they are far apart"
            }
            _ => self.what(),
        }
    }

    /// What the rule expects, if that is the same for every archive.
    pub fn expected(self) -> Option<&'static str> {
        Some(match self {
            Self::FrameDamaged => "a frame that decodes",
            Self::CutOff => "whole frames, and a whole tar stream",
            Self::TrailingBytes => "nothing after the end of the tar stream",
            Self::Index => "an index and a seek table that fit the frames",
            Self::TarDamaged => "a tar header, or the end of the archive",
            Self::BankFile | Self::BankFileEnd => "a bank file that can be read to its last byte",
            Self::StatusCache => "a status cache that can be read to its last byte",
            Self::Ledger => "storages, lists and bank file that agree",
            Self::NoClient => "what one of the clients loads",
            _ => return None,
        })
    }

    /// The check that finds the rule broken.
    pub fn check(self) -> Check {
        self.row().check
    }

    /// Advice for the operator.
    pub fn remedy(self) -> &'static str {
        self.row().remedy
    }

    /// How the rule is known: from a section of docs/snapshot-format.md, the clients' source code,
    /// or experiments with the clients themselves.
    pub fn source(self) -> &'static str {
        self.row().source
    }

    /// True if the client loads an archive that breaks the rule.
    pub fn is_tolerated_by(self, client: SnapshotClient) -> bool {
        !self.row().refused_by.contains(&client)
    }

    /// True if archives or ledgers of Firedancer or of a version of Agave normally break the rule.
    /// A violation then counts only for clients that refuse it.
    pub fn is_of_version(self) -> bool {
        matches!(self.row().severity, Severity::OfVersion | Severity::OfFiredancer)
    }

    /// True if sound archives of Firedancer break the rule, and no version of Agave loads an archive
    /// that does.
    pub fn is_unsupported(self) -> bool {
        self == Self::SharedSlot || self.is_of_newest_bank()
    }

    /// Error for an archive that breaks the rule, if the rule [is one](Self::is_unsupported) of
    /// those that sound archives of Firedancer break.
    pub fn unsupported(self) -> Error {
        let message = format!("only Firedancer loads it: {}", self.what());
        Error::new(ErrorKind::Unsupported, message).with_hint(self.remedy())
    }

    /// True if the full archive of a pair may break the rule, because clients take the bank from
    /// the incremental one.
    pub fn is_of_newest_bank(self) -> bool {
        matches!(self, Self::NoStakes | Self::NoHashesPerTick | Self::FewCachedSlots)
    }

    /// True if the rule concerns only packing or naming, which unpacking corrects; the contents are
    /// sound.
    pub fn is_of_packing(self) -> bool {
        self.row().severity == Severity::Packing
    }

    /// True if nothing may be made from an archive that breaks the rule. Packing and what is normal
    /// for versions of Agave are not refused.
    pub fn is_refused(self) -> bool {
        matches!(self.row().severity, Severity::Broken | Severity::OfFiredancer)
    }

    /// True if no other archive may be made from an archive that breaks the rule. Unlike
    /// [`Self::is_refused`], tolerates large windows and empty storages, because the new archive does
    /// not have them, and what Firedancer loads today; and refuses a wrong order of entries, because
    /// the new archive keeps it.
    pub fn is_refused_of_source(self) -> bool {
        use Rule::*;
        let is_tolerated = matches!(self, WindowRefused | EmptyStorage | NoStakes | NoHashesPerTick | NoRentEpoch);
        self.is_refused() && !is_tolerated || self == Order
    }

    /// Restriction of a client that loads an archive which breaks the rule. That of Agave was
    /// observed with Agave's own archiver.
    pub fn note(self, client: SnapshotClient) -> Option<&'static str> {
        match (self, client) {
            (Self::StoragePadded, Agave44) => Some("it cannot archive a storage that zero bytes pad"),
            (Self::DuplicateStorage | Self::StorageTooNew | Self::StorageTooOld, Firedancer) => {
                Some("no validator writes such storages, and their records may replace those of others")
            }
            (Self::BaseIsSlot, Firedancer) => {
                Some("no validator writes an incremental archive of the slot of its full one")
            }
            (Self::StorageTail, Firedancer) => Some("bytes that are no record may have been part of one"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loading(rule: Rule) -> Vec<SnapshotClient> {
        SnapshotClient::ALL.into_iter().filter(|client| rule.is_tolerated_by(*client)).collect()
    }

    #[test]
    fn versions_differ() {
        assert_eq!(loading(Rule::NewerErrors), [Agave44, Agave45, Firedancer]);
        assert_eq!(loading(Rule::HardLinks), [Agave42, Agave43, Agave44, Firedancer]);
        assert_eq!(loading(Rule::TaggedList), [Agave45, Firedancer]);
        assert_eq!(loading(Rule::FiredancerLimit), SnapshotClient::AGAVE);
        assert_eq!(loading(Rule::VersionLength), SnapshotClient::AGAVE);
        assert_eq!(loading(Rule::DuplicateStorage), [Firedancer]);
        assert_eq!(loading(Rule::InvalidVoteAccount), [Agave42, Firedancer]);
        assert_eq!(loading(Rule::StakesDelegation), [Agave45, Firedancer]);
        assert!(loading(Rule::BankHash).is_empty());
        assert!(loading(Rule::EmptyStorage).is_empty());
    }
}
