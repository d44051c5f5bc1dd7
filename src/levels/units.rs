//! Units that are compressed alone or bundled: storages, records, lines, pieces; where they lie in contents that are held
//! in memory.

use {
    crate::{
        error::{Error, Result},
        format::{clients::Rule, entry::EntryKind},
        ledger::record::RECORD_HEADER_BYTES,
        levels::{
            input::{InputKind, InputOptions},
            memory,
            sample::choose_frames,
            sizes::{
                SizeUnit,
                class::{CLASSES, class_of},
            },
            source::Source,
        },
        progress::Progress,
        verify::records::{Record, RecordFault, RecordSink, RecordWalker},
    },
    std::ops::Range,
};

/// Where a unit lies: 16 bytes, since there may be millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitRef {
    content: u32,
    length: u32,
    offset: u64,
}

impl UnitRef {
    /// Bytes of a content; `None` where they are too many to be a unit.
    pub fn new(content: usize, range: Range<usize>) -> Option<Self> {
        let length = range.end.checked_sub(range.start)?.try_into().ok()?;
        Some(Self { content: content.try_into().ok()?, length, offset: range.start as u64 })
    }

    /// Its bytes.
    pub fn bytes(self, contents: &[Vec<u8>]) -> &[u8] {
        let from = self.offset as usize;
        contents.get(self.content as usize).and_then(|content| content.get(from..from + self.len())).unwrap_or_default()
    }

    /// Its length in bytes.
    pub fn len(self) -> usize {
        self.length as usize
    }

    /// Whether it has no bytes.
    pub fn is_empty(self) -> bool {
        self.length == 0
    }
}

/// Storages or records, read out of a ledger or an archive.
#[derive(Debug)]
pub struct Units {
    /// What sort of input it is.
    pub kind: InputKind,
    /// What a unit is.
    pub unit: SizeUnit,
    /// Storages that the input has, by size class.
    pub storages: [u64; CLASSES.len()],
    /// Bytes of all storages.
    pub storage_bytes: u64,
    /// The storages that were read.
    pub contents: Vec<Vec<u8>>,
    /// The units in them, in the order of the input.
    pub refs: Vec<UnitRef>,
}

impl Units {
    /// Reads storages until `sample_bytes` of the options, or what it may hold in memory, are reached: spread evenly over
    /// the input and, where storages are the units, over the size classes.
    pub fn read(options: &InputOptions, unit: SizeUnit, progress: &dyn Progress) -> Result<Self> {
        progress.stage("Reading", None);
        let limit_bytes = limit_bytes(options)?;
        let source = Source::open(options, progress)?;
        let is_storage = |kind| matches!(kind, EntryKind::Storage { .. });
        let storages: Vec<(usize, u64)> = source
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| is_storage(entry.kind) && entry.content_bytes > 0)
            .map(|(number, entry)| (number, entry.content_bytes))
            .collect();
        if storages.is_empty() {
            return Err(Error::usage(format!(
                "{} holds no storages: their sizes are those of a ledger or a snapshot archive",
                options.paths.ledger.display()
            ))
            .hint("give a ledger or an archive; `slotpress levels frames` cuts any file"));
        }
        let mut counts = [0; CLASSES.len()];
        storages.iter().for_each(|(_, bytes)| counts[class_of(*bytes)] += 1);
        let chosen = match unit {
            SizeUnit::Storage => choose_by_class(&storages, limit_bytes, options.seed),
            SizeUnit::Record => choose(&storages, limit_bytes, options.seed),
        };
        if chosen.is_empty() {
            return Err(Error::usage(format!("no storage fits into a sample of {limit_bytes} bytes"))
                .hint("give a larger --sample"));
        }
        let contents = source.load_entries(&chosen, options.threads, progress)?;
        let refs = match unit {
            SizeUnit::Storage => {
                (0..contents.len()).filter_map(|number| UnitRef::new(number, 0..contents[number].len())).collect()
            }
            SizeUnit::Record => records_of(&contents, progress)?,
        };
        let storage_bytes = storages.iter().map(|(_, bytes)| bytes).sum();
        Ok(Self { kind: source.kind, unit, storages: counts, storage_bytes, contents, refs })
    }

    /// Bytes of all units.
    pub fn unit_bytes(&self) -> u64 {
        self.refs.iter().map(|unit| unit.len() as u64).sum()
    }
}

