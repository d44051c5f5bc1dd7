//! The tables on the terminal: lines of at most 80 characters.

use {
    super::{describe_bundles, directions, latency_texts, unit_name},
    crate::levels::{export::show_bytes, frames::FramesReport},
    std::iter::once,
};

/// All tables, each with an empty line before it.
pub fn tables(report: &FramesReport) -> Vec<String> {
    let mut lines = sizes(report);
    for (what, of) in directions() {
        lines.push(String::new());
        let heading = format!("{what}: time of one frame, percentiles");
        lines.push(heading);
        let columns = ["average", "+-", "min", "50", "90", "99", "99.99", "99.9999", "max"];
        lines.push(latency_line("frame", columns.into_iter().map(String::from)));
        for row in &report.sizes {
            lines.push(latency_line(&show_bytes(row.frame_size_bytes), latency_texts(of(row)).into_iter()));
        }
    }
    lines.extend(bundles(report));
    lines
}

fn latency_line(name: &str, cells: impl Iterator<Item = String>) -> String {
    once(format!("{name:>8}")).chain(cells.map(|cell| format!(" {cell:>7}"))).collect()
}

fn sizes(report: &FramesReport) -> Vec<String> {
    let line = |cells: [String; 7]| {
        let [frame, frames, ratio, saving, compress, decompress, memory] = cells;
        format!("{frame:>8} {frames:>10} {ratio:>7} {saving:>8} {compress:>9} {decompress:>11} {memory:>10}")
    };
    let mut lines = vec![
        String::new(),
        line(["", "", "", "", "compress", "decompress", "memory per"].map(String::from)),
        line(["frame", "frames", "ratio", "saving", "MB/s", "MB/s", "worker"].map(String::from)),
    ];
    lines.extend(report.sizes.iter().map(|row| {
        line([
            show_bytes(row.frame_size_bytes),
            indicatif::HumanCount(row.frames).to_string(),
            format!("{:.3}", row.ratio()),
            format!("{:.1} %", row.saving_percent()),
            format!("{:.0}", row.compress_mb_per_second()),
            format!("{:.0}", row.decompress_mb_per_second()),
            show_bytes(row.worker_memory_bytes),
        ])
    }));
    lines
}

fn bundles(report: &FramesReport) -> Vec<String> {
    let (Some(heading), Some(unit)) = (describe_bundles(report), &report.bundle_unit) else { return Vec::new() };
    let line = |cells: [String; 6]| {
        let [units, saving, against, size, compress, decompress] = cells;
        format!("{units:>9} {saving:>8} {against:>12} {size:>11} {compress:>9} {decompress:>11}").trim_end().to_string()
    };
    let name = format!("{}s", unit_name(unit.kind));
    let mut lines = vec![
        String::new(),
        heading,
        line(["", "", "saving", "", "", ""].map(String::from)),
        line([name.as_str(), "saving", "against one", "compressed", "compress", "decompress"].map(String::from)),
    ];
    lines.extend(report.bundles.iter().map(|row| {
        line([
            row.units_per_frame.to_string(),
            format!("{:.1} %", row.saving_percent()),
            format!("{:.1} %", row.saving_against_one_percent()),
            show_bytes(row.output_bytes),
            super::show_time(row.compress_seconds),
            super::show_time(row.decompress_seconds),
        ])
    }));
    lines
}

#[cfg(test)]
mod tests {
    use {super::*, crate::levels::frames::export::tests::report};

    #[test]
    fn fixed_numbers() {
        let lines = tables(&report());
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{}", lines.join("\n"));
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn nothing_to_bundle() {
        let mut report = report();
        report.bundle_unit = None;
        assert!(!tables(&report).join("\n").contains("Bundling"));
    }
}
