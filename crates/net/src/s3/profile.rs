//! Parses AWS's configuration files: sections of `key = value`. No I/O.

use std::collections::BTreeMap;

pub type Section = BTreeMap<String, String>;

/// Returns the section with this heading. Skips indented lines, which belong to nested keys.
pub fn find_section(text: &str, heading: &str) -> Option<Section> {
    let mut section: Option<Section> = None;
    let mut is_in_section = false;
    for line in text.lines() {
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) || is_nested {
            continue;
        }
        if let Some((name, _)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            is_in_section = name.split_whitespace().eq(heading.split_whitespace());
            if is_in_section {
                section.get_or_insert_default();
            }
        } else if is_in_section && let Some((key, value)) = line.split_once('=') {
            let (value, _comment) = value.split_once(" #").unwrap_or((value, ""));
            section.get_or_insert_default().insert(key.trim().to_lowercase(), value.trim().to_string());
        }
    }
    section
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sections_are_parsed() {
        let text = "# mine\n[default]\nregion=eu-west-1\n[profile  archives]\n  nested = x\ns3 =\n  region = nested\n\
                    Region = eu-north-1 # cold\ncredential_process = /opt/keys --for \"x=y\"\n[other]\nregion = x\n";
        let value = |heading: &str, key: &str| find_section(text, heading)?.get(key).cloned();
        assert_eq!(value("default", "region").as_deref(), Some("eu-west-1"));
        assert_eq!(value("profile archives", "region").as_deref(), Some("eu-north-1"));
        assert_eq!(value("profile archives", "credential_process").as_deref(), Some("/opt/keys --for \"x=y\""));
        assert_eq!(value("profile archives", "nested"), None);
        assert!(find_section(text, "archives").is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_a_panic(text in "(\\[?[a-z =#;\\]]{0,12}\n){0,12}") {
            let _ = find_section(&text, "a");
        }
    }
}
