//! JSON lines: the link, one object per level, the break-even bandwidths, the recommendations. Field names are stable.

use {
    crate::levels::link::{
        break_even::BreakEven,
        network::Limit,
        recommend::LinkRecommendation,
        report::{LinkQuestion, LinkReport, LinkRow},
    },
    serde::Serialize,
};

/// A line of the report.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LinkLine<'a> {
    /// The link, and the machines at its ends.
    Link {
        /// What was asked.
        #[serde(flatten)]
        question: Asked<'a>,
        /// Bytes of tar of the whole input.
        tar_bytes: u64,
        /// What each node gets, in bytes of archive per second.
        node_bytes_per_second: f64,
        /// What limits it.
        limit: Limit,
    },
    /// A level over it.
    LinkLevel(&'a LinkRow),
    /// Two neighbouring levels.
    LinkBreakEven(&'a BreakEven),
    /// What to do.
    LinkRecommendation(&'a LinkRecommendation),
}

/// What was asked, in one level of fields.
#[derive(Debug, Serialize)]
pub struct Asked<'a> {
    #[serde(flatten)]
    link: &'a crate::levels::link::network::Link,
    #[serde(flatten)]
    ends: &'a crate::levels::link::model::Ends,
    egress_price_per_gb: Option<f64>,
}

impl<'a> From<&'a LinkQuestion> for Asked<'a> {
    fn from(question: &'a LinkQuestion) -> Self {
        Self { link: &question.link, ends: &question.ends, egress_price_per_gb: question.egress_price_per_gb }
    }
}

/// All lines, in their order.
pub fn lines(report: &LinkReport) -> Vec<LinkLine<'_>> {
    let first = LinkLine::Link {
        question: (&report.question).into(),
        tar_bytes: report.tar_bytes,
        node_bytes_per_second: report.node_bytes_per_second,
        limit: report.limit,
    };
    let rows = report.rows.iter().map(LinkLine::LinkLevel);
    let break_evens = report.break_evens.iter().map(LinkLine::LinkBreakEven);
    let recommendations = report.recommendations.iter().map(LinkLine::LinkRecommendation);
    std::iter::once(first).chain(rows).chain(break_evens).chain(recommendations).collect()
}

#[cfg(test)]
mod tests {
    use {super::*, crate::levels::link::report::tests::report};

    #[test]
    fn fixed_numbers() {
        let report = report();
        let lines: Vec<String> =
            lines(&report).iter().map(|line| serde_json::to_string(line).expect("plain")).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }
}
