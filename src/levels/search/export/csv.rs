//! Comma-separated values: one line per point. Flags hold commas, so they are quoted.

use {
    super::{in_order, show_beats},
    crate::levels::search::{Outcome, layout_name},
    std::fmt::Write,
};

const COLUMNS: &str = "flags,is_stock,layout,input_bytes,output_bytes,size_percent,compress_time_factor,\
                       decompress_time_factor,is_on_front,beats";

/// The whole file.
pub fn csv(outcome: &Outcome) -> String {
    let mut text = format!("{COLUMNS}\n");
    for point in in_order(outcome) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "\"{}\",{},{},{},{},{:.3},{:.4},{:.4},{},\"{}\"",
            point.variant.flags(&outcome.space),
            point.variant.stock_level().is_some(),
            layout_name(point.variant.layout),
            point.input_bytes,
            point.output_bytes,
            100.0 * point.size_ratio,
            point.time_ratio,
            point.decompress_time_ratio,
            point.is_on_front,
            show_beats(point),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn fixed_numbers() {
        insta::assert_snapshot!(super::csv(&crate::levels::search::export::tests::outcome()));
    }
}
