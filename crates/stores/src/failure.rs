//! Turns a store's refusals into errors with hints.

use std::error::Error as StdError;
use std::time::Duration;

use slotpress_base::{Error, ErrorKind, Hint, one_line};
use slotpress_net::{NetError, NetErrorKind, Url};

use crate::answers::{Failure, Refused};

/// Stores refuse signatures if clocks differ by more than 15 minutes; a difference of half of that
/// is reported as a possible reason.
const CLOCKS_DIFFER_BY: Duration = Duration::from_secs(450);

pub fn from_store_error(url: &Url, error: &object_store::Error) -> NetError {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    // Chains of causes are short; the limit guards against a loop.
    for _ in 0..16 {
        let Some(cause) = next else { break };
        match cause.downcast_ref::<Failure>() {
            Some(Failure::Net(error)) => return error.clone(),
            Some(Failure::Refused(refused)) => return from_error_response(url, refused),
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
pub fn to_net_error(url: &Url, error: &Error) -> NetError {
    let kind = match error.kind() {
        ErrorKind::PermissionDenied => NetErrorKind::Denied,
        _ => NetErrorKind::Forbidden,
    };
    let net_error = NetError::new(kind, url, error);
    match error.hint() {
        Some(hint) => net_error.with_hint(hint.clone()),
        None => net_error,
    }
}

fn from_error_response(url: &Url, refused: &Refused) -> NetError {
    let bucket = url.host_str().unwrap_or_default();
    let status = refused.status.as_u16();
    let description = match (refused.code.is_empty(), refused.message.is_empty()) {
        (true, _) => format!("status {status}"),
        (false, true) => refused.code.clone(),
        (false, false) => format!("{}: {}", refused.code, refused.message),
    };
    let final_error = |why: String| NetError::new(NetErrorKind::Forbidden, url, why);
    let denied = |why: String| NetError::new(NetErrorKind::Denied, url, why);
    match (refused.code.as_str(), status) {
        ("NoSuchUpload", _) => {
            NetError::new(NetErrorKind::Gone, url, "the store has dropped this upload (NoSuchUpload)")
        }
        ("InvalidPart" | "InvalidPartOrder", _) => {
            let why =
                format!("the store has lost a part of this upload, or has another one in its place ({description})");
            NetError::new(NetErrorKind::Changed, url, why)
        }
        ("NoSuchBucket", _) => final_error(format!("there is no bucket {bucket} ({description})"))
            .with_hint("check the bucket's name, the endpoint and the region; slotpress creates no buckets"),
        ("RequestTimeTooSkewed" | "RequestExpired", _) => clock_skew(url, refused),
        (_, 403) if refused.clocks_differ_by > CLOCKS_DIFFER_BY => clock_skew(url, refused),
        ("ExpiredToken" | "TokenRefreshRequired" | "ExpiredTokenException", _) => {
            denied(format!("the credentials have expired ({description})")).with_hint(
                "get new ones, then run the same again; those of a credential_process or of the machine are renewed",
            )
        }
        (
            "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken" | "UnrecognizedClientException"
            // versitygw, which answers 404.
            | "XAdminUserNotFound",
            _,
        ) => {
            denied(format!("the store does not know the credentials ({description})"))
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
        | (_, 301 | 307 | 308) => wrong_region(url, refused, &description),
        ("", 400) if refused.region.is_some() => wrong_region(url, refused, &description),
        (_, 401 | 403) => {
            denied(format!("the store does not allow it ({description})")).with_hint(Hint::GiveCredentials)
        }
        ("NoSuchKey" | "NoSuchVersion" | "NotFound", _) | ("", 404) => NetError::new(NetErrorKind::Gone, url, format!("is not there ({description})")),
        (_, 412) | ("ConditionalRequestConflict", _) => {
            NetError::new(NetErrorKind::Changed, url, format!("another file is there ({description})"))
        }
        (_, 404) => final_error(format!("the store refuses it ({description})")),
        ("NotImplemented", _) | (_, 405 | 501) => final_error(format!("the store cannot do that ({description})")),
        ("EntityTooLarge", _) => final_error(format!("the store does not take a file of this size ({description})")),
        ("QuotaExceeded" | "XMinioStorageFull" | "InsufficientStorage", _) | (_, 507) => {
            NetError::new(NetErrorKind::Full, url, format!("the store takes no more ({description})"))
                .with_hint("raise the quota, or delete what is not needed")
        }
        // S3 sends 400 for a request that arrived too slowly, but such a request can be retried, as
        // after an overload.
        ("RequestTimeout", _) => NetError::status(url, 503, &description, refused.retry_after.as_deref()),
        _ => NetError::status(url, status, &description, refused.retry_after.as_deref()),
    }
}

fn clock_skew(url: &Url, refused: &Refused) -> NetError {
    let minutes = refused.clocks_differ_by.as_secs().div_ceil(60);
    let why = format!("this machine's clock is {minutes} minutes off the store's ({})", refused.code);
    NetError::new(NetErrorKind::Forbidden, url, why)
        .with_hint("set the clock (chronyc makestep, timedatectl set-ntp true): signatures are good for 15 minutes")
}

fn wrong_region(url: &Url, refused: &Refused, description: &str) -> NetError {
    let bucket = url.host_str().unwrap_or_default();
    let net_error = |why: String| NetError::new(NetErrorKind::Forbidden, url, why);
    match &refused.region {
        Some(region) => {
            net_error(format!("the bucket {bucket} is in the region {region}, which was not asked ({description})"))
                .with_hint(format!("set the region: AWS_REGION={region}"))
        }
        None => net_error(format!("the bucket {bucket} is elsewhere ({description})"))
            .with_hint("check the region (AWS_REGION) and the endpoint (AWS_ENDPOINT_URL)"),
    }
}
