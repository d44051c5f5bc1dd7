//! Tests of the store, on a directory and on `versitygw`.

#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot continue has failed

mod gateway;

use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use gateway::{BUCKET, FaultKind, Forwarded, Gateway, KEY, PAGE, SECRET, wait_for};
use needs::needs;
use slotpress_base::{CancelToken, Error, ErrorKind, NoProgress, Progress, ProgressEvent, Until};
use slotpress_net::{Client, ClientOptions, NetError, NetErrorKind};
use slotpress_stores::{
    Attribute, Attributes, Condition, PART_BYTES_MIN, PutOutcome, S3Options, Store, StoreOptions, Target, Upload,
};

/// Sets the gateway's credentials for this process, once. [`open_store_with`] does so before it opens
/// a store, which reads them.
static ENVIRONMENT: LazyLock<()> = LazyLock::new(|| {
    for (name, value) in [
        ("AWS_ACCESS_KEY_ID", KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_CONFIG_FILE", "/dev/null"),
        ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null"),
    ] {
        // SAFETY: nothing else in this process changes the environment, and it is read only through
        // the standard library.
        unsafe { std::env::set_var(name, value) };
    }
});

fn store_options(gateway: &Gateway) -> StoreOptions {
    let s3 = S3Options::default().endpoint(gateway.endpoint()).region("us-east-1".to_string());
    StoreOptions::default().s3(s3).give_up_after(Duration::from_secs(30)).memory_bytes(4 * PART_BYTES_MIN)
}

fn open_store_with(options: &StoreOptions) -> Store {
    LazyLock::force(&ENVIRONMENT);
    let target: Target = format!("s3://{BUCKET}/mainnet").parse().expect("a target");
    Store::open(&target, options, &Client::new(&ClientOptions::default()).expect("a client")).expect("a store")
}

fn open_store(gateway: &Gateway) -> Store {
    open_store_with(&store_options(gateway))
}

/// Returns pseudo-random bytes, so that no part of an upload equals another.
fn random_bytes(length: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Records warnings.
#[derive(Default)]
struct Warnings {
    messages: Mutex<Vec<String>>,
    stop: CancelToken,
}

impl Progress for Warnings {
    fn event(&self, event: ProgressEvent<'_>) {
        if let ProgressEvent::Warning(message) = event {
            self.messages.lock().expect("locked").push(message.to_string());
        }
    }

    fn is_interrupted(&self) -> bool {
        self.stop.is_interrupted()
    }
}

fn assert_small_files_are_written_conditionally(store: &Store) {
    let put = |bytes: &[u8], condition: &Condition| {
        let metadata = Attributes::from_iter([(Attribute::CacheControl, "max-age=5")]);
        store.put_small_file("latest.json", bytes, &metadata, condition, &NoProgress).expect("put")
    };
    assert_eq!(store.get_small_file("latest.json", 100, &NoProgress).expect("asked"), None);
    assert_eq!(store.stat("latest.json", &NoProgress).expect("asked"), None);
    assert!(matches!(put(b"one", &Condition::Absent), PutOutcome::Done));
    assert_eq!(put(b"two", &Condition::Absent), PutOutcome::Refused);
    let one = store.get_small_file("latest.json", 100, &NoProgress).expect("asked").expect("there");
    assert_eq!(one.bytes, b"one");
    let tag = one.etag.expect("a tag");
    assert_eq!(put(b"two", &Condition::Unchanged(tag.clone())), PutOutcome::Done);
    assert_eq!(put(b"three", &Condition::Unchanged(tag)), PutOutcome::Refused);
    assert!(matches!(put(b"four", &Condition::Always), PutOutcome::Done));
    let error = store.get_small_file("latest.json", 3, &NoProgress).expect_err("longer");
    assert!(error.to_string().contains("latest.json"), "{error}");
    let listed = store.list(&NoProgress).expect("listed");
    assert_eq!(
        listed.iter().map(|object| (object.name.as_str(), object.length_bytes)).collect::<Vec<_>>(),
        [("latest.json", 4)]
    );
    assert_eq!(Some(listed[0].clone()), store.stat("latest.json", &NoProgress).expect("asked"));
    store.delete("latest.json", &NoProgress).expect("deleted");
    store.delete("latest.json", &NoProgress).expect("not there");
    assert!(store.list(&NoProgress).expect("listed").is_empty());
    for name in ["", "a/b", "..", "a b", "\u{7f}"] {
        assert!(store.get_small_file(name, 1, &NoProgress).is_err(), "{name:?}");
    }
}

/// Begins to upload the file `large`, which must not exist yet.
fn begin_upload(store: &Store, progress: &dyn Progress) -> slotpress_base::Result<Upload> {
    store.upload("large", &Attributes::new(), 1 << 30, false, progress)
}

/// Records the parts that have arrived, and counts them.
fn count_stored_parts(upload: &mut Upload) -> Option<usize> {
    upload.write(&[], &NoProgress).expect("no part has failed");
    upload.part_count()
}

fn assert_large_files_appear_whole(store: &Store) {
    let bytes = random_bytes(5 * PART_BYTES_MIN as usize / 2);
    let upload = |replace| store.upload("large", &Attributes::new(), 1 << 30, replace, &NoProgress);
    let mut first = upload(false).expect("started");
    for piece in bytes.chunks(1_000_003) {
        first.write(piece, &NoProgress).expect("written");
        assert!(store.list(&NoProgress).expect("listed").is_empty());
    }
    first.finish(&NoProgress).expect("finished");
    assert_eq!(store.stat("large", &NoProgress).expect("asked").expect("there").length_bytes, bytes.len() as u64);
    let source = store.open_source("large", CancelToken::default()).expect("opened");
    let mut read = vec![0; 3_000_000];
    source.read_exact_at(&mut read, 17_000_000).expect("read");
    assert!(read == bytes[17_000_000..20_000_000]);
    let mut all = vec![0; bytes.len()];
    source.read_exact_at(&mut all, 0).expect("read");
    assert!(all == bytes);
    assert_eq!(upload(false).expect_err("there").kind(), ErrorKind::Exists);
    let mut dropped = upload(true).expect("started");
    dropped.write(&bytes, &NoProgress).expect("written");
    // A store may keep a part that is in flight while its upload is aborted.
    wait_for("both parts", || count_stored_parts(&mut dropped).is_none_or(|parts| parts == 2));
    drop(dropped);
    assert_eq!(store.list(&NoProgress).expect("listed").len(), 1);
    upload(true).expect("started").finish(&NoProgress).expect("an empty one");
    assert_eq!(store.stat("large", &NoProgress).expect("asked").expect("there").length_bytes, 0);
    assert!(store.open_source("gone", CancelToken::default()).is_err());
}

#[test]
fn a_directory_is_a_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let client = Client::new(&ClientOptions::default()).expect("a client");
    let store = Store::open(&Target::Dir(dir.path().into()), &StoreOptions::default(), &client).expect("a store");
    assert_small_files_are_written_conditionally(&store);
    assert_large_files_appear_whole(&store);
    assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 1, "nothing temporary is left");
    let missing = Target::Dir(dir.path().join("none"));
    assert!(Store::open(&missing, &StoreOptions::default(), &client).is_err());
}

