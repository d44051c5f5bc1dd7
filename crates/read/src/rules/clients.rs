//! Validator clients: their versions, the compressions that they read, and their verdicts on broken
//! rules.

#![warn(missing_docs)]

use serde::Serialize;
use slotpress_format::ArchiveCompression;

use super::rule::{Rule, SnapshotClient};

use SnapshotClient::*;

const AGAVE_TOGETHER: &str = "Agave 4.2 to 4.5";

/// Returns the names of clients. If all versions of Agave are among them, they share the name "Agave
/// 4.2 to 4.5".
pub fn client_names(clients: &[SnapshotClient]) -> Vec<String> {
    let all = SnapshotClient::JUDGED_BY_DEFAULT.into_iter().chain(SnapshotClient::JUDGED_ON_REQUEST);
    // All clients have the same empty statement, so versions of Agave are merged.
    let statements = all.filter(|client| clients.contains(client)).map(|client| (client, ()));
    merge_versions(statements.collect()).into_iter().map(|(name, ())| name).collect()
}

/// Replaces the client of each statement with its name. If the statements of all versions of Agave are equal,
/// only one of them is kept, with a name for all versions.
pub fn merge_versions<T: PartialEq>(statements: Vec<(SnapshotClient, T)>) -> Vec<(String, T)> {
    let statement_of = |client| statements.iter().find(|(other, _)| *other == client).map(|(_, statement)| statement);
    let first = statement_of(Agave42);
    let are_equal = first.is_some() && SnapshotClient::AGAVE.into_iter().all(|client| statement_of(client) == first);
    let mut merged = Vec::new();
    for (client, statement) in statements {
        match client {
            Agave42 if are_equal => merged.push((AGAVE_TOGETHER.to_string(), statement)),
            client if are_equal && client.is_agave() => {}
            client => merged.push((client.to_string(), statement)),
        }
    }
    merged
}

/// Returns the rule that an archive of this compression breaks, if any.
pub fn rule_broken_by(compression: ArchiveCompression) -> Option<Rule> {
    match compression {
        ArchiveCompression::Zstd => None,
        ArchiveCompression::Lz4 => Some(Rule::Lz4),
        ArchiveCompression::None => Some(Rule::Plain),
        ArchiveCompression::Bzip2 | ArchiveCompression::Gzip => Some(Rule::OldCompression),
    }
}

/// Returns the clients that read archives of this compression.
pub fn clients_that_read(compression: ArchiveCompression) -> Vec<SnapshotClient> {
    let rule = rule_broken_by(compression);
    let reads = |client: &SnapshotClient| rule.is_none_or(|rule| rule.is_tolerated_by(*client));
    SnapshotClient::JUDGED_BY_DEFAULT.into_iter().filter(reads).collect()
}

/// Names a client of which no version reads archives of this compression; `None` if all clients read them.
pub fn excluded_client(compression: ArchiveCompression) -> Option<&'static str> {
    let readers = clients_that_read(compression);
    let missing = SnapshotClient::JUDGED_BY_DEFAULT.into_iter().find(|client| !readers.contains(client))?;
    Some(if missing.is_agave() { "Agave" } else { "Firedancer" })
}

/// States which client reads archives of this compression, for example `Agave reads it, Firedancer does
/// not`; `None` if all clients do.
pub fn describe_readers(compression: ArchiveCompression) -> Option<String> {
    let excluded_client = excluded_client(compression)?;
    Some(match clients_that_read(compression).first() {
        Some(reader) if reader.is_agave() => format!("Agave reads it, {excluded_client} does not"),
        Some(_) => format!("Firedancer reads it, {excluded_client} does not"),
        None => "no client reads it".to_string(),
    })
}

/// Verdict of one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ClientVerdict {
    /// The client whose verdict this is.
    pub client: SnapshotClient,
    /// True if the client loads the archive, or starts from the ledger, as far as was checked.
    pub loads: bool,
    /// Reason why the client refuses the archive, from the first broken rule that it does not tolerate;
    /// `None` if it loads the archive.
    pub refusal_reason: Option<&'static str>,
    /// A restriction that holds although the client loads the archive.
    pub note: Option<&'static str>,
}

/// Returns the verdicts of clients on an archive or a ledger that breaks these rules.
pub fn verdicts(broken: impl Iterator<Item = Rule> + Clone, clients: &[SnapshotClient]) -> Vec<ClientVerdict> {
    let verdict = |&client: &SnapshotClient| {
        let mut refusing = broken.clone().filter(|rule| !rule.is_tolerated_by(client));
        let refusal_reason = refusing.next().map(|rule| rule.refusal_reason(client));
        let note = if refusal_reason.is_none() { broken.clone().find_map(|rule| rule.note(client)) } else { None };
        ClientVerdict { client, loads: refusal_reason.is_none(), refusal_reason, note }
    };
    clients.iter().map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_agave_with_equal_verdicts_are_merged() {
        let lines = |rules: &[Rule]| -> Vec<String> {
            let statements = verdicts(rules.iter().copied(), &SnapshotClient::JUDGED_BY_DEFAULT)
                .into_iter()
                .map(|verdict| (verdict.client, (verdict.loads, verdict.note)))
                .collect();
            let line = |(name, (loads, note)): (String, (bool, Option<&str>))| {
                format!("{name} {loads}{}", note.map_or("", |_| ", but"))
            };
            merge_versions(statements).into_iter().map(line).collect()
        };
        assert_eq!(lines(&[]), ["Agave 4.2 to 4.5 true", "Firedancer true"]);
        let padded = ["Agave 4.2 true", "Agave 4.3 true", "Agave 4.4 true, but", "Agave 4.5 true", "Firedancer false"];
        assert_eq!(lines(&[Rule::StoragePadded]), padded);
    }

    #[test]
    fn all_versions_of_agave_share_a_name() {
        assert_eq!(client_names(&SnapshotClient::JUDGED_BY_DEFAULT), ["Agave 4.2 to 4.5", "Firedancer"]);
        assert_eq!(client_names(&[Agave45, Agave42]), ["Agave 4.2", "Agave 4.5"]);
    }

    #[test]
    fn the_compression_decides_which_clients_read_an_archive() {
        assert_eq!(clients_that_read(ArchiveCompression::Zstd), SnapshotClient::JUDGED_BY_DEFAULT);
        assert_eq!(clients_that_read(ArchiveCompression::Lz4), SnapshotClient::AGAVE);
        assert_eq!(clients_that_read(ArchiveCompression::None), [Firedancer]);
        assert_eq!(clients_that_read(ArchiveCompression::Bzip2), []);
        assert_eq!(
            [ArchiveCompression::Zstd, ArchiveCompression::Lz4, ArchiveCompression::None].map(excluded_client),
            [None, Some("Firedancer"), Some("Agave"),]
        );
        assert_eq!(describe_readers(ArchiveCompression::Zstd), None);
        assert_eq!(describe_readers(ArchiveCompression::Lz4).as_deref(), Some("Agave reads it, Firedancer does not"));
        assert_eq!(describe_readers(ArchiveCompression::Gzip).as_deref(), Some("no client reads it"));
    }
}
