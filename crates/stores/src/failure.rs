//! Explains refusals of a store, with advice.

use std::error::Error as StdError;
use std::time::Duration;

use slotpress_base::{Error, Hint, one_line};
use slotpress_net::{NetError, NetErrorKind, Url};

use crate::answers::{Failure, Refused};

/// Stores refuse signatures if clocks differ by more than 15 minutes; half of that is reported as a possible reason.
const CLOCKS_DIFFER_BY: Duration = Duration::from_secs(450);

pub fn of_store(url: &Url, error: &object_store::Error) -> NetError {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    // Chains of causes are short; the limit guards against a loop.
    for _ in 0..16 {
        let Some(cause) = next else { break };
        match cause.downcast_ref::<Failure>() {
            Some(Failure::Net(error)) => return error.clone(),
            Some(Failure::Refused(refused)) => return of_refusal(url, refused),
            None => {}
        }
        if let Some(error) = cause.downcast_ref::<NetError>() {
            return error.clone();
        }
        next = cause.source();
    }
    NetError::new(NetErrorKind::BadAnswer, url, last_cause(error))
}

/// The innermost cause; outer errors name URLs with their queries, which may be secret.
fn last_cause(error: &object_store::Error) -> String {
    let mut cause: &(dyn StdError + 'static) = error;
    for _ in 0..16 {
        let Some(inner) = cause.source() else { break };
        cause = inner;
    }
    one_line(&cause.to_string())
}

/// Converts an error of preparing a store to a network error.
pub fn as_net(url: &Url, error: &Error) -> NetError {
    let made = NetError::new(NetErrorKind::Forbidden, url, error);
    match error.hint() {
        Some(hint) => made.with_hint(hint.clone()),
        None => made,
    }
}

fn of_refusal(url: &Url, refused: &Refused) -> NetError {
    let bucket = url.host_str().unwrap_or_default();
    let status = refused.status.as_u16();
    let said = match (refused.code.is_empty(), refused.message.is_empty()) {
        (true, _) => format!("status {status}"),
        (false, true) => refused.code.clone(),
        (false, false) => format!("{}: {}", refused.code, refused.message),
    };
    let not_again = |why: String| NetError::new(NetErrorKind::Forbidden, url, why);
    match (refused.code.as_str(), status) {
        ("NoSuchUpload", _) => {
            NetError::new(NetErrorKind::Gone, url, "the store has dropped this upload (NoSuchUpload)")
        }
        ("InvalidPart" | "InvalidPartOrder", _) => {
            let why = format!("the store has lost a part of this upload, or has another one in its place ({said})");
            NetError::new(NetErrorKind::Changed, url, why)
        }
        ("NoSuchBucket", _) => not_again(format!("there is no bucket {bucket} ({said})"))
            .with_hint("check the bucket's name, the endpoint and the region; slotpress creates no buckets"),
        ("RequestTimeTooSkewed" | "RequestExpired", _) => clock_is_off(url, refused),
        (_, 403) if refused.clocks_differ_by > CLOCKS_DIFFER_BY => clock_is_off(url, refused),
        ("ExpiredToken" | "TokenRefreshRequired" | "ExpiredTokenException", _) => {
            not_again(format!("the credentials have expired ({said})")).with_hint(
                "get new ones, then run the same again; those of a credential_process or of the machine are renewed",
            )
        }
        ("InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken" | "UnrecognizedClientException", _) => {
            not_again(format!("the store does not know the credentials ({said})"))
                .with_hint("check the key and its secret, and that they belong to this endpoint")
        }
        (
            "AuthorizationHeaderMalformed"
            | "PermanentRedirect"
            | "TemporaryRedirect"
            | "AuthorizationQueryParametersError"
            | "IllegalLocationConstraintException",
            _,
        )
        | (_, 301 | 307 | 308) => wrong_region(url, refused, &said),
        ("", 400) if refused.region.is_some() => wrong_region(url, refused, &said),
        (_, 401 | 403) => not_again(format!("the store does not allow it ({said})")).with_hint(Hint::GiveCredentials),
        ("NoSuchKey", _) | (_, 404) => NetError::new(NetErrorKind::Gone, url, format!("is not there ({said})")),
        (_, 412) | ("ConditionalRequestConflict", _) => {
            NetError::new(NetErrorKind::Changed, url, format!("another file is there ({said})"))
        }
        ("NotImplemented", _) | (_, 405 | 501) => not_again(format!("the store cannot do that ({said})")),
        ("EntityTooLarge" | "QuotaExceeded" | "XMinioStorageFull" | "InsufficientStorage", _) | (_, 507) => {
            not_again(format!("the store takes no more ({said})"))
        }
        // S3 sends 400 for a request that arrived too slowly, but it can be retried like any overload.
        ("RequestTimeout", _) => NetError::status(url, 503, &said, refused.retry_after.as_deref()),
        _ => NetError::status(url, status, &said, refused.retry_after.as_deref()),
    }
}

fn clock_is_off(url: &Url, refused: &Refused) -> NetError {
    let minutes = refused.clocks_differ_by.as_secs().div_ceil(60);
    let why = format!("this machine's clock is {minutes} minutes off the store's ({})", refused.code);
    NetError::new(NetErrorKind::Forbidden, url, why)
        .with_hint("set the clock (chronyc makestep, timedatectl set-ntp true): signatures are good for 15 minutes")
}

fn wrong_region(url: &Url, refused: &Refused, said: &str) -> NetError {
    let bucket = url.host_str().unwrap_or_default();
    let made = |why: String| NetError::new(NetErrorKind::Forbidden, url, why);
    match &refused.region {
        Some(region) => made(format!("the bucket {bucket} is in the region {region}, which was not asked ({said})"))
            .with_hint(format!("set the region: AWS_REGION={region}")),
        None => made(format!("the bucket {bucket} is elsewhere ({said})"))
            .with_hint("check the region (AWS_REGION) and the endpoint (AWS_ENDPOINT_URL)"),
    }
}
