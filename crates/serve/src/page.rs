//! Renders the HTML page with the list of archives from the template `page.html`. The page is a single
//! document without external resources.

use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use minijinja::value::Serde;
use minijinja::{Environment, context};
use sha2::{Digest, Sha256};
use slotpress_base::{average_rate, quantity};
use slotpress_format::archive::listing;

use super::api::ArchiveList;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A host name has at most 253 bytes, and a port six with its colon.
const HOST_BYTES_MAX: usize = 260;

/// Headers that allow only the page's own style and script.
pub static HEADERS: LazyLock<[(HeaderName, String); 3]> = LazyLock::new(|| {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    );
    [
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".into()),
        (REFERRER_POLICY, "no-referrer".into()),
    ]
});

/// Name of the template. Its extension turns on escaping.
const TEMPLATE_NAME: &str = "page.html";

static TEMPLATES: LazyLock<Environment<'_>> = LazyLock::new(|| {
    let mut templates = Environment::new();
    templates.add_filter("count", quantity::count);
    templates.add_filter("size", |bytes: Option<u64>| bytes.map(quantity::bytes));
    templates.add_filter("rate", |bytes: u64, seconds: f64| {
        let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        quantity::bytes(average_rate(bytes, time))
    });
    templates.add_filter("age", |seconds: Option<u64>| {
        seconds.map_or("unknown".to_string(), |seconds| quantity::age(Duration::from_secs(seconds)))
    });
    templates.add_filter("without", u64::saturating_sub);
    templates.add_filter("short", shorten_parts);
    let source = include_str!("page.html").replace("STYLE", STYLE);
    let source = source.replace("SCRIPT", SCRIPT);
    // If the template does not parse, the tests of this file fail.
    let _ = templates.add_template_owned(TEMPLATE_NAME, source);
    templates
});

pub fn render_page(list: &ArchiveList, host: &str, is_tls: bool) -> String {
    let context = context! {
        list => Serde(list),
        origin => origin_url(host, is_tls),
        newest_paths => Serde([listing::NEWEST_FULL, listing::NEWEST_INCREMENTAL]),
        list_path => listing::LISTING_PATH,
    };
    let template = TEMPLATES.get_template(TEMPLATE_NAME);
    let page = template.and_then(|template| template.render(context));
    page.unwrap_or_else(|error| error.to_string())
}

/// Shortens a name or root: leaves out the middle of each long part, such as a hash, which would
/// fill half of a screen. The title of the element has the whole text.
fn shorten_parts(text: &str) -> String {
    let mut shortened = String::new();
    for piece in text.split_inclusive(['-', '.']) {
        let part = piece.trim_end_matches(['-', '.']);
        match (part.get(..6), part.get(part.len().saturating_sub(4)..)) {
            (Some(first), Some(last)) if part.len() > 24 => shortened += &format!("{first}…{last}"),
            _ => shortened += part,
        }
        shortened += piece.strip_prefix(part).unwrap_or_default();
    }
    shortened
}

/// Returns the origin for URLs in commands, with the host name that the client used for the server. A name that
/// a shell might interpret is replaced with `HOST`.
fn origin_url(host: &str, is_tls: bool) -> String {
    let host = if is_valid_host(host) { host } else { "HOST" };
    format!("{}://{host}", if is_tls { "https" } else { "http" })
}

fn is_valid_host(host: &str) -> bool {
    let is_host_char =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | ':' | '[' | ']' | '_');
    !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.chars().all(is_host_char)
}

#[cfg(test)]
mod tests {
    use slotpress_read::Catalog;

    use super::*;

    #[test]
    fn an_empty_list_is_rendered() {
        let list = ArchiveList::new(&Catalog::default(), Vec::new(), std::time::UNIX_EPOCH);
        let page = render_page(&list, "here", false);
        assert!(page.contains("There are no archives yet."), "{page}");
        assert!(page.ends_with("</html>"), "{page}");
    }

    #[test]
    fn hashes_are_shortened() {
        let name = "incremental-snapshot-26-40-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst";
        assert_eq!(shorten_parts(name), "incremental-snapshot-26-40-5vEhTb…z9nt.tar.zst");
        assert_eq!(shorten_parts(&"ab".repeat(32)), "ababab…abab");
    }

    #[test]
    fn only_valid_hosts_are_inserted() {
        for host in ["a.example:8890", "[::1]:80", "10.0.0.1"] {
            assert!(is_valid_host(host), "{host}");
        }
        for host in ["", "a<b", "a b", "a;rm", "a\"", "$(x)", &"x".repeat(300)] {
            assert!(!is_valid_host(host), "{host}");
        }
    }
}
