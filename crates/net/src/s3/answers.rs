//! Makes one request to a store, and reads the whole response: limits time and size, and parses error
//! responses.
//!
//! `object_store`, which signs the requests, would read responses of any length, and limit each
//! request to 30 s.

use std::error::Error as _;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::{BodyExt, Limited};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::Method;
use slotpress_base::hint;
use tokio::time::timeout;

use super::failure::parse_refusal;
use crate::{NetError, NetErrorKind, Url};

/// Time limit for the response to a small request. It also ends a request that hyper loses if the
/// connection ends just as the request is handed over (hyperium/hyper#4122).
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Minimum upload rate, from which the time limit of an upload follows. A dead connection is noticed
/// earlier, after 30 s without an acknowledgement.
const SENT_BYTES_PER_SECOND_MIN: u64 = 32 * 1024;

/// Time limit for completing an upload. This takes minutes for hundreds of gigabytes, and longer if a
/// gateway in front of a file system copies the whole file.
const COMPLETE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Time limit for a request to the machine's metadata service, which is local or absent.
const METADATA_TIMEOUT: Duration = Duration::from_secs(5);

/// Limit on the size of a response. A list of 1,000 files has half a megabyte.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

#[derive(Debug)]
pub struct Connector(pub reqwest::Client);

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // `object_store` allows plain HTTP only for its requests to the machine's metadata service.
        let is_metadata = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|allows| allows == "true");
        Ok(HttpClient::new(LimitedHttpService { http: self.0.clone(), is_metadata }))
    }
}

#[derive(Debug)]
struct LimitedHttpService {
    http: reqwest::Client,
    is_metadata: bool,
}

#[async_trait]
impl HttpService for LimitedHttpService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // Cannot fail: the request was made from a URL.
        let parsed = Url::parse(&request.uri().to_string());
        let mut url = parsed.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        url.set_query(None);
        let limit = self.time_limit(&request);
        let answer = timeout(limit, send_and_check(&self.http, &url, request)).await.unwrap_or_else(|_| {
            let why = format!("no answer within {} s", limit.as_secs());
            Err(wrap_error(NetError::new(NetErrorKind::Timeout, &url, why)))
        });
        answer.map_err(|error| if self.is_metadata { wrap_error(no_credentials_error(&url)) } else { error })
    }
}

/// Wraps an error in the type that `object_store` passes on.
fn wrap_error(error: impl std::error::Error + Send + Sync + 'static) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, error)
}

impl LimitedHttpService {
    fn time_limit(&self, request: &HttpRequest) -> Duration {
        let query = request.uri().query().unwrap_or_default();
        let upload_time = Duration::from_secs(request.body().content_length() as u64 / SENT_BYTES_PER_SECOND_MIN);
        if self.is_metadata {
            METADATA_TIMEOUT
        } else if request.method() == Method::POST && query.contains("uploadId=") {
            COMPLETE_TIMEOUT
        } else {
            ANSWER_TIMEOUT.saturating_add(upload_time)
        }
    }
}

async fn send_and_check(http: &reqwest::Client, url: &Url, request: HttpRequest) -> Result<HttpResponse, HttpError> {
    let is_post = request.method() == Method::POST;
    let is_list = request.uri().query().unwrap_or_default().contains("list-type=");
    let response = HttpService::call(http, request).await;
    let (head, body) = response.map_err(|error| wrap_error(from_transport_error(url, &error)))?.into_parts();
    let body = read_body(url, body).await.map_err(wrap_error)?;
    // When an upload is completed, the store sends the status before it knows the result.
    let is_late_refusal = is_post && contains(&body, b"<Error>");
    if !head.status.is_success() || is_late_refusal {
        return Err(wrap_error(parse_refusal(head.status, &head.headers, &body)));
    }
    // `object_store` would read any other document as an empty list.
    if is_list && !contains(&body, b"<ListBucketResult") {
        let why = "the answer is not the list of a bucket: the endpoint does not speak S3";
        return Err(wrap_error(NetError::new(NetErrorKind::BadAnswer, url, why).with_hint("check the endpoint")));
    }
    Ok(HttpResponse::from_parts(head, body.into()))
}

async fn read_body(url: &Url, body: HttpResponseBody) -> Result<Vec<u8>, NetError> {
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| match error.downcast_ref::<HttpError>() {
        Some(error) => from_transport_error(url, error),
        None => NetError::new(NetErrorKind::TooLong, url, "the answer is longer than 8 MiB"),
    })?;
    Ok(body.to_bytes().into())
}

fn from_transport_error(url: &Url, error: &HttpError) -> NetError {
    match error.source().and_then(|cause| cause.downcast_ref::<reqwest::Error>()) {
        // It does not matter whether the request was sent: every request to a store can be retried.
        Some(error) if error.is_body() || error.is_decode() => {
            NetError::new(NetErrorKind::Truncated { received_bytes: 0 }, url, "the connection ended early")
        }
        Some(error) => NetError::from_request(url, error),
        None => NetError::new(NetErrorKind::BadAnswer, url, error),
    }
}

fn no_credentials_error(url: &Url) -> NetError {
    let why = "no credentials: neither the environment, nor the profile, nor the machine's metadata service has any";
    NetError::new(NetErrorKind::Denied, url, why).with_hint(hint::SET_CREDENTIALS)
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
