//! An attacker swaps directories of the target for symbolic links while an archive is made.

use std::fs;
use std::path::Path;

use crate::common::swaps::*;
use crate::common::*;

/// Moves a directory away when a stage begins, and puts a link to `link_to` in its place, if that is set.
struct SwapAt<'a> {
    stage: slotpress::progress::Stage,
    path: &'a Path,
    aside: &'a Path,
    link_to: Option<&'a Path>,
}

impl slotpress::Progress for SwapAt<'_> {
    fn event(&self, event: slotpress::ProgressEvent<'_>) {
        let stage_begins = matches!(event, slotpress::ProgressEvent::Stage { stage, .. } if *stage == self.stage);
        if stage_begins && !self.aside.exists() {
            fs::rename(self.path, self.aside).expect("moved");
            if let Some(to) = self.link_to {
                std::os::unix::fs::symlink(to, self.path).expect("linked");
            }
        }
    }
}

/// If the output directory is replaced with a link, or only moved away, the run fails, and writes nothing through
/// the link.
#[test]
fn a_swapped_output_directory_is_an_error() {
    use slotpress::archive::{ArchiveOptions, DirSink, archive};
    use slotpress::progress::Stage;
    use slotpress::recompress::{RecompressOptions, recompress};
    let (source_dir, full) = small_archive();
    let mut cases = 0;
    let mut failed = Vec::new();
    let stages = [Stage::Planning, Stage::Archiving, Stage::Recompressing, Stage::Verifying, Stage::Syncing];
    for (stage, is_link) in stages.into_iter().flat_map(|stage| [(stage.clone(), true), (stage, false)]) {
        for is_archive in [true, false] {
            let dir = temp_dir();
            let [out, outside, aside] = ["out", "outside", "aside"].map(|name| dir.path().join(name));
            for dir in [&out, &outside] {
                fs::create_dir(dir).expect("made");
            }
            let link_to = is_link.then_some(outside.as_path());
            let swap = SwapAt { stage: stage.clone(), path: &out, aside: &aside, link_to };
            let result = if is_archive {
                let read_back = slotpress::verify::CheckOptions::default();
                archive(
                    &ArchiveOptions::new(source_dir.path().join("synth")).read_back(read_back),
                    &mut DirSink::open(&out).expect("opened"),
                    &swap,
                )
                .map(|report| report.archive.path)
            } else {
                let mut sink = DirSink::open(&out).expect("opened");
                recompress(&RecompressOptions::new(&full), &mut sink, &swap).map(|report| report.archive.path)
            };
            // Some commands do not have this stage.
            if !aside.exists() {
                continue;
            }
            cases += 1;
            let message = result.as_ref().map_or_else(ToString::to_string, |path| format!("made {path:?}"));
            let left: Vec<String> =
                relative_paths(&aside).into_iter().filter(|name| name.starts_with("tmp-")).collect();
            let is_refused = result.is_err() && message.contains("another process");
            if !is_refused || !relative_paths(&outside).is_empty() || !left.is_empty() {
                failed.push(format!(
                    "{stage}, link {is_link}, archive {is_archive}: {message}, {:?}, {left:?}",
                    relative_paths(&outside)
                ));
            }
        }
    }
    assert!(cases >= 12, "only {cases} cases");
    assert!(failed.is_empty(), "{} of {cases} went wrong:\n{}", failed.len(), failed.join("\n"));
}