#[test]
fn a_bucket_is_a_store() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let store = open_store(&gateway);
    assert_small_files_are_written_conditionally(&store);
    assert_large_files_appear_whole(&store);
    assert_eq!(gateway.leftover_part_count(), 0);
}

#[test]
fn a_list_of_several_pages_is_complete() {
    needs!("versitygw");
    let gateway = Gateway::start();
    std::fs::create_dir_all(gateway.bucket().join("mainnet/below")).expect("made");
    for number in 0..1100 {
        std::fs::write(gateway.bucket().join(format!("mainnet/{number:04}")), "x").expect("written");
    }
    std::fs::write(gateway.bucket().join("mainnet/below/not-this"), "x").expect("written");
    let names: Vec<String> =
        open_store(&gateway).list(&NoProgress).expect("listed").into_iter().map(|object| object.name).collect();
    assert_eq!(names, (0..1100).map(|number| format!("{number:04}")).collect::<Vec<_>>());
}

#[test]
fn another_process_resumes_after_the_stored_parts() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let store = open_store(&gateway);
    let bytes = random_bytes(5 * PART_BYTES_MIN as usize + 5);
    let mut first = begin_upload(&store, &NoProgress).expect("started");
    first.write(&bytes[..3 * PART_BYTES_MIN as usize], &NoProgress).expect("written");
    wait_for("the third part", || count_stored_parts(&mut first) == Some(3));
    let kept = serde_json::to_string(&first.keep(&Error::interrupted()).expect("kept")).expect("JSON");
    for secret in [SECRET, KEY] {
        assert!(!kept.contains(secret), "{kept}");
    }
    let state = serde_json::from_str(&kept).expect("a state");
    let mut second = store.resume("large", &state, bytes.len() as u64).expect("resumed").expect("of a bucket");
    assert_eq!(second.resumed_bytes(), 3 * PART_BYTES_MIN);
    second.write(&bytes[3 * PART_BYTES_MIN as usize..], &NoProgress).expect("written");
    second.finish(&NoProgress).expect("finished");
    assert_eq!(gateway.count_requests(&["PUT ", "partNumber="]), 6);
    assert!(std::fs::read(gateway.bucket().join("mainnet/large")).expect("read") == bytes);
    // Resuming a completed upload fails only when a part is sent, or the parts are joined.
    let mut third = store.resume("large", &state, bytes.len() as u64).expect("resumed").expect("of a bucket");
    let written = third.write(&bytes[3 * PART_BYTES_MIN as usize..], &NoProgress);
    let error = written.and_then(|()| third.finish(&NoProgress).map(drop)).expect_err("dropped by the store");
    assert_eq!(NetError::find_in(&error).map(NetError::kind), Some(NetErrorKind::Gone), "{error}");
    store.abort("large", &state, &NoProgress).expect("gone already");
}

