use super::*;
use crate::levels::doubts::doubts;
use crate::levels::statistics::Summary;
use crate::levels::view::{self, LevelsView};
use crate::levels::{LevelRow, frames, link, sizes};

/// A row with fixed numbers, which follow from the level.
pub(crate) fn row(level: i32) -> LevelRow {
    let step = f64::from(level);
    let summary =
        |median: f64| Summary { median, min: median * 0.99, max: median * 1.02, deviation: median * 0.01, runs: 3 };
    LevelRow {
        codec: "zstd".to_string(),
        level,
        input_bytes: 1_000_000_000,
        output_bytes: (300_000_000.0 - 1e7 * step.max(0.0).sqrt() - 1e6 * step) as u64,
        compress: summary(1.5 * 1.4f64.powf(step)),
        compress_runs: Vec::new(),
        decompress: summary(0.6),
        cpu_percent: 198.4,
        compress_cpu_seconds: 1.984 * 1.5 * 1.4f64.powf(step),
        decompress_cpu_percent: 199.0,
        peak_memory_bytes: 64 << 20,
        size_error_percent: None,
        estimated_output_bytes: None,
        warnings: Vec::new(),
    }
}

pub(crate) fn rows() -> Vec<LevelRow> {
    [1, -1, 2, 3, 4].map(row).into()
}

/// Rows of several codecs, `none` among them, one of them measured under load.
pub(crate) fn codec_rows() -> Vec<LevelRow> {
    let mut rows = rows();
    let codecs = [("zstd", 1), ("zstd", -1000), ("lz4hc", 12), ("lz4", 0), ("none", 0)];
    for (row, (codec, level)) in rows.iter_mut().zip(codecs) {
        (row.codec, row.level) = (codec.to_string(), level);
    }
    rows[4].compress = Summary { median: 0.05, min: 0.049, max: 0.051, deviation: 0.001, runs: 3 };
    (rows[4].output_bytes, rows[4].peak_memory_bytes) = (1_000_000_000, 0);
    rows[2].warnings = vec![crate::levels::statistics::Warning::OtherLoad { lost_percent: 60.0 }];
    rows
}

pub(crate) fn subject() -> Subject {
    Subject {
        name: "ledger".to_string(),
        kind: "ledger",
        total_bytes: 1_000_000_000,
        measured_bytes: 1_000_000_000,
        frame_size_bytes: 8 << 20,
        threads: 2,
        provenance: vec![("input", "/mnt/ledger".to_string())],
    }
}

/// The sections of fixed numbers, by the view that they come from.
pub(crate) fn sections() -> Vec<(&'static str, Section)> {
    let many = codec_rows();
    let sampled: Vec<LevelRow> = rows()
        .into_iter()
        .map(|row| LevelRow {
            size_error_percent: Some(1.25),
            estimated_output_bytes: Some(row.output_bytes * 93),
            ..row
        })
        .collect();
    let levels = |rows: &[LevelRow]| view::section(rows).expect("rows");
    vec![
        ("levels", levels(&rows())),
        ("levels_of_a_sample", levels(&sampled)),
        ("codecs", levels(&many)),
        ("link", link::view::section(&link::report::tests::report())),
        ("sizes", sizes::view::section(&sizes::view::tests::report())),
        ("frames", frames::view::section(&frames::view::tests::report())),
    ]
}

/// What every format makes of every view: the screen, CSV, JSON, and a page without its pictures.
#[test]
fn every_view_in_every_format() {
    for (name, section) in sections() {
        let screen = terminal::lines(&section, 80);
        assert!(screen.iter().all(|line| line.chars().count() <= 80), "{}", screen.join("\n"));
        insta::assert_snapshot!(format!("{name}_screen"), screen.join("\n"));
        let text = csv::csv(section.tables()).expect("made");
        let commas: Vec<usize> = ::csv::ReaderBuilder::new()
            .has_headers(false)
            .from_reader(text.as_bytes())
            .records()
            .map(|record| record.expect("as wide as the first").len())
            .collect();
        assert!(commas.len() > 2, "{text}");
        insta::assert_snapshot!(format!("{name}_csv"), text);
        let lines: Vec<String> =
            section.tables().flat_map(json::lines).map(|line| serde_json::to_string(&line).expect("plain")).collect();
        insta::assert_snapshot!(format!("{name}_json"), lines.join("\n"));
        let page = html::page(&subject(), &section);
        let start = page.find("<main>").expect("a part of it");
        let mut body = page[start..page.find("</main>").expect("its end")].to_string();
        while let Some(from) = body.find("<svg") {
            let to = body.find("</svg>").expect("its end") + "</svg>".len();
            body.replace_range(from..to, "(picture)");
        }
        insta::assert_snapshot!(format!("{name}_page"), body);
    }
}

#[test]
fn rows_under_load_are_marked() {
    let rows = codec_rows();
    let view = LevelsView::new(&rows[0], Some(11));
    let line = |row: &LevelRow| terminal::row_line(&view.table(&[row]), 0, 80);
    assert!(line(&rows[2]).contains("1.40* "), "{}", line(&rows[2]));
    assert!(!line(&rows[1]).contains('*'), "{}", line(&rows[1]));
    assert_eq!(doubts(&rows).len(), 1);
}

#[test]
fn extremes_keep_their_columns_apart() {
    let rows = rows();
    let mut row = rows[0].clone();
    row.level = -1000;
    row.output_bytes = 10;
    row.compress.median = 98_765.0;
    row.decompress.median = 0.02;
    row.cpu_percent = 6400.0;
    let line = terminal::row_line(&LevelsView::new(&rows[0], None).table(&[&row]), 0, 80);
    assert_eq!(line.split_whitespace().count(), 16, "{line}");
}

#[test]
fn what_comes_from_outside_is_no_markup() {
    let name = "<script>\"'&|".to_string();
    let subject = Subject { name: name.clone(), ..subject() };
    let table = Table::of(&[&name]).column(Column::shown(&name, Unit::Text), |name: &String| name.clone()).finish("t");
    let advice = Advice { what: name.clone(), choice: name.clone(), reason: name.clone() };
    let texts = vec![name.clone()];
    let blocks = vec![
        Block::Facts(texts.clone()),
        Block::Table(table),
        Block::Doubts(texts.clone()),
        Block::Advice(vec![advice]),
        Block::Text(texts),
        Block::Chart { svg: String::new(), caption: name },
    ];
    let section = Section { id: "s", heading: "S", blocks };
    let page = html::page(&subject, &section);
    // The one script is the page's own.
    assert_eq!(page.matches("<script>").count(), 1, "{page}");
    assert!(page.contains("&lt;script&gt;&quot;'&amp;|"));
}
