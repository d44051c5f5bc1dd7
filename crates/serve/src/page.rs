//! Makes the HTML page: archives, commands to copy, running transfers. It is a single document
//! without external resources.

use std::fmt::Write;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use sha2::{Digest, Sha256};
use slotpress_base::{per_second, quantity};
use slotpress_format::ArchiveName;
use slotpress_format::archive::listing;
use slotpress_read::catalog::Archive;
use slotpress_read::{Catalog, unix_ns};

use super::transfers::Transfer;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Largest number of transfers that the page shows.
const TRANSFERS_MAX: usize = 100;

/// Longest accepted host name.
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

/// Makes the page for a client that reached the server as `host`.
pub fn page(catalog: &Catalog, transfers: &[Arc<Transfer>], host: &str, is_tls: bool, now: SystemTime) -> String {
    let host = if is_host(host) { host } else { "HOST" };
    let origin = format!("{}://{host}", if is_tls { "https" } else { "http" });
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Snapshot archives</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>Snapshot archives</h1>\n"
    );
    let archives = catalog.archives();
    let newest = catalog.newest_slot().unwrap_or_default();
    let count = archives.len();
    if archives.is_empty() {
        html += "<p>There are no archives yet.</p>\n";
    } else {
        let plural = if count == 1 { "" } else { "s" };
        let slot_time = catalog.slot_time;
        let _ = writeln!(html, "<p>{count} archive{plural}, newest slot {newest}. A slot takes {slot_time}.</p>");
        table(&mut html, catalog, now);
        commands(&mut html, catalog, &origin);
    }
    running(&mut html, transfers);
    let _ = writeln!(
        html,
        "</main>\n<footer>slotpress {} · <a href=\"{}\">{1}</a></footer>\n<script>{SCRIPT}</script>\n</body>\n</html>",
        env!("CARGO_PKG_VERSION"),
        listing::LISTING_PATH
    );
    html
}

fn table(html: &mut String, catalog: &Catalog, now: SystemTime) {
    let choice = catalog.choice();
    let newest = catalog.newest_slot().unwrap_or_default();
    html.push_str(
        "<div class=\"scroll\"><table id=\"archives\">\n<thead><tr><th>Archive<th>Kind<th class=\"n\">Slot\
         <th class=\"n\">Behind<th class=\"n\">Age<th class=\"n\">Size<th>Root</tr></thead>\n<tbody>\n",
    );
    for archive in catalog.archives() {
        let is_chosen = |other: &Archive| other.name == archive.name;
        let is_chosen =
            choice.is_some_and(|choice| is_chosen(choice.full) || choice.incremental.is_some_and(is_chosen));
        let kind = match archive.name.base_slot {
            None => "full".to_string(),
            Some(base) if catalog.base_of(archive).is_some() => format!("on {base}"),
            Some(base) => format!("on {base}, which is not here"),
        };
        let name = archive.name.to_string();
        let root = archive.hashes.map_or("–".to_string(), |hashes| hashes.root.to_string());
        let _ = writeln!(
            html,
            "<tr{}><td class=\"name\"><a href=\"/{name}\" title=\"{name}\">{}</a>{}<td>{kind}<td class=\"n\" data-of=\"Slot\">{}\
             <td class=\"n\" data-of=\"Behind\">{}<td class=\"n\" data-of=\"Age\" title=\"{}\">{}<td class=\"n\" data-of=\"Size\">{}\
             <td class=\"root\" data-of=\"Root\" title=\"{root}\">{}</tr>",
            if archive.is_full() { " class=\"full\"" } else { "" },
            shortened(&archive.name),
            if is_chosen { " <b title=\"A new node would take it\">newest</b>" } else { "" },
            archive.name.slot,
            catalog.slot_time.show(newest.saturating_sub(archive.name.slot)),
            here_since(archive, now),
            catalog.age_of(archive, unix_ns(now)).map_or("unknown".to_string(), quantity::age),
            quantity::bytes(archive.size_bytes),
            middle_left_out(&root),
        );
    }
    html.push_str("</tbody></table></div>\n");
}

