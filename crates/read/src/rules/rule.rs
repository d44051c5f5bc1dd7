//! The table of rules for archives and ledgers (see docs/snapshot-format.md). For each rule, it names the
//! clients that refuse an archive that breaks the rule, and says how this is known.

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
    /// Sig, the client of Syndica.
    #[serde(rename = "sig")]
    Sig,
}

impl SnapshotClient {
    /// All clients that are judged without being requested, the oldest version of each first.
    pub const JUDGED_BY_DEFAULT: [Self; 5] = [Agave42, Agave43, Agave44, Agave45, Firedancer];

    /// All versions of Agave; "Agave" without a version means these.
    pub const AGAVE: [Self; 4] = [Agave42, Agave43, Agave44, Agave45];

    /// Clients that are judged only on request ([`VerifyOptions::clients`](crate::VerifyOptions::clients)).
    pub const JUDGED_ON_REQUEST: [Self; 1] = [Sig];

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
    /// Frames: magic, sizes, checksums, windows, trailing bytes; index, seek table, frame hashes and root.
    Frames,
    /// Entries: names, kinds, order, duplicates, sizes, end of archive.
    Entries,
    /// Name of the archive, compared with the bank file; its compression; the snapshot version; the base of
    /// an incremental archive; the expected slot and hash.
    Name,
    /// Bank file and status cache, to their last byte: whether their fields agree, and whether clients accept
    /// them.
    Bank,
    /// Records: lengths, flags, padding; no account twice in a storage.
    Records,
    /// The newest versions of all accounts: capitalization, lattice hash, stakes, sysvars.
    State,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Check {
    /// All checks, in the order in which reports list them.
    pub const ALL: [Self; 6] = [Self::Frames, Self::Entries, Self::Name, Self::Bank, Self::Records, Self::State];

    /// Returns the name in reports, in lowercase letters.
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

const ALL: &[SnapshotClient] = &[Agave42, Agave43, Agave44, Agave45, Firedancer, Sig];
const ALL_BUT_SIG: &[SnapshotClient] = &SnapshotClient::JUDGED_BY_DEFAULT;
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

const DOWNLOAD: &str = "download the archive again; if that does not help, from another source";
const BASE: &str = "pass the full archive that it builds on";
const SOURCE: &str = "do not use it; get the archive from another source";
const RECOMPRESS: &str = "recompress it: all clients read the result";
const OTHER_MAKER: &str = "use Agave's archive, or one that Firedancer wrote since September 2026";
const OTHER_PAIR: &str = "use Agave's full archive, or Firedancer's incremental one";
const NAME: &str = "do not use it: it was renamed or made up; get it from another source";
const LEDGER: &str = "copy the ledger from its source again, or restore it from an archive";
const STORAGE: &str = "name every accounts path, or restore the ledger from an archive";
const VERSION: &str = "load it with a version of Agave that knows it, or use an archive of an older node";
const LAYOUT: &str = "archive it, and restore the archive: the result is a ledger for Agave 4.2 to 4.5";
const FOR_SIG: &str = "use an archive that Agave 4.2 or later wrote";
const LOOK: &str = "look into it before you trust it";

macro_rules! rules {
    ($($rule:ident, $check:ident, $severity:ident, $refused_by:ident, $remedy:ident, $evidence:ident, $description:expr;)*) => {
        /// A rule that a valid archive obeys.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "kebab-case")]
        #[non_exhaustive]
        pub enum Rule {
            $(#[doc = concat!("Failure: ", $description, ".")] $rule,)*
        }

        impl Rule {
            /// All rules, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$rule,)*];

            fn row(self) -> RuleRow {
                match self { $(Self::$rule => RuleRow {
                    check: Check::$check,
                    severity: Severity::$severity,
                    refused_by: $refused_by,
                    remedy: $remedy,
                    evidence: $evidence,
                    description: $description,
                },)* }
            }
        }
    };
}

/// Consequence of a broken rule for a command that uses the archive as its input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Severity {
    /// The archive must not be used as input.
    Broken,
    /// The rule concerns only packing or naming, which unpacking corrects; the contents are valid.
    Packing,
    /// Archives or ledgers of a version of Agave normally break the rule. This matters only for clients that
    /// refuse the archive.
    VersionSpecific,
    /// Like `VersionSpecific`, for archives of Firedancer. No version of Agave loads such an archive.
    FiredancerSpecific,
}

struct RuleRow {
    check: Check,
    severity: Severity,
    refused_by: &'static [SnapshotClient],
    remedy: &'static str,
    evidence: &'static str,
    description: &'static str,
}

// Each row: rule, check, severity, clients that refuse the archive, remedy, evidence, description of a failure.
rules! {
    FrameDamaged, Frames, Broken, ALL, DOWNLOAD, SEEN, "a frame does not decode";
    CutOff, Frames, Broken, ALL, DOWNLOAD, SEEN, "the archive is truncated";
    TrailingBytes, Frames, Broken, FIREDANCER, RECOMPRESS, PAGE_FRAMES, "bytes that are not a zstd frame follow the last frame";
    WindowRefused, Frames, Broken, ALL, RECOMPRESS, SEEN, "a frame needs a larger window than any client allows";
    WindowLarge, Frames, Packing, FIREDANCER, RECOMPRESS, PAGE_FRAMES, "a frame needs a larger window than Firedancer allows";
    Index, Frames, Packing, NOBODY, RECOMPRESS, OWN, "the archive's own index does not fit its frames";
    FrameHash, Frames, Broken, NOBODY, DOWNLOAD, OWN, "a frame does not match its hash";
    TarDamaged, Entries, Broken, ALL, DOWNLOAD, SEEN, "the tar stream is not one of a snapshot";
    // Agave may read the file of the first entry while the second entry replaces it.
    VersionTwice, Entries, Broken, ALL, SOURCE, SEEN, "there are two version entries";
    // Also broken if the slots of the directory and of the bank file differ.
    DuplicateEntry, Entries, Broken, FIREDANCER_AND_SIG, SOURCE, PAGE_ARCHIVE, "an entry occurs twice";
    TwoBanks, Entries, Broken, ALL, SOURCE, SEEN, "bank files of two slots";
    DuplicateStorage, Entries, Broken, AGAVE, SOURCE, SEEN, "two storages of one slot";
    SharedSlot, Entries, FiredancerSpecific, AGAVE, OTHER_MAKER, PAGE_FIREDANCER, "all storages are of one slot, as Firedancer wrote them before September 2026";
    EmptyStorage, Entries, Broken, ALL_BUT_SIG, RECOMPRESS, SEEN, "an empty storage";
    Order, Entries, Packing, FIREDANCER_AND_SIG, SOURCE, PAGE_ARCHIVE, "an order of entries that Firedancer does not read";
    MissingEntry, Entries, Broken, ALL, SOURCE, SEEN, "an entry that every archive holds is missing";
    LargeSlot, Entries, Broken, FIREDANCER, LOOK, PAGE_ARCHIVE, "a slot of 2^32 or above, on which Firedancer aborts";
    StorageTooNew, Entries, Broken, AGAVE_AND_SIG, SOURCE, SEEN, "a storage is newer than the bank";
    StorageTooOld, Entries, Broken, AGAVE, SOURCE, SEEN, "a storage is not newer than the base slot";
    TooLarge, Entries, Broken, AGAVE, SOURCE, PAGE_ARCHIVE, "the archive is larger than Agave unpacks";
    EndMissing, Entries, Broken, FIREDANCER, DOWNLOAD, PAGE_ARCHIVE, "the tar stream lacks its end of 1,024 zero bytes";
    EndLong, Entries, Packing, FIREDANCER, RECOMPRESS, PAGE_ARCHIVE, "more zero bytes than 1,024 end the tar stream";
    JunkAfterEnd, Entries, Broken, FIREDANCER, RECOMPRESS, PAGE_ARCHIVE, "something follows the end of the tar stream";
    NameUnknown, Name, Packing, ALL, NAME, SEEN, "the file does not have the name of a snapshot archive";
    BaseIsSlot, Name, Broken, AGAVE, SOURCE, PAGE_FIREDANCER, "an incremental archive of the slot of its full archive";
    Lz4, Name, Packing, FIREDANCER_AND_SIG, RECOMPRESS, PAGE_NAMES, "an lz4 archive, which Firedancer does not read";
    Plain, Name, Packing, AGAVE_AND_SIG, RECOMPRESS, PAGE_NAMES, "a plain tar, which Agave does not read";
    OldCompression, Name, Packing, ALL, RECOMPRESS, PAGE_NAMES, "compressed in a way that clients no longer read";
    ExtensionWrong, Name, Packing, ALL, NAME, SEEN, "the file is not compressed as its name says";
    NameMismatch, Name, Broken, ALL, NAME, SEEN, "the archive does not match its name";
    BaseMismatch, Name, Broken, ALL, BASE, SEEN, "the incremental archive does not build on this full one";
    NotExpected, Name, Broken, NOBODY, SOURCE, OWN, "the state is not the expected one";
    RootNotExpected, Frames, Broken, NOBODY, SOURCE, OWN, "this is not the archive that was asked for";
    Version, Name, Broken, ALL, SOURCE, SEEN, "an unknown snapshot version";
    VersionLength, Name, Broken, FIREDANCER, SOURCE, PAGE_FIREDANCER, "the version is surrounded by white space";
    BankFile, Bank, Broken, ALL, SOURCE, SEEN, "the bank file is invalid";
    BankFileEnd, Bank, Broken, FIREDANCER, SOURCE, PAGE_BANK_FILE, "the bank file does not end where it should";
    BankField, Bank, Broken, NOBODY, LOOK, PAGE_BANK_FILE, "the bank file contradicts itself";
    NoStake, Bank, VersionSpecific, FIREDANCER, VERSION, PAGE_FIELDS, "a vote account without stake is in the newest epoch stakes, as Agave writes them without admission tickets";
    VoteAccountLimit, Bank, VersionSpecific, FIREDANCER, VERSION, PAGE_FIELDS, "the epoch stakes hold more vote accounts than Firedancer accepts, as Agave writes them without admission tickets";
    FiredancerLimit, Bank, Broken, FIREDANCER, SOURCE, PAGE_FIELDS, "a number in bank file or status cache is beyond what Firedancer accepts";
    MaxTickHeight, Bank, Broken, AGAVE, SOURCE, SEEN, "the bank file's highest tick is not the last of its slot";
    HashesPerTick, Bank, Broken, AGAVE, SOURCE, READ, "a tick has fewer hashes than Agave accepts";
    NoHashesPerTick, Bank, FiredancerSpecific, AGAVE, OTHER_MAKER, SEEN, "the bank file says 0 hashes per tick, as Firedancer writes it where the chain has no number";
    BankHash, Bank, Broken, ALL, SOURCE, SEEN, "the bank hash is not the hash of its parts";
    NoStakes, Bank, FiredancerSpecific, AGAVE, OTHER_MAKER, PAGE_FIREDANCER, "the bank file holds no stakes, as Firedancer writes it";
    Leader, Bank, Broken, AGAVE, SOURCE, SEEN, "the bank file names a different leader than the epoch stakes assign to its slot";
    InvalidVoteAccount, Bank, Broken, FROM_4_3, SOURCE, SEEN, "the stakes hold a vote account that Agave cannot read";
    StatusCache, Bank, Broken, ALL, SOURCE, SEEN, "the status cache is invalid";
    NoTransactions, Bank, VersionSpecific, FIREDANCER, VERSION, FD_SOURCE, "the status cache holds no blockhash, as Agave writes it if there were no transactions";
    CachedSlots, State, Broken, ALL, SOURCE, SEEN_BY_BOTH, "the slots of the status cache are not the newest that the SlotHistory sysvar knows";
    CachedSlotsGap, State, Broken, ALL, SOURCE, SEEN, "the status cache lacks older slots that the SlotHistory sysvar knows";
    // Judged only if the bank file holds no stakes, which means that Firedancer wrote it.
    FewCachedSlots, Bank, Broken, ALL, OTHER_MAKER, PAGE_FIREDANCER, "the status cache holds only one slot, which is enough only for Firedancer from before September 2026";
    RecordCutOff, Records, Broken, FIREDANCER_AND_SIG, SOURCE, PAGE_RECORDS, "a storage ends inside a record";
    StorageTail, Records, Broken, SIG, LOOK, PAGE_FIREDANCER, "fewer bytes than a record takes follow the last record of a storage";
    StoragePadded, Records, Broken, FIREDANCER_AND_SIG, SOURCE, PAGE_RECORDS, "zero bytes follow the last record, which Firedancer mistakes for an account";
    DataLength, Records, Broken, ALL, SOURCE, SEEN, "a record claims more data than an account can hold";
    Executable, Records, Broken, ALL, SOURCE, SEEN, "a record's executable flag is neither 0 nor 1";
    DuplicateAccount, Records, Broken, ALL, SOURCE, SEEN, "an account occurs twice in one storage";
    Capitalization, State, Broken, ALL, SOURCE, SEEN, "the lamports of all accounts do not add up to the bank file's capitalization";
    LatticeHash, State, Broken, AGAVE, SOURCE, SEEN, "the accounts are not those that the bank file's lattice hash covers";
    StakesVoteAccount, State, Broken, AGAVE, SOURCE, SEEN, "the bank file's stakes hold a different vote account than the state";
    StakesRentEpoch, State, Broken, AGAVE, OTHER_PAIR, SEEN, "a vote account has a different rent epoch than in the bank file's stakes";
    // Judged instead of `StakesRentEpoch` if one of the archives comes from Firedancer.
    NoRentEpoch, State, FiredancerSpecific, AGAVE, OTHER_PAIR, SEEN, "a vote account does not have the rent epoch that the bank file's stakes have, because Firedancer keeps none";
    StakesRate, State, Broken, UP_TO_4_3, SOURCE, SEEN, "a delegation in the bank file's stakes has a different rate than in the state";
    StakesVoter, State, Broken, FROM_4_5, SOURCE, SEEN, "the bank file's stakes lack the vote account of a stake account";
    StakesDelegation, State, Broken, UP_TO_4_4, SOURCE, SEEN, "the bank file's stakes hold a different delegation than the state";
    SlotHistory, State, Broken, ALL, SOURCE, PAGE_STATUS_CACHE, "the state holds no SlotHistory sysvar that can be read";
    SlotTime, State, Broken, AGAVE, SOURCE, SEEN, "the bank file's slots are not as long as the features for shorter slots require";
    MissingStorage, Entries, Broken, ALL, STORAGE, PAGE_BANK_SNAPSHOT, "a storage is missing";
    Ledger, Entries, Broken, ALL, LEDGER, PAGE_BANK_SNAPSHOT, "the ledger is damaged";
    NewerErrors, Bank, VersionSpecific, UP_TO_4_3, VERSION, PAGE_STATUS_CACHE, "the status cache holds an error that Agave knows from 4.4 onwards";
    HardLinks, Entries, VersionSpecific, FROM_4_5, LAYOUT, READ, "a ledger of Agave 3.1 to 4.1, whose storages are found by hard links";
    // The kinds are append vecs and split storages (fastboot 4 and 5).
    TaggedList, Entries, VersionSpecific, UP_TO_4_4, LAYOUT, READ, "a ledger of Agave 4.5, whose list distinguishes kinds of storages";
    VersionFirst, Entries, VersionSpecific, SIG, FOR_SIG, SIG_SOURCE, "an order of entries that sig does not read";
    BlockId, Bank, VersionSpecific, SIG, FOR_SIG, SIG_SOURCE, "the bank file holds no block id";
    StoredHash, Records, VersionSpecific, SIG, FOR_SIG, SIG_SOURCE, "a record holds a hash, as Agave wrote it before 1.18";
    // At least one client loads the archive. Each broken rule may be normal for one client, while no client
    // tolerates all of them.
    NoClient, Bank, Broken, ALL, OTHER_MAKER, OWN, "no client loads it";
}

impl Rule {
    /// Describes the fault of an archive that breaks the rule.
    pub fn description(self) -> &'static str {
        self.row().description
    }

    /// Returns the reason why the client refuses an archive that breaks the rule. If the client
    /// loads some of these archives, the text says which.
    pub fn refusal_reason(self, client: SnapshotClient) -> &'static str {
        match (self, client) {
            (Self::EndLong, Firedancer) => {
                "more zero bytes than 1,024 end the tar stream; it loads up to 20 blocks if one of its buffers holds them all"
            }
            (Self::DuplicateAccount, Firedancer) => {
                "an account occurs twice in one storage; if the records are far apart, it loads the archive and uses the later one"
            }
            _ => self.description(),
        }
    }

