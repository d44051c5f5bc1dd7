//! Replaces the module `s3` in a build without stores: refuses their URLs.

use reqwest::Method;
use slotpress_base::Progress;
use slotpress_format::ArchiveName;

use super::{Client, NetError, Url};

fn no_stores_error(url: &Url) -> NetError {
    NetError::forbidden(url, "this program was built without stores")
}

impl Client {
    pub(super) async fn sign_url(&self, _: &Method, url: &Url) -> Result<Url, NetError> {
        Err(no_stores_error(url))
    }

    pub(super) async fn explain_refusal(&self, _: &Url, error: NetError) -> NetError {
        error
    }

    pub(super) fn list_store(&self, url: &Url, _: &dyn Progress) -> Result<Vec<ArchiveName>, NetError> {
        Err(no_stores_error(url))
    }
}
