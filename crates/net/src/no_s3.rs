//! In place of `s3`: refuses URLs of stores.

use reqwest::Method;
use slotpress_base::Progress;
use slotpress_format::ArchiveName;

use super::{Client, NetError, Url};

fn refused(url: &Url) -> NetError {
    NetError::forbidden(url, "this program was built without stores")
}

impl Client {
    pub(super) async fn signed(&self, _: &Method, url: &Url) -> Result<Url, NetError> {
        Err(refused(url))
    }

    pub(super) async fn explained(&self, _: &Url, error: NetError) -> NetError {
        error
    }

    pub(super) fn store_names(&self, url: &Url, _: &dyn Progress) -> Result<Vec<ArchiveName>, NetError> {
        Err(refused(url))
    }
}