    /// Returns what the rule expects, if that is the same for every archive.
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

    /// Returns the check that finds the rule broken.
    pub fn check(self) -> Check {
        self.row().check
    }

    /// Returns advice for the operator.
    pub fn remedy(self) -> &'static str {
        self.row().remedy
    }

    /// Returns the evidence for the rule: a section of docs/snapshot-format.md, the clients' source
    /// code, or experiments with the clients themselves.
    pub fn evidence(self) -> &'static str {
        self.row().evidence
    }

    /// True if the client loads an archive that breaks the rule.
    pub fn is_tolerated_by(self, client: SnapshotClient) -> bool {
        !self.row().refused_by.contains(&client)
    }

    /// True if archives or ledgers of Firedancer or of a version of Agave normally break the rule. This then
    /// matters only for clients that refuse the archive.
    pub fn is_version_specific(self) -> bool {
        matches!(self.row().severity, Severity::VersionSpecific | Severity::FiredancerSpecific)
    }

    /// True if valid archives of some version of Firedancer break the rule, and no version of Agave loads an
    /// archive that does.
    pub fn is_unsupported(self) -> bool {
        self == Self::SharedSlot || self.concerns_newest_bank()
    }

    /// Returns the error for an archive that breaks the rule, if valid archives of Firedancer
    /// [break it](Self::is_unsupported).
    pub fn unsupported_error(self) -> Error {
        let message = format!("only Firedancer loads it: {}", self.description());
        Error::new(ErrorKind::Unsupported, message).with_hint(self.remedy())
    }

    /// True if the full archive of a pair may break the rule, because clients read the bank from
    /// the incremental one.
    pub fn concerns_newest_bank(self) -> bool {
        matches!(self, Self::NoStakes | Self::NoHashesPerTick | Self::FewCachedSlots)
    }

    /// True if an archive that breaks the rule must not be used as input. This is false for rules about
    /// packing, and for rules that archives of some version of Agave normally break.
    pub fn is_refused(self) -> bool {
        matches!(self.row().severity, Severity::Broken | Severity::FiredancerSpecific)
    }

    /// True if no new archive may be written from an archive that breaks the rule. This differs from
    /// [`Self::is_refused`] in three ways. Large windows and empty storages are tolerated, because the new
    /// archive does not have them. So is what Firedancer loads today. A wrong order of entries is refused,
    /// because the new archive keeps the order.
    pub fn is_refused_for_output(self) -> bool {
        use Rule::*;
        let is_tolerated = matches!(self, WindowRefused | EmptyStorage | NoStakes | NoHashesPerTick | NoRentEpoch);
        self.is_refused() && !is_tolerated || self == Order
    }

    /// Returns a caveat for a client that loads an archive although it breaks the rule. The caveat for
    /// Agave was observed with its archiver.
    pub fn note(self, client: SnapshotClient) -> Option<&'static str> {
        match (self, client) {
            (Self::StoragePadded, Agave44) => Some("it cannot archive a storage that is padded with zero bytes"),
            (Self::DuplicateStorage | Self::StorageTooNew | Self::StorageTooOld, Firedancer) => {
                Some("no validator writes such storages, and their records may replace those of others")
            }
            (Self::BaseIsSlot, Firedancer) => {
                Some("no validator writes an incremental archive of the slot of its full one")
            }
            (Self::StorageTail, Firedancer) => Some("bytes that are not a record may be the rest of one"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients_that_load(rule: Rule) -> Vec<SnapshotClient> {
        SnapshotClient::JUDGED_BY_DEFAULT.into_iter().filter(|client| rule.is_tolerated_by(*client)).collect()
    }

    #[test]
    fn clients_differ_in_the_rules_that_they_tolerate() {
        assert_eq!(clients_that_load(Rule::NewerErrors), [Agave44, Agave45, Firedancer]);
        assert_eq!(clients_that_load(Rule::HardLinks), [Agave42, Agave43, Agave44, Firedancer]);
        assert_eq!(clients_that_load(Rule::TaggedList), [Agave45, Firedancer]);
        assert_eq!(clients_that_load(Rule::FiredancerLimit), SnapshotClient::AGAVE);
        assert_eq!(clients_that_load(Rule::VersionLength), SnapshotClient::AGAVE);
        assert_eq!(clients_that_load(Rule::DuplicateStorage), [Firedancer]);
        assert_eq!(clients_that_load(Rule::InvalidVoteAccount), [Agave42, Firedancer]);
        assert_eq!(clients_that_load(Rule::StakesDelegation), [Agave45, Firedancer]);
        assert!(clients_that_load(Rule::BankHash).is_empty());
        assert!(clients_that_load(Rule::EmptyStorage).is_empty());
    }
}
