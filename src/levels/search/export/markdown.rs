//! A Markdown table of the points.

use {
    super::{in_order, show_beats},
    crate::levels::{
        export::{Subject, markdown::escaped},
        search::Outcome,
    },
    std::fmt::Write,
};

/// The whole file.
pub fn markdown(subject: &Subject, outcome: &Outcome) -> String {
    let mut text = format!(
        "{}: {}\n\n| flags | size | CPU | restore | beats | front |\n|---|--:|--:|--:|---|---|\n",
        escaped(&subject.name),
        subject.describe()
    );
    for point in in_order(outcome) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {:.1} % | {:.2} | {:.2} | {} | {} |",
            point.variant.flags(&outcome.space),
            100.0 * point.size_ratio,
            point.time_ratio,
            point.decompress_time_ratio,
            show_beats(point),
            if point.is_on_front { "yes" } else { "" },
        );
    }
    let Outcome { tried, claims, claims_held, rounds, held_out_frames, .. } = outcome;
    let _ = write!(
        text,
        "\n{tried} settings tried; {claims_held} of {claims} claims held on {held_out_frames} held-out frames (medians of \
         {rounds} rounds).\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use crate::levels::{export::tests::subject, search::export::tests::outcome};

    #[test]
    fn fixed_numbers() {
        insta::assert_snapshot!(super::markdown(&subject(), &outcome()));
    }
}
