//! Turns a store's refusals into errors with hints.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use slotpress_base::{Error, ErrorKind, clock, hint, one_line};

use crate::{NetError, NetErrorKind, Url};

/// Stores refuse signatures if clocks differ by more than 15 minutes. If they differ by more than half of
/// that, the error names the clocks as the cause of the refusal.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(450);

/// A store's refusal, without the URL of the file.
#[derive(Debug)]
pub struct Refusal(NetError);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Refusal {}

pub fn from_store_error(url: &Url, error: &object_store::Error) -> NetError {
    let mut cause: &(dyn StdError + 'static) = error;
    // Chains of causes are short. The limit ends a cycle.
    for _ in 0..16 {
        if let Some(Refusal(error)) = cause.downcast_ref() {
            return error.clone().with_url(url);
        }
        if let Some(error) = cause.downcast_ref::<NetError>() {
            return error.clone();
        }
        let Some(inner) = cause.source() else { break };
        cause = inner;
    }
    // Only the innermost error is shown, because outer ones contain URLs with queries, which may be secret.
    NetError::new(NetErrorKind::BadAnswer, url, cause)
}

/// Converts an error that occurred before any request to a store.
pub fn to_net_error(url: &Url, error: &Error) -> NetError {
    let kind = match error.kind() {
        ErrorKind::PermissionDenied => NetErrorKind::Denied,
        _ => NetErrorKind::Forbidden,
    };
    let net_error = NetError::new(kind, url, error);
    match error.hint() {
        Some(hint) => net_error.with_hint(hint.to_string()),
        None => net_error,
    }
}

fn kind_of_code(code: &str) -> Option<NetErrorKind> {
    match code {
        "NoSuchUpload" | "NoSuchKey" | "NoSuchVersion" | "NotFound" => Some(NetErrorKind::Gone),
        "InvalidPart" | "InvalidPartOrder" | "ConditionalRequestConflict" => Some(NetErrorKind::Changed),
        "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" | "InvalidToken" => {
            Some(NetErrorKind::Denied)
        }
        // The last code is versitygw's, with status 404.
        "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "UnrecognizedClientException" | "XAdminUserNotFound" => {
            Some(NetErrorKind::Denied)
        }
        "NoSuchBucket" | "RequestTimeTooSkewed" | "RequestExpired" | "NotImplemented" | "EntityTooLarge" => {
            Some(NetErrorKind::Forbidden)
        }
        "AuthorizationHeaderMalformed" | "AuthorizationQueryParametersError" => Some(NetErrorKind::Forbidden),
        "IllegalLocationConstraintException" => Some(NetErrorKind::Forbidden),
        "QuotaExceeded" | "XMinioStorageFull" | "InsufficientStorage" => Some(NetErrorKind::Full),
        // S3 sends `RequestTimeout` with status 400 if a request arrives too slowly. It may be retried, as
        // after an overload.
        "RequestTimeout" | "SlowDown" | "ServiceUnavailable" => Some(NetErrorKind::Status(503)),
        "InternalError" => Some(NetErrorKind::Status(500)),
        _ => None,
    }
}

/// Interprets a response that refuses a request. Responses to `HEAD` have no code.
pub fn parse_refusal(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Refusal {
    let text = String::from_utf8_lossy(body);
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(one_line(rest.split_once('<')?.0))
    };
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(one_line);
    let code = element("Code").unwrap_or_default();
    let message = element("Message").unwrap_or_default();
    let region = header("x-amz-bucket-region").or_else(|| element("Region"));
    let date = header(DATE.as_str()).and_then(|text| httpdate::parse_http_date(&text).ok());
    let difference = date.map(|date| date.duration_since(clock::now()).unwrap_or_else(|error| error.duration()));
    let clock_skew = difference.unwrap_or_default();
    let status = status.as_u16();
    let is_clock_off = ["RequestTimeTooSkewed", "RequestExpired"].contains(&code.as_str())
        || (status == 403 && clock_skew > CLOCK_SKEW_MAX);
    let kind = kind_of_code(&code).unwrap_or(match status {
        _ if is_clock_off => NetErrorKind::Forbidden,
        301 | 307 | 308 | 405 | 501 => NetErrorKind::Forbidden,
        400 if code.is_empty() && region.is_some() => NetErrorKind::Forbidden,
        401 | 403 => NetErrorKind::Denied,
        404 if code.is_empty() => NetErrorKind::Gone,
        404 => NetErrorKind::Forbidden,
        412 => NetErrorKind::Changed,
        507 => NetErrorKind::Full,
        _ => NetErrorKind::Status(status),
    });
    let reasons: Vec<&str> = [code.as_str(), &message].into_iter().filter(|text| !text.is_empty()).collect();
    let retry_after = header(RETRY_AFTER.as_str());
    let error = NetError::from_status(kind, status, &reasons.join(": "), retry_after.as_deref());
    Refusal(match kind {
        _ if is_clock_off => error.with_hint(format!(
            "set the clock (chronyc makestep, timedatectl set-ntp true): it is {} minutes off the store's, and \
             signatures are valid for 15 minutes",
            clock_skew.as_secs().div_ceil(60)
        )),
        NetErrorKind::Denied => error.with_hint(hint::SET_CREDENTIALS),
        NetErrorKind::Full => error.with_hint("raise the quota, or delete what is not needed"),
        NetErrorKind::Forbidden => error.with_hint(match region {
            Some(region) => format!("the bucket is in a different region: AWS_REGION={region}"),
            None => "check the bucket's name, the region (AWS_REGION) and the endpoint (AWS_ENDPOINT_URL)".to_string(),
        }),
        _ => error,
    })
}
