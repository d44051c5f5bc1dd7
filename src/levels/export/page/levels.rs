//! The section of the levels: what to choose, size against time, the table.

use {
    super::{
        Section,
        html::{Cell, Table, figure, list},
    },
    crate::levels::{
        LevelRow,
        export::{chart::escaped, show_bytes, show_seconds, svg, warnings::warning_lines},
        has_codecs, in_order,
        recommend::{Recommendation, recommend},
        reference_row,
    },
};

/// The section, where levels were measured.
pub fn section(rows: &[LevelRow]) -> Option<Section> {
    let reference = reference_row(rows)?;
    let recommendation = recommend(rows)?;
    let mut html = choices(&recommendation);
    if rows.len() > 1 {
        html += &figure(
            &svg::in_page(rows),
            "Levels on the line are beaten by no other in both size and time; the ring is the knee. Further left is \
             faster, further down is smaller.",
        );
    }
    html += &table(rows, reference, &recommendation);
    let warnings = warning_lines(rows);
    if !warnings.is_empty() {
        html += &format!("<p>What is doubtful:</p>\n{}", list(&warnings));
    }
    Some(Section { id: "levels", heading: "Levels", html })
}

fn choices(recommendation: &Recommendation) -> String {
    let Recommendation { shortest_time, smallest_size, knee, others: _ } = recommendation;
    let items: String = [("Shortest time", shortest_time), ("Best of both", knee), ("Smallest size", smallest_size)]
        .map(|(what, choice)| {
            format!(
                "<li>{what}<b><code>{}</code></b><span class=\"note\">{}</span></li>\n",
                escaped(&choice.flag()),
                escaped(&choice.reason)
            )
        })
        .concat();
    format!("<ul class=\"choices\">\n{items}</ul>\n")
}

fn table(rows: &[LevelRow], reference: &LevelRow, recommendation: &Recommendation) -> String {
    let is_many = has_codecs(rows);
    let against = if is_many { reference.label() } else { reference.level.to_string() };
    let mut table = Table::new(
        "levels-table",
        &[
            if is_many { "codec" } else { "level" },
            "size",
            "ratio",
            &format!("size vs {against}"),
            "compress",
            "MB/s",
            &format!("time vs {against}"),
            "CPU",
            "decompress",
            "MB/s",
            "memory",
        ],
    );
    for row in in_order(rows) {
        let error = row.size_error_percent.map(|error| format!(" ± {error:.1} %")).unwrap_or_default();
        table.row(
            if recommendation.knee.is_of(row) && rows.len() > 1 { "knee" } else { "" },
            &[
                if is_many { Cell::word(row.label()) } else { Cell::number(row.level, row.level) },
                Cell::number(show_bytes(row.output_bytes), row.output_bytes as f64),
                Cell::number(format!("{:.3}{error}", row.ratio()), row.ratio()),
                Cell::number(format!("{:.1} %", row.size_percent_of(reference)), row.size_percent_of(reference)),
                Cell::number(show_seconds(row.compress.median), row.compress.median),
                Cell::number(format!("{:.0}", row.compress_mb_per_second()), row.compress_mb_per_second()),
                Cell::number(format!("{:.2}", row.time_factor_of(reference)), row.time_factor_of(reference)),
                Cell::number(format!("{:.0} %", row.cpu_percent), row.cpu_percent),
                Cell::number(show_seconds(row.decompress.median), row.decompress.median),
                Cell::number(format!("{:.0}", row.decompress_mb_per_second()), row.decompress_mb_per_second()),
                Cell::number(show_bytes(row.peak_memory_bytes), row.peak_memory_bytes as f64),
            ],
        );
    }
    table.finish()
}
