//! What a command is asked for: what is on its command line, and what variables of the environment add to it.

use {
    clap::{ArgMatches, Id, parser::ValueSource},
    std::{collections::BTreeMap, ffi::OsString, path::PathBuf},
};

/// A flag that a variable sets.
#[derive(Clone, Debug)]
pub struct Setting {
    pub variable: String,
    pub flag: String,
    /// As the variable has it.
    pub text: OsString,
    /// As the flag takes it, one by one; or why it does not.
    pub values: Result<Vec<OsString>, String>,
    /// Whether every command has the flag.
    pub is_global: bool,
}

/// The flags of the command that runs, from the command line and the environment.
pub struct Choices<'a> {
    pub given: &'a ArgMatches,
    pub settings: BTreeMap<Id, Setting>,
}

impl Choices<'_> {
    /// Whether the argument is on the command line.
    pub fn is_given(&self, id: &str) -> bool {
        is_given(self.given, id)
    }

    /// What the argument holds: the first of its values, if there are several.
    fn value(&self, id: &str) -> Option<OsString> {
        if let Some(setting) = self.settings.get(id) {
            return setting.values.as_ref().ok()?.first().cloned();
        }
        let values = self.given.try_get_raw(id).ok()??;
        values.map(OsString::from).next()
    }

    /// What the argument holds, where it is text.
    pub fn text(&self, id: &str) -> Option<String> {
        self.value(id)?.into_string().ok()
    }

    /// What the argument holds, as a path.
    pub fn path(&self, id: &str) -> Option<PathBuf> {
        self.value(id).map(PathBuf::from)
    }

    /// Whether the switch is on.
    pub fn is_on(&self, id: &str) -> bool {
        self.text(id).is_some_and(|text| text == "true")
    }

    /// Does not ask the environment for these.
    pub fn ignore(&mut self, ids: &[&str]) {
        self.settings.retain(|id, _| !ids.contains(&id.as_str()));
    }
}

/// Whether the argument is on the command line.
pub fn is_given(matches: &ArgMatches, id: &str) -> bool {
    // Asking for the source of what a command does not have is a panic.
    matches.try_contains_id(id).is_ok() && matches.value_source(id) == Some(ValueSource::CommandLine)
}