/// How much is held in memory; refuses more than there is.
fn limit_bytes(options: &InputOptions) -> Result<u64> {
    let Some(sample_bytes) = options.sample_bytes else { return Ok(options.memory_bytes_max) };
    match memory::available_bytes() {
        Some(available) if available < sample_bytes => Err(Error::usage(format!(
            "a sample of {sample_bytes} bytes takes as much memory, and {available} bytes are available"
        ))
        .hint("give a smaller --sample")),
        _ => Ok(sample_bytes),
    }
}

/// As many of all classes as fit: what a class does not need is left to the larger ones.
fn choose_by_class(storages: &[(usize, u64)], limit_bytes: u64, seed: u64) -> Vec<usize> {
    let mut by_class: Vec<Vec<(usize, u64)>> = vec![Vec::new(); CLASSES.len()];
    storages.iter().for_each(|storage| by_class[class_of(storage.1)].push(*storage));
    by_class.retain(|class| !class.is_empty());
    let mut left_bytes = limit_bytes;
    let mut chosen = Vec::new();
    for (number, class) in by_class.iter().enumerate() {
        let share = left_bytes / (by_class.len() - number) as u64;
        let taken = choose(class, share, seed);
        left_bytes -=
            class.iter().filter(|(entry, _)| taken.binary_search(entry).is_ok()).map(|(_, bytes)| bytes).sum::<u64>();
        chosen.extend(taken);
    }
    chosen.sort_unstable();
    chosen
}

/// Storages spread evenly, until the limit is reached; in ascending order.
fn choose(storages: &[(usize, u64)], limit_bytes: u64, seed: u64) -> Vec<usize> {
    let total_bytes: u64 = storages.iter().map(|(_, bytes)| bytes).sum();
    let count = storages.len() as u64;
    let wanted = match total_bytes <= limit_bytes {
        true => count,
        false => (u128::from(count) * u128::from(limit_bytes) / u128::from(total_bytes.max(1))).max(1) as u64,
    };
    let mut left_bytes = limit_bytes;
    let mut chosen = Vec::new();
    for number in choose_frames(count, wanted, seed) {
        let (entry, bytes) = storages[number as usize];
        // A storage that is far larger than the others is passed over where it would be all of the sample.
        if bytes <= left_bytes && bytes <= u64::from(u32::MAX) {
            left_bytes -= bytes;
            chosen.push(entry);
        }
    }
    chosen
}

fn records_of(contents: &[Vec<u8>], progress: &dyn Progress) -> Result<Vec<UnitRef>> {
    let mut sink = Records { content: 0, refs: Vec::new(), fault: None };
    let mut walker = RecordWalker::default();
    for (number, content) in contents.iter().enumerate() {
        progress.check()?;
        sink.content = number;
        walker.restart();
        walker.feed(content, &mut sink);
        walker.finish(&mut sink);
        if let Some(fault) = sink.fault {
            return Err(Error::damaged(format!(
                "a storage is damaged at byte {}: {} where {} belongs",
                fault.offset_bytes, fault.found, fault.expected
            ))
            .hint("`slotpress verify` says what is damaged, and where"));
        }
    }
    Ok(sink.refs)
}

/// Collects where records lie.
struct Records {
    content: usize,
    refs: Vec<UnitRef>,
    fault: Option<RecordFault>,
}

impl RecordSink for Records {
    fn record(&mut self, record: Record<'_>) {
        let from = record.offset_bytes as usize;
        let range = from..from + RECORD_HEADER_BYTES + record.data.len();
        self.refs.extend(UnitRef::new(self.content, range));
    }

    fn fault(&mut self, fault: RecordFault) {
        // Others, such as padding, lose no record.
        if matches!(fault.rule, Rule::RecordCutOff | Rule::DataLength) {
            self.fault.get_or_insert(fault);
        }
    }
}

#[cfg(test)]
mod tests {
    use {super::*, proptest::prelude::*};

    proptest! {
        #[test]
        fn samples_stay_within_their_limit(
            sizes in proptest::collection::vec(1u64..3_000_000, 1..200),
            limit in 1u64..100_000_000,
            seed: u64,
        ) {
            let storages: Vec<(usize, u64)> = sizes.iter().copied().enumerate().map(|(at, size)| (at * 3, size)).collect();
            for chosen in [choose(&storages, limit, seed), choose_by_class(&storages, limit, seed)] {
                prop_assert!(chosen.is_sorted());
                let bytes: u64 = chosen.iter().map(|entry| sizes[entry / 3]).sum();
                prop_assert!(bytes <= limit);
                let is_all = sizes.iter().sum::<u64>() <= limit;
                prop_assert!(!is_all || chosen.len() == sizes.len(), "all of what fits");
            }
        }
    }
}
