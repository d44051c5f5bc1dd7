//! One archive into files: by its index on all cores, or in the order of its tar stream.

use {
    crate::{
        error::{Error, IoContext, Result},
        format::{
            entry::Entry,
            entry_parser::{EntryParser, TarEvent},
            frames::FrameSpan,
        },
        pipeline::run_in_order,
        progress::Progress,
        restore::{
            assign::{Assigner, Destination},
            input::{ArchiveFile, FrameDecoder},
            place::{EntryWriter, Owner, PartialDir, Places},
            tail::{DataFrame, Tail},
        },
    },
    std::os::unix::fs::FileExt,
};

/// Where to unpack, and with how many workers.
#[derive(Clone, Copy, Debug)]
pub struct UnpackOptions<'a> {
    /// The partial directories of the accounts paths.
    pub roots: &'a [PartialDir],
    /// The partial directory for version, status cache and bank file.
    pub bank_snapshot: &'a PartialDir,
    /// Who owns what is written.
    pub owner: Owner,
    /// Workers.
    pub threads: usize,
}

/// Unpacks an archive. With its tail, every worker decodes, parses and writes frames on its own; without, frames are
/// decoded on all workers where there are several, and parsed and written in order by the calling thread.
pub fn unpack(
    archive: &ArchiveFile,
    tail: Option<&Tail>,
    assigner: &mut Assigner,
    options: &UnpackOptions<'_>,
    progress: &dyn Progress,
) -> Result<()> {
    let UnpackOptions { roots, bank_snapshot, owner, threads } = *options;
    let places = Places { roots, bank_snapshot, owner, is_shared: tail.is_some() };
    match tail {
        Some(tail) => unpack_indexed(archive, tail, assigner, &places, threads, progress),
        None => unpack_in_order(archive, assigner, &places, threads, progress),
    }
}

fn unpack_in_order(
    archive: &ArchiveFile,
    assigner: &mut Assigner,
    places: &Places<'_>,
    threads: usize,
    progress: &dyn Progress,
) -> Result<()> {
    let mut parser = EntryParser::new();
    let mut writer = EntryWriter::new(places);
    archive.decode_in_order(threads, progress, &mut |content| {
        parser.feed(content, &mut |event| match event {
            TarEvent::Begin(entry) => writer.begin(assigner.assign(&entry)?),
            TarEvent::Content { offset_bytes, bytes } => writer.content(offset_bytes, bytes),
            TarEvent::End(_) => {
                writer.end();
                Ok(())
            }
        })
    })?;
    if parser.has_junk_after_end() {
        progress.warn("bytes that are not zero follow the end of the tar stream; Agave ignores them");
    }
    parser.finish().map_err(|error| error.within(archive.path.display()))
}

fn unpack_indexed(
    archive: &ArchiveFile,
    tail: &Tail,
    assigner: &mut Assigner,
    places: &Places<'_>,
    threads: usize,
    progress: &dyn Progress,
) -> Result<()> {
    let destinations =
        tail.index.entries.iter().map(|entry| assigner.assign(entry)).collect::<Result<Vec<Destination>>>()?;
    let new_worker = || {
        let mut decoder = FrameDecoder::new()?;
        let mut compressed = Vec::new();
        let destinations = &destinations;
        Ok(move |(frame, span): (DataFrame, FrameSpan), content: &mut Vec<u8>| {
            compressed.resize(frame.compressed_bytes as usize, 0);
            archive.file.read_exact_at(&mut compressed, frame.offset_bytes).or_path("read", &archive.path)?;
            decoder.decode(&compressed, frame.offset_bytes, u64::from(frame.content_bytes), content)?;
            if content.len() as u64 != span.length_bytes {
                return Err(disagree(format!(
                    "the frame at offset {} holds {} bytes, not {}",
                    frame.offset_bytes,
                    content.len(),
                    span.length_bytes
                )));
            }
            write_frame(content, &span, tail, destinations, places)?;
            Ok((u64::from(frame.compressed_bytes), content.len() as u64))
        })
    };
    run_in_order(tail.spans().map(Ok), threads, &new_worker, progress, &mut |_, (compressed, content)| {
        progress.advance(compressed, content);
        Ok(())
    })
}

/// Parses one frame's tar and writes it. Every header must be the one that the index promised.
fn write_frame(
    content: &[u8],
    span: &FrameSpan,
    tail: &Tail,
    destinations: &[Destination],
    places: &Places<'_>,
) -> Result<()> {
    let entries = &tail.index.entries;
    let mut number = span.first_entry as usize;
    let mut writer = EntryWriter::new(places);
    let mut parser = EntryParser::new();
    if span.offset_bytes > 0 {
        let (Some(entry), Some(destination)) = (entries.get(number), destinations.get(number)) else {
            // Inside the end of the archive: nothing but zeros, which a parser takes for an end as well.
            return if content.iter().all(|byte| *byte == 0) {
                Ok(())
            } else {
                Err(disagree("junk at the end".into()))
            };
        };
        parser = EntryParser::inside(*entry, span.offset_bytes)
            .ok_or_else(|| disagree("an entry is cut inside its header".into()))?;
        writer.begin(*destination)?;
        number += 1;
    }
    parser
        .feed(content, &mut |event| match event {
            TarEvent::Begin(entry) => {
                let expected = entries.get(number).zip(destinations.get(number));
                let Some((_, destination)) = expected.filter(|(expected, _)| **expected == entry) else {
                    return Err(disagree(format!("{} is not where the index says", entry.kind)));
                };
                number += 1;
                writer.begin(*destination)
            }
            TarEvent::Content { offset_bytes, bytes } => writer.content(offset_bytes, bytes),
            TarEvent::End(_) => {
                writer.end();
                Ok(())
            }
        })
        .map_err(
            |error| if error.kind() == crate::ErrorKind::Damaged { error.within("in an indexed frame") } else { error },
        )?;
    // Zeros in place of a header end a tar stream: entries after them would silently be missing.
    if number != entries_begun_by(span, entries) || parser.has_junk_after_end() {
        return Err(disagree("the tar stream ends early".into()));
    }
    Ok(())
}

/// How many entries have begun when a frame ends.
pub(crate) fn entries_begun_by(span: &FrameSpan, entries: &[Entry]) -> usize {
    let mut number = span.first_entry as usize;
    let mut left = span.offset_bytes + span.length_bytes;
    while left > 0 && number < entries.len() {
        left = left.saturating_sub(entries[number].tar_bytes());
        number += 1;
    }
    number
}

pub(crate) fn disagree(why: String) -> Error {
    Error::damaged(format!("the archive's index disagrees with its content: {why}"))
        .hint("--ignore-index reads the archive by its frames and headers alone")
}
