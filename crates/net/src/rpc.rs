//! Requests small documents, and calls methods of JSON-RPC 2.0 servers.

use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};
use slotpress_base::Progress;
use tokio::time::timeout;

use super::remote::content_length;
use super::request::{RequestTemplate, check_encoding, send, status_error};
use super::{Client, NetError, NetErrorKind, Url};

impl Client {
    /// Downloads a small document.
    ///
    /// # Errors
    /// The server does not answer, its status is not success, or the document is longer than `bytes_max`
    /// or does not arrive within `document_timeout`.
    #[doc(hidden)]
    pub fn get_document(&self, url: &Url, bytes_max: usize, progress: &dyn Progress) -> Result<Vec<u8>, NetError> {
        self.request_document(url, &RequestTemplate::new(Method::GET), bytes_max, progress)
    }

    /// Calls a method of a JSON-RPC server, and returns its `result`.
    ///
    /// # Errors
    /// See [`Client::get_document`]; or the answer is not JSON-RPC, or reports an error.
    #[doc(hidden)]
    pub fn call_rpc(
        &self,
        url: &Url,
        method: &str,
        params: Value,
        bytes_max: usize,
        progress: &dyn Progress,
    ) -> Result<Value, NetError> {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let mut template = RequestTemplate::new(Method::POST);
        template.body = Some(call.as_bytes());
        template.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let document = self.request_document(url, &template, bytes_max, progress)?;
        let bad_answer = |why: &str| NetError::bad_answer(url, format!("{method}: {why}"));
        let mut answer: Value = serde_json::from_slice(&document).map_err(|_| bad_answer("the answer is not JSON"))?;
        if let Some(error) = answer.get("error").filter(|error| !error.is_null()) {
            let message = error.get("message").and_then(Value::as_str).unwrap_or("an error without a message");
            return Err(bad_answer(message));
        }
        answer.get_mut("result").map(Value::take).ok_or_else(|| bad_answer("the answer has no result"))
    }

    fn request_document(
        &self,
        url: &Url,
        template: &RequestTemplate<'_>,
        bytes_max: usize,
        progress: &dyn Progress,
    ) -> Result<Vec<u8>, NetError> {
        let limit = self.inner.options.document_timeout;
        self.block_on(progress, async {
            timeout(limit, self.read_document(url, template, bytes_max)).await.unwrap_or_else(|_| {
                let why = format!("no complete answer within {} s", limit.as_secs_f32());
                Err(NetError::new(NetErrorKind::Timeout, url, why))
            })
        })
    }

    async fn read_document(
        &self,
        url: &Url,
        template: &RequestTemplate<'_>,
        bytes_max: usize,
    ) -> Result<Vec<u8>, NetError> {
        let scope = self.scope(self.trusts_urls.then_some(url));
        let (mut response, url) = send(self, &scope, url, template).await?;
        let too_long_error = || {
            let why = format!("the answer is longer than {bytes_max} bytes");
            NetError::new(NetErrorKind::TooLong, &url, why)
        };
        if !response.status().is_success() {
            return Err(status_error(&url, &response));
        }
        check_encoding(&url, &response)?;
        if content_length(&url, response.headers())?.is_some_and(|length| length > bytes_max as u64) {
            return Err(too_long_error());
        }
        let mut document = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(piece)) if document.len().saturating_add(piece.len()) > bytes_max => {
                    return Err(too_long_error());
                }
                Ok(Some(piece)) => document.extend_from_slice(&piece),
                Ok(None) => return Ok(document),
                Err(error) => return Err(NetError::from_body(&url, &error.without_url(), document.len() as u64)),
            }
        }
    }
}
