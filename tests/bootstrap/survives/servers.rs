//! Archives that are replaced while they are fetched.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::common::http::{Server, Then, answer, head, redirect};
use crate::common::site::*;
use crate::common::*;

/// A server that replaces its incremental archive when a transfer was cut half-way, `replaced`
/// times. Then the newest stays, and is sent whole.
fn start_replacing_server(files: &Arc<Files>, way: Way, replaced: usize) -> Server {
    let served = files.clone();
    let generation = AtomicUsize::new(0);
    let real = served.keys().find(|name| name.starts_with("incremental-")).expect("one").clone();
    Server::start(move |request, stream| {
        let now = generation.load(Relaxed);
        // Earlier archives have lower slots than the real one, which is the newest.
        let newest =
            if now < replaced { real.replace("-26-40-", &format!("-26-{}-", 30 + now % 10)) } else { real.clone() };
        match request.path.trim_start_matches('/') {
            "incremental-snapshot.tar.bz2" => redirect(stream, &format!("/{newest}")),
            asked if asked.starts_with("incremental-") && asked != newest => answer(stream, "404 Not Found", &[], b""),
            asked if asked.starts_with("incremental-") && now < replaced => {
                let bytes = &served[&real];
                if request.method == "HEAD" {
                    let renamed = Files::from([(newest.clone(), bytes.clone())]);
                    return respond(&renamed, way, request, stream);
                }
                let range = request.range().filter(|_| way == Way::Ranges).unwrap_or(0..bytes.len() as u64);
                let start = range.start as usize;
                let end = (range.end as usize).min(bytes.len());
                let place = format!("bytes {start}-{}/{}", end - 1, bytes.len());
                let length = (end - start).to_string();
                let tag = etag(bytes);
                let fields = [("Content-Length", length.as_str()), ("ETag", &tag), ("Content-Range", &place)];
                match way {
                    Way::Ranges => head(stream, "206 Partial Content", &fields)?,
                    _ => head(stream, "200 OK", &fields[..1])?,
                }
                stream.write_all(&bytes[start..start + (end - start) / 2])?;
                generation.compare_exchange(now, now + 1, Relaxed, Relaxed).ok();
                Ok(Then::Close)
            }
            _ => respond(&served, way, request, stream),
        }
    })
}

/// Incremental archives that are gone before they have arrived, as when a source makes one every
/// minute and ends slow transfers. `bootstrap` takes the newest again, or says why there is none
/// and makes the ledger of the full archive.
#[test]
fn replaced_incremental_archives_are_fetched_again() {
    for (way, files) in [(Way::Ranges, archives(&[])), (Way::Whole, archives(&[])), (Way::Whole, agaves_archives())] {
        let files = Arc::new(files);
        for (replaced, slot) in [(3, 40), (usize::MAX, 26)] {
            let server = start_replacing_server(&files, way, replaced);
            let dir = temp_dir();
            let ledger = dir.path().join("ledger");
            let output = run(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
            assert_eq!(output.code, Some(0), "{way:?}, {replaced}: {output:?}");
            assert_eq!(output.line("restore")["slot"], slot, "{output:?}");
            assert!(ledger.join(format!("snapshots/{slot}/fastboot_version")).is_file());
            let is_told = output.stderr.contains("no incremental archive could be fetched");
            assert_eq!(is_told, slot == 26, "{}", output.stderr);
            let left: Vec<String> =
                names(&ledger).into_iter().filter(|name| name.contains("slotpress-fetch")).collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
}