/// Tells how long the file has been on this server. This says nothing about the age of its state.
fn here_since(archive: &Archive, now: SystemTime) -> String {
    match archive.modified_ns {
        0 => String::new(),
        _ => format!("here since {}", quantity::age(archive.age(unix_ns(now)))),
    }
}

/// Shortens an archive name: leaves out the middle of the hash, which would take half of a screen.
/// The link's title has the whole name.
fn shortened(name: &ArchiveName) -> String {
    let (hash, whole) = (name.hash.to_string(), name.to_string());
    whole.replace(&hash, &middle_left_out(&hash))
}

fn middle_left_out(hash: &str) -> String {
    match (hash.get(..6), hash.get(hash.len().saturating_sub(4)..)) {
        (Some(first), Some(last)) if hash.len() > 12 => format!("{first}…{last}"),
        _ => hash.to_string(),
    }
}

fn commands(html: &mut String, catalog: &Catalog, origin: &str) {
    let Some(choice) = catalog.choice() else { return };
    html.push_str("<h2>To fetch the newest</h2>\n");
    let mut lines = vec![format!("curl -fL --remote-name -C - {origin}/{}", choice.full.name)];
    if let Some(incremental) = choice.incremental {
        lines.push(format!("curl -fL --remote-name -C - {origin}/{}", incremental.name));
    }
    lines.push(format!("aria2c -x 8 -s 8 {origin}/{}", choice.full.name));
    lines.push(format!("slotpress bootstrap {origin} --ledger /mnt/ledger"));
    for line in lines {
        let _ = writeln!(html, "<div class=\"command\"><code>{line}</code><button type=\"button\">Copy</button></div>");
    }
    let [full, incremental] =
        [listing::NEWEST_FULL, listing::NEWEST_INCREMENTAL].map(|path| format!("<a href=\"{path}\">{path}</a>"));
    let _ = writeln!(html, "<p>{full} and {incremental} lead to the newest archives.</p>");
}

fn running(html: &mut String, transfers: &[Arc<Transfer>]) {
    let _ = writeln!(html, "<h2>Transfers</h2>\n<p id=\"running\">{} running.</p>", transfers.len());
    if transfers.is_empty() {
        return;
    }
    html.push_str("<div class=\"scroll\"><table id=\"transfers\"><thead><tr><th>Archive<th class=\"n\">Sent<th class=\"n\">Of<th class=\"n\">Rate</tr></thead>\n<tbody>\n");
    for transfer in transfers.iter().take(TRANSFERS_MAX) {
        let name = &transfer.name;
        let _ = writeln!(
            html,
            "<tr><td class=\"name\" title=\"{name}\">{}<td class=\"n\" data-of=\"Sent\">{}<td class=\"n\" data-of=\"Of\">{}\
             <td class=\"n\" data-of=\"Rate\">{}/s</tr>",
            ArchiveName::parse(name).map_or_else(|| name.clone(), |name| shortened(&name)),
            quantity::bytes(transfer.sent_bytes()),
            quantity::bytes(transfer.total_bytes()),
            quantity::bytes(per_second(transfer.sent_bytes(), transfer.elapsed())),
        );
    }
    html.push_str("</tbody></table></div>\n");
}

/// True for a host name or address, with or without a port, that has no special characters of HTML
/// or a shell.
fn is_host(host: &str) -> bool {
    let is_fit = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | ':' | '[' | ']' | '_');
    !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.chars().all(is_fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_calls_this_host_cannot_change_the_page() {
        for host in ["a.example:8890", "[::1]:80", "10.0.0.1"] {
            assert!(is_host(host), "{host}");
        }
        for host in ["", "a<b", "a b", "a;rm", "a\"", "$(x)", &"x".repeat(300)] {
            assert!(!is_host(host), "{host}");
        }
    }
}
