//! Archives arrive whole.

use crate::common::http::*;
use crate::common::site::*;
use crate::common::*;

#[test]
fn archives_arrive_whole_from_every_kind_of_server() {
    let is_archive_request = |request: &&Request| request.method == "GET" && !request.path.starts_with("/api/");
    for files in [archives(&[]), agave_archives()] {
        for mode in [TransferMode::Ranges, TransferMode::Whole, TransferMode::Liar] {
            let server = serve(&files, mode);
            let dir = temp_dir();
            let output = run_to_json(&["fetch", &server.url(""), "-o", text(dir.path())]);
            assert_eq!(output.code, Some(0), "{mode:?} {output:?}");
            assert!(files_in(dir.path()) == files, "{mode:?}: {:?}", relative_paths(dir.path()));
            let archives = &output.line("fetch")["archives"];
            assert_eq!(archives.as_array().expect("a list").len(), 2);
            // A second run fetches nothing.
            let before = server.requests().iter().filter(is_archive_request).count();
            let output = run_to_json(&["fetch", &server.url(""), "-o", text(dir.path())]);
            assert_eq!(output.line("fetch")["archives"][0]["was_there"], true);
            // Measuring the rate may take two requests.
            assert!(server.requests().iter().filter(is_archive_request).count() <= before + 2);
        }
    }
}

/// The server still announces the archive, but does not send it.
#[test]
fn an_unchanged_archive_that_is_not_sent_is_requested_once() {
    let files = archives(&[]);
    let full = files.keys().find(|name| name.starts_with("snapshot-")).expect("a full archive").clone();
    let server = Server::start(move |request, stream| match request.method.as_str() {
        "GET" => send_response(stream, "404 Not Found", &[], b""),
        _ => respond(&files, TransferMode::Ranges, request, stream),
    });
    let dir = temp_dir();
    let output = run_to_json(&["fetch", &server.url(&format!("/{full}")), "-o", text(dir.path()), "--streams", "1"]);
    assert_eq!(output.code, Some(4), "{output:?}");
    assert_eq!(server.requests().iter().filter(|request| request.method == "GET").count(), 1);
}