/// After each of these failures to complete an upload, its state is kept. Resuming it succeeds
/// without sending a part again.
#[test]
fn an_upload_whose_completion_fails_can_be_resumed() {
    needs!("versitygw");
    let head = || vec!["HEAD ", "/large"];
    let complete = || vec!["POST ", "uploadId="];
    for (requests, fault_kind) in [
        (complete(), FaultKind::Refused(503, "SlowDown")),
        (complete(), FaultKind::Refused(403, "AccessDenied")),
        (complete(), FaultKind::Document(PAGE, Forwarded::No)),
        (complete(), FaultKind::Document(PAGE, Forwarded::Yes)),
        (complete(), FaultKind::AnswerLost),
        (head(), FaultKind::Refused(404, "")),
        (head(), FaultKind::Refused(503, "")),
        (head(), FaultKind::Document(PAGE, Forwarded::No)),
    ] {
        let gateway = Gateway::start();
        let context = format!("{requests:?} {fault_kind:?}");
        // The last part is shorter than the others.
        let bytes = random_bytes(2 * PART_BYTES_MIN as usize + 5);
        let store = open_store_with(&store_options(&gateway).give_up_after(Duration::from_millis(300)));
        let mut first = begin_upload(&store, &NoProgress).expect("started");
        first.write(&bytes, &NoProgress).expect("written");
        gateway.fail(&requests, usize::MAX, fault_kind);
        let error = first.finish(&NoProgress).expect_err(&context);
        let state = first.keep(&error).expect(&context);
        gateway.clear_faults();
        assert_eq!(state.tags.len(), 3, "{context}");
        let mut second = store.resume("large", &state, bytes.len() as u64).expect(&context).expect("of a bucket");
        assert_eq!(second.resumed_bytes(), bytes.len() as u64, "{context}");
        second.finish(&NoProgress).expect(&context);
        assert_eq!(gateway.count_requests(&["PUT ", "partNumber="]), 3, "{context}");
        assert!(std::fs::read(gateway.bucket().join("mainnet/large")).expect("read") == bytes, "{context}");
        assert_eq!(gateway.leftover_part_count(), 0, "{context}");
    }
}

/// After a part was lost or replaced, no part of the upload is kept.
#[test]
fn an_upload_with_a_lost_part_cannot_be_resumed() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let store = open_store(&gateway);
    let bytes = random_bytes(2 * PART_BYTES_MIN as usize + 5);
    let mut first = begin_upload(&store, &NoProgress).expect("started");
    first.write(&bytes, &NoProgress).expect("written");
    wait_for("two parts", || count_stored_parts(&mut first) == Some(2));
    let mut state = first.keep(&Error::interrupted()).expect("kept");
    state.tags.swap(0, 1);
    let mut second = store.resume("large", &state, bytes.len() as u64).expect("resumed").expect("of a bucket");
    second.write(&bytes[2 * PART_BYTES_MIN as usize..], &NoProgress).expect("written");
    let error = second.finish(&NoProgress).expect_err("the tags are swapped");
    let kept = second.keep(&error);
    assert!(error.to_string().contains("400 InvalidPart"), "{error}");
    assert_eq!(kept, None);
    assert_eq!(gateway.leftover_part_count(), 0);
    // A state with more parts than the file can have is refused.
    state.tags.extend(["one".to_string(), "more".to_string()]);
    assert!(store.resume("large", &state, bytes.len() as u64).expect("compared").is_none());
}

