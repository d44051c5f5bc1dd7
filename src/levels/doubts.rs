//! Warnings about rows: each kind once, with the rows that it applies to.

use std::mem::{Discriminant, discriminant};

use crate::levels::statistics::Warning;
use crate::levels::{LevelRow, has_codecs};

/// One sentence for each kind of warning.
pub fn doubts(rows: &[LevelRow]) -> Vec<String> {
    let is_many = has_codecs(rows);
    let mut told: Vec<Discriminant<Warning>> = Vec::new();
    let mut lines = Vec::new();
    for warning in rows.iter().flat_map(|row| &row.warnings) {
        let kind = discriminant(warning);
        if told.contains(&kind) {
            continue;
        }
        told.push(kind);
        let is_same = |row: &&LevelRow| row.warnings.iter().any(|other| discriminant(other) == kind);
        let name = |row: &LevelRow| if is_many { row.label() } else { row.level.to_string() };
        let names: Vec<String> = rows.iter().filter(is_same).map(name).collect();
        let (one, several, all) = if is_many { ("", "", "all codecs") } else { ("level ", "levels ", "all levels") };
        lines.push(match names.as_slice() {
            [name] => format!("{one}{name}: {warning}"),
            names if names.len() == rows.len() => format!("{all}: {warning}"),
            names => format!("{several}{}: {warning}", names.join(", ")),
        });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::levels::report::tests::rows;

    #[test]
    fn each_kind_once() {
        let mut rows = rows();
        assert!(doubts(&rows).is_empty());
        rows[1].warnings = vec![Warning::OtherLoad { lost_percent: 20.0 }];
        let of_one = doubts(&rows);
        assert!(of_one.len() == 1 && of_one[0].starts_with("level -1: "), "{of_one:?}");
        rows[3].warnings = vec![Warning::OtherLoad { lost_percent: 30.0 }];
        assert!(doubts(&rows)[0].starts_with("levels -1, 3: "));
        rows.iter_mut().for_each(|row| row.warnings = vec![Warning::OtherLoad { lost_percent: 10.0 }]);
        assert!(doubts(&rows)[0].starts_with("all levels: "));
        rows[0].codec = "lz4".to_string();
        assert!(doubts(&rows)[0].starts_with("all codecs: "));
    }
}
