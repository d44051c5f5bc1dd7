//! The page, in a real browser. It loads nothing else, fits a phone, and is dark if the reader prefers
//! a dark page.

use std::io::Read;

use serde_json::json;

use crate::common::browser::Browser;
use crate::common::served::{ServeProcess, large_archive, read_head, send, two_archives};
use crate::common::*;

#[test]
fn the_page_loads_nothing_from_other_hosts() {
    let server = ServeProcess::start(&[]);
    let response = server.get("/", "Host: mirror.example:8890\r\n");
    let html = response.text();
    assert!(html.starts_with("<!doctype html>"));
    assert!(html.trim_end().ends_with("</html>"));
    for reference in ["//", "@import", "url(", "src="] {
        let lines: Vec<&str> = html.lines().filter(|line| line.contains(reference)).collect();
        assert!(lines.iter().all(|line| line.contains("<code>")), "{reference} occurs outside commands: {lines:?}");
    }
    assert!(response.header("content-security-policy").starts_with("default-src 'none'"));
    let html = server.get("/", "Host: x\"><script>alert(1)</script>\r\n").text();
    assert!(!html.contains("alert"), "the page contains the invalid host of a request");
}

#[test]
fn a_browser_shows_archives_and_transfers() {
    needs!("chromium", "chromedriver");
    let dir = two_archives();
    let (name, _) = large_archive(dir.path(), 20, 32 << 20);
    let server = ServeProcess::start_in(dir, &[]);
    let mut reader = server.connect();
    send(&mut reader, "GET", &format!("/{name}"), "");
    read_head(&mut reader).expect("a head");
    let profile = temp_dir();
    let browser = Browser::start(profile.path());
    browser.post("url", &json!({ "url": server.url("/") }));

    assert_eq!(browser.evaluate("return document.querySelectorAll('#archives tbody tr').length"), 3);
    assert_eq!(
        browser.evaluate("return document.querySelectorAll('#archives b').length"),
        2,
        "archives that a node would choose"
    );
    assert_eq!(browser.evaluate("return document.querySelectorAll('#transfers tbody tr').length"), 1);
    assert_eq!(
        browser.evaluate("return performance.getEntriesByType('resource').length"),
        0,
        "the page loads other resources"
    );
    let command = "return document.querySelector('.command code').textContent";
    assert_eq!(
        browser.evaluate(command),
        format!("curl -fL --remote-name -C - {}", server.url(&format!("/{FULL_26}")))
    );
    browser.evaluate("document.querySelector('.command button').click()");

    // All columns that are shown fit the screens of a small notebook and of a phone. On a phone, a row has
    // several lines.
    let cut_cells = "return [...document.querySelectorAll('#archives td')].filter((cell) => {
        const box = cell.getBoundingClientRect();
        return box.width > 0 && (box.left < 0 || box.right > innerWidth || cell.scrollWidth > cell.clientWidth + 1);
    }).map((cell) => cell.textContent)";
    for (width, height) in [(1300, 800), (390, 844)] {
        let screen = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        browser.devtools("Emulation.setDeviceMetricsOverride", &screen);
        let is_wider = "return document.documentElement.scrollWidth > innerWidth";
        assert_eq!(browser.evaluate(is_wider), false, "{width} pixels");
        assert_eq!(browser.strings(cut_cells), [""; 0], "{width} pixels");
    }
    browser.devtools("Emulation.clearDeviceMetricsOverride", &json!({}));
    assert_eq!(browser.evaluate("return document.querySelector('#archives a').title"), FULL_26);
    browser.assert_dark_and_narrow();

    // The page shows without a reload that the transfer has ended. While text is
    // selected, as after the click above, the page is not updated.
    browser.evaluate("getSelection().removeAllRanges()");
    let _ = reader.take(64 << 20).read_to_end(&mut Vec::new()).is_ok();
    wait_for("a page without transfers", || {
        browser.evaluate("return document.querySelectorAll('#transfers').length") == 0
    });
    let log = browser.post("se/log", &json!({ "type": "browser" }));
    assert_eq!(log, json!([]), "the console has messages");
}