#[test]
fn invalid_and_endless_lists_are_errors() {
    needs!("versitygw");
    const AGAIN: &str = "<ListBucketResult><IsTruncated>true</IsTruncated>\
        <NextContinuationToken>again</NextContinuationToken><Contents><Key>mainnet/a</Key><Size>1</Size>\
        <LastModified>2026-11-23T10:00:00Z</LastModified></Contents></ListBucketResult>";
    const EMPTY_AGAIN: &str = "<ListBucketResult><IsTruncated>true</IsTruncated>\
        <NextContinuationToken>again</NextContinuationToken></ListBucketResult>";
    let gateway = Gateway::start();
    let store = open_store(&gateway);
    for (document, words, requests) in [
        (PAGE, "does not speak S3", 1),
        ("", "does not speak S3", 1),
        (AGAIN, "has no end", 2),
        (EMPTY_AGAIN, "has no end", 2),
    ] {
        let before = gateway.count_requests(&["list-type=2"]);
        gateway.fail(&["GET ", "list-type=2"], usize::MAX, FaultKind::Document(document, Forwarded::No));
        let error = store.list(&NoProgress).expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.kind().exit_code(), 4, "{error}");
        assert_eq!(gateway.count_requests(&["list-type=2"]) - before, requests, "{document}");
        gateway.clear_faults();
    }
    assert!(store.list(&NoProgress).expect("listed").is_empty());
}

#[test]
fn an_upload_outlives_failures_of_a_store() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let store = open_store(&gateway);
    gateway.fail(&["POST ", "uploads"], 1, FaultKind::Refused(500, "InternalError"));
    gateway.fail(&["partNumber=1&"], 2, FaultKind::Refused(503, "SlowDown"));
    gateway.fail(&["partNumber=2&"], 1, FaultKind::Closed);
    gateway.fail(&["partNumber=2&"], 1, FaultKind::AnswerLost);
    gateway.fail(&["partNumber=3&"], 1, FaultKind::Refused(400, "RequestTimeout"));
    gateway.fail(&["POST ", "uploadId="], 1, FaultKind::Refused(200, "InternalError"));
    gateway.fail(&["POST ", "uploadId="], 1, FaultKind::AnswerLost);
    let bytes = random_bytes(3 * PART_BYTES_MIN as usize);
    let warnings = Warnings::default();
    let mut upload = begin_upload(&store, &warnings).expect("started");
    upload.write(&bytes, &warnings).expect("written");
    upload.finish(&warnings).expect("finished");
    assert!(std::fs::read(gateway.bucket().join("mainnet/large")).expect("read") == bytes);
    let messages = warnings.messages.into_inner().expect("unlocked");
    // Parts fail in any order. The second failure causes a warning.
    assert!(messages.iter().any(|message| message.contains("asking again in")), "{messages:?}");

    // The answer to a conditional write is lost: the retried request finds what the first one
    // wrote.
    gateway.fail(&["PUT ", "latest.json"], 1, FaultKind::AnswerLost);
    let put = store.put_small_file("latest.json", b"one", &Attributes::new(), &Condition::Absent, &NoProgress);
    assert!(matches!(put, Ok(PutOutcome::Done)), "{put:?}");

    gateway.set_unreachable(true);
    std::thread::scope(|scope| {
        let listing = scope.spawn(|| store.list(&NoProgress));
        wait_for("requests", || gateway.closed_connection_count() >= 2);
        gateway.set_unreachable(false);
        assert_eq!(listing.join().expect("no panic").expect("listed").len(), 2);
    });
}

/// A connection may end before, during or after the request.
#[test]
fn connections_that_end_at_once_are_retryable_failures() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let store = open_store_with(&store_options(&gateway).give_up_after(Duration::from_millis(1)));
    gateway.set_unreachable(true);
    let mut unanswered = 0;
    for _ in 0..200 {
        let start = Instant::now();
        let error = store.list(&Until(|| start.elapsed() > Duration::from_secs(5))).expect_err("gone");
        match error.kind() {
            // hyper loses one in a thousand requests whose connection ends just as it is handed
            // over (hyperium/hyper#4122). The client would end such a request after a minute; the
            // limit above ends it earlier.
            ErrorKind::Interrupted => unanswered += 1,
            _ => assert!(NetError::find_in(&error).is_some_and(NetError::is_retryable), "{error}"),
        }
    }
    assert!(unanswered <= 10, "{unanswered} of 200");
}

/// Uploads a file to a store at which requests with these head parts fail. Asserts that the upload leaves
/// nothing, and returns its error.
fn upload_and_fail(gateway: &Gateway, head_parts: &[&str], fault_kind: FaultKind) -> Error {
    let store = open_store_with(&store_options(gateway).give_up_after(Duration::from_millis(300)));
    gateway.fail(head_parts, usize::MAX, fault_kind);
    let mut upload = match begin_upload(&store, &NoProgress) {
        Ok(upload) => upload,
        Err(error) => return error,
    };
    let bytes = random_bytes(2 * PART_BYTES_MIN as usize);
    let error = upload.write(&bytes, &NoProgress).and_then(|()| upload.finish(&NoProgress)).expect_err("refused");
    drop(upload);
    gateway.clear_faults();
    wait_for("the end of requests in flight", || gateway.leftover_part_count() == 0);
    assert!(!gateway.bucket().join("mainnet/large").exists());
    error
}

