//! The result on the terminal: lines of at most 80 characters.

use {
    super::{in_order, show_beats, show_levels},
    crate::levels::search::{Outcome, judge::Point},
};

/// The widest line.
const WIDTH: usize = 80;

/// All lines: stock levels and what beats them, and what the numbers are.
pub fn lines(outcome: &Outcome, seed: u64) -> Vec<String> {
    let Outcome { searched_frames, held_out_frames, tried, tried_in_full, rounds, .. } = outcome;
    let mut lines = vec![
        format!(
            "  {searched_frames} frames searched, {held_out_frames} held out; {tried} settings tried, {tried_in_full} \
             in full"
        ),
        format!("  seed {seed}, {:.0} s", outcome.elapsed.as_secs_f64()),
    ];
    if outcome.points.is_empty() {
        return lines;
    }
    lines.push(String::new());
    lines.push(format!("  {:>7} {:>6} {:>8}  {:9} flags", "size", "CPU", "restore", "beats"));
    for point in in_order(outcome) {
        lines.extend(point_lines(point, outcome));
    }
    lines.push(String::new());
    lines.push("* nothing shown is both smaller and faster. Size, CPU time to compress (and to".to_string());
    lines.push("cluster) and to restore are against the first level's, on the held-out frames:".to_string());
    lines.push(format!("medians of {rounds} rounds, in each of which all were measured in turn."));
    lines.push(match outcome.claims {
        0 => "No tried setting promised to beat a level.".to_string(),
        claims => format!("Of {claims} claims to beat a level, {} held on the held-out frames.", outcome.claims_held),
    });
    if outcome.unclustered_frames > 0 {
        lines.push(format!(
            "{} frames begin inside a storage, or hold none: they were not clustered here.",
            outcome.unclustered_frames
        ));
    }
    lines
}

/// Which levels the budget was too short for, and what to do about it.
pub fn left_out(outcome: &Outcome) -> Option<String> {
    // Without any point, that is an error.
    if outcome.is_interrupted || outcome.points.is_empty() {
        return None;
    }
    let levels = show_levels(&outcome.levels_left_out);
    (!levels.is_empty()).then(|| {
        format!("not reached: --levels {levels}; give a larger --budget, a smaller --sample or fewer --levels")
    })
}

fn point_lines(point: &Point, outcome: &Outcome) -> Vec<String> {
    let mark = if point.is_on_front { "*" } else { "" };
    let beats = show_beats(point);
    let line = format!(
        "{mark:1} {:>6.1}% {:>5.2}x {:>7.2}x  {:9} ",
        100.0 * point.size_ratio,
        point.time_ratio,
        point.decompress_time_ratio,
        if point.variant.stock_level().is_some() { "-" } else { &beats },
    );
    let flags = point.variant.flags(&outcome.space);
    if line.chars().count() + flags.len() <= WIDTH {
        return vec![line + &flags];
    }
    // The parameters get their own line, below the layout.
    match flags.split_once(" --zstd-params") {
        Some((layout, params)) if !layout.is_empty() => {
            vec![line + layout + " \\", format!("    --zstd-params{params}")]
        }
        _ => vec![line.trim_end().to_string(), format!("    {flags}")],
    }
}

#[cfg(test)]
mod tests {
    use {super::*, crate::levels::search::export::tests::outcome};

    #[test]
    fn fixed_numbers() {
        let lines = lines(&outcome(), 0);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{}", lines.join("\n"));
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut outcome = outcome();
        assert_eq!(left_out(&outcome), None);
        outcome.levels_left_out = vec![9, 10];
        assert!(left_out(&outcome).is_some_and(|text| text.starts_with("not reached: --levels 9-10;")));
        outcome.points.clear();
        assert_eq!(left_out(&outcome), None, "that is an error");
        assert_eq!(lines(&outcome, 3).len(), 2);
    }
}
