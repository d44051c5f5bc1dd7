//! The page of `levels --html`, in a real browser: it opens without errors, loads nothing else, can
//! be sorted, is dark if the reader prefers dark pages, and fits a phone.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::common::browser::Browser;
use crate::common::*;

/// Makes a page of a fixture, with one short run per level.
fn make_page(dir: &Path, arguments: &[&str]) -> PathBuf {
    let path = dir.join("page.html");
    slotpress().args(arguments).arg("--html").arg(&path).arg(fixture(FULL_26)).assert().success();
    path
}

#[test]
fn the_page_loads_nothing() {
    let dir = temp_dir();
    let html =
        fs::read_to_string(make_page(dir.path(), &["levels", "--levels", "1-3", "--repeat", "1"])).expect("a page");
    // The name of the SVG language looks like an address, but is not loaded.
    let without_namespace = html.replace("http://www.w3.org/2000/svg", "");
    for reference in ["http:", "https:", "//", "@import", "url(", "src="] {
        let lines: Vec<&str> = without_namespace.lines().filter(|line| line.contains(reference)).collect();
        let is_comment = |line: &&str| line.starts_with("// ");
        assert!(lines.iter().all(is_comment), "{reference}: {lines:?}");
    }
    assert!(html.starts_with("<!doctype html>"));
    assert!(html.trim_end().ends_with("</html>"));
}

#[test]
fn the_page_of_levels_works_in_a_browser() {
    needs!("chromium", "chromedriver");
    assert_page_works(
        &["levels", "--levels", "-5,1-4", "--repeat", "1", "--min-time", "0"],
        &["levels-table"],
        Some(8),
    );
}

#[test]
fn the_page_of_a_link_works_in_a_browser() {
    needs!("chromium", "chromedriver");
    let measured = ["levels", "link", "--levels", "-5,1-4", "--repeat", "1", "--min-time", "0"];
    let link = ["--bandwidth", "100Mbit", "--rtt", "60ms", "--nodes", "3", "--egress-price", "0.09"];
    assert_page_works(&[measured.as_slice(), &link].concat(), &["link-table", "break-even-table"], Some(6));
}

#[test]
fn the_pages_of_sizes_and_frames_work_in_a_browser() {
    needs!("chromium", "chromedriver");
    assert_page_works(&["levels", "sizes", "--repeat", "1", "--min-time", "0"], &["sizes-table"], None);
    let tables = ["frames-table", "compress-table", "decompress-table"];
    assert_page_works(&["levels", "frames", "--sizes", "64,4KiB", "--min-time", "0"], &tables, Some(2));
}

/// Script that finds pairs of texts in one picture that overlap. Fonts may differ by a pixel.
const COLLISIONS: &str = "
    const box = (text) => text.getBBox();
    const overlap = (a, b) => a.x + 1 < b.x + b.width && b.x + 1 < a.x + a.width
        && a.y + 3 < b.y + b.height && b.y + 3 < a.y + a.height;
    return [...document.querySelectorAll('svg')].flatMap((svg) => {
        const texts = [...svg.querySelectorAll('text')];
        return texts.flatMap((text, index) => texts.slice(index + 1).filter((other) => overlap(box(text), box(other)))
            .map((other) => `${svg.getAttribute('aria-label')}: ${text.textContent} / ${other.textContent}`));
    })";

/// Asserts that a page with these tables works. The first table must have `rows` rows, or any number of
/// rows if it is `None`.
fn assert_page_works(arguments: &[&str], tables: &[&str], rows: Option<u64>) {
    let dir = temp_dir();
    let page = make_page(dir.path(), arguments);
    let browser = Browser::start(dir.path());
    browser.post("url", &json!({ "url": format!("file://{}", page.display()) }));

    let count =
        |selector: &str| browser.evaluate(&format!("return document.querySelectorAll('{selector}').length")).as_u64();
    let row_count = count(&format!("#{} tbody tr", tables[0])).expect("a number");
    assert!(row_count > 0, "no rows");
    assert_eq!(row_count, rows.unwrap_or(row_count), "rows of {}", tables[0]);
    if tables[0] == "levels-table" {
        assert_eq!(count("svg circle[r=\\'4\\']"), rows, "a point per level");
        assert_eq!(count(".series"), Some(2), "two codecs");
    }
    assert_eq!(browser.strings(COLLISIONS), Vec::<String>::new(), "labels overlap");
    assert_eq!(browser.evaluate("return performance.getEntriesByType('resource').length"), 0, "nothing is fetched");

    let table_ids = browser.strings("return [...document.querySelectorAll('table')].map(table => table.id)");
    assert_eq!(table_ids, tables);
    for table in table_ids {
        assert_sorts_by_every_column(&browser, &table);
    }

    // A line above a table says that the table is cut off if, and only if, it is.
    const WRONG_LINES: &str = "return [...document.querySelectorAll('.scroll')].filter((box) =>
        box.scrollWidth > box.clientWidth !== (box.previousElementSibling.offsetHeight > 0)).length";
    wait_for("lines above cut tables", || browser.evaluate(WRONG_LINES) == 0);
    browser.assert_dark_and_narrow();
    wait_for("lines above cut tables", || browser.evaluate(WRONG_LINES) == 0);
    let count_lines = "return [...document.querySelectorAll('.more')].filter((line) => line.offsetHeight > 0).length";
    assert!(browser.evaluate(count_lines).as_u64() > Some(0), "a phone cuts tables");

    let log = browser.post("se/log", &json!({ "type": "browser" }));
    assert_eq!(log, json!([]), "the console has messages");
}

/// A click on a heading sorts by that column; another click reverses the order. Words are sorted as
/// words.
fn assert_sorts_by_every_column(browser: &Browser, table: &str) {
    let columns = browser.evaluate(&format!("return document.querySelectorAll('#{table} th').length"));
    for column in 0..columns.as_u64().expect("a number") {
        let button = format!("document.querySelectorAll('#{table} th button')[{column}]");
        let values = format!(
            "return [...document.querySelectorAll('#{table} tbody tr')].map(row => row.cells[{column}].dataset.value)"
        );
        let before = browser.strings(&values);
        let order = |expected: &str| {
            browser.evaluate(&format!("{button}.click()"));
            let sort = browser.evaluate(&format!("return {button}.closest('th').getAttribute('aria-sort')"));
            assert_eq!(sort, expected);
            browser.strings(&values)
        };
        let mut sorted = before.clone();
        let number = |text: &String| if text.is_empty() { f64::INFINITY } else { text.parse().unwrap_or(f64::NAN) };
        if before.iter().any(|value| number(value).is_nan()) {
            sorted.sort()
        } else {
            sorted.sort_by(|a, b| number(a).total_cmp(&number(b)))
        }
        assert_eq!(order("ascending"), sorted, "{table}, column {column}");
        let descending = order("descending");
        assert_eq!(descending.first(), sorted.last(), "{table}, column {column}");
        assert_eq!(descending.last(), sorted.first(), "{table}, column {column}");
    }
}