/// If an upload is aborted after the store has received a part, but before it has stored the part, the
/// store keeps it. So the client waits for such parts before it aborts.
#[test]
fn a_part_that_is_stored_late_does_not_stay() {
    needs!("versitygw");
    let gateway = Gateway::start();
    gateway.fail(&["partNumber=1&"], 1, FaultKind::Delayed);
    upload_and_fail(&gateway, &["partNumber=2&"], FaultKind::Refused(403, "AccessDenied"));
}

#[test]
fn refusals_are_explained() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let hours_ago = std::time::SystemTime::now() - Duration::from_secs(7200);
    let skewed = format!("Date: {}", httpdate::fmt_http_date(hours_ago));
    let denied = ErrorKind::PermissionDenied;
    for (requests, fault_kind, kind, words) in [
        (
            vec!["partNumber=2&"],
            FaultKind::Refused(500, "InternalError"),
            ErrorKind::Network,
            "the server answers 500 InternalError: said",
        ),
        (vec!["partNumber=2&"], FaultKind::Closed, ErrorKind::Network, "closed without an answer"),
        (
            vec!["POST ", "uploads"],
            FaultKind::Refused(403, "AccessDenied"),
            denied,
            "the server answers 403 AccessDenied: said",
        ),
        (vec!["HEAD "], FaultKind::Refused(403, ""), denied, "the server answers 403"),
        (
            vec!["partNumber=1&"],
            FaultKind::Refused(400, "ExpiredToken"),
            denied,
            "the server answers 400 ExpiredToken: said",
        ),
        (
            vec!["POST "],
            FaultKind::Refused(403, "SignatureDoesNotMatch"),
            denied,
            "the server answers 403 SignatureDoesNotMatch",
        ),
        (
            vec!["POST "],
            FaultKind::RefusedWith(403, "RequestTimeTooSkewed", skewed),
            ErrorKind::Failed,
            "RequestTimeTooSkewed",
        ),
        (
            vec!["HEAD "],
            FaultKind::RefusedWith(301, "", "x-amz-bucket-region: eu-west-1".to_string()),
            ErrorKind::Failed,
            "the server answers 301",
        ),
        (
            vec!["POST "],
            FaultKind::Refused(507, "QuotaExceeded"),
            ErrorKind::NoSpace,
            "the server answers 507 QuotaExceeded",
        ),
    ] {
        let error = upload_and_fail(&gateway, &requests, fault_kind);
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!format!("{error:?}").contains(SECRET), "{error:?}");
        gateway.clear_faults();
    }
}

#[test]
fn a_missing_bucket_is_an_error_with_a_hint() {
    needs!("versitygw");
    let gateway = Gateway::start();
    LazyLock::force(&ENVIRONMENT);
    let target: Target = "s3://no-such-bucket/x".parse().expect("a target");
    let client = Client::new(&ClientOptions::default()).expect("a client");
    let store = Store::open(&target, &store_options(&gateway), &client).expect("opened without a request");
    let error = store.list(&NoProgress).expect_err("not there");
    assert!(error.to_string().contains("s3://no-such-bucket/x"), "{error}");
    assert!(error.hint().is_some(), "{error}");
}

#[test]
fn an_interrupted_upload_leaves_nothing() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let store = open_store(&gateway);
    gateway.fail(&["partNumber=2&"], usize::MAX, FaultKind::Refused(503, "SlowDown"));
    let warnings = Warnings::default();
    let mut upload = begin_upload(&store, &warnings).expect("started");
    upload.write(&random_bytes(3 * PART_BYTES_MIN as usize), &warnings).expect("written");
    wait_for("a refusal", || gateway.count_requests(&["partNumber=2&"]) > 0);
    warnings.stop.cancel();
    gateway.fail(&["DELETE ", "uploadId="], 1, FaultKind::Refused(503, "SlowDown"));
    assert_eq!(upload.finish(&warnings).expect_err("stopped").kind(), ErrorKind::Interrupted);
    drop(upload);
    wait_for("the end of requests in flight", || gateway.leftover_part_count() == 0);
    assert!(gateway.count_requests(&["DELETE ", "uploadId="]) > 1, "asked again after a refusal");
    assert!(store.list(&NoProgress).expect("listed").is_empty());
}
