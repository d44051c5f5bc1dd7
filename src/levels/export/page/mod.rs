//! One self-contained page of what was measured: table, size against time, break-even, size classes, percentiles.
//! No network, no fonts; light and dark; readable on a phone. Sections are there for what was measured.

mod frames;
mod html;
mod levels;
mod link;
mod sizes;

use {
    crate::levels::{
        LevelRow,
        export::{
            Subject,
            chart::{STYLE, escaped},
        },
        frames::FramesReport,
        link::report::LinkReport,
        sizes::SizesReport,
    },
    std::fmt::Write,
};

const PAGE_STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// What a page shows.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// What was measured.
    pub subject: &'a Subject,
    /// The levels; may be none.
    pub rows: &'a [LevelRow],
    /// Over a link.
    pub link: Option<&'a LinkReport>,
    /// By size class.
    pub sizes: Option<&'a SizesReport>,
    /// By frame size.
    pub frames: Option<&'a FramesReport>,
}

/// A section: its name in addresses, its heading, its content.
struct Section {
    id: &'static str,
    heading: &'static str,
    html: String,
}

impl<'a> Page<'a> {
    /// A page of levels only.
    pub fn of_levels(subject: &'a Subject, rows: &'a [LevelRow]) -> Self {
        Self { subject, rows, link: None, sizes: None, frames: None }
    }

    /// The whole file.
    pub fn html(&self) -> String {
        let sections: Vec<Section> = [
            levels::section(self.rows),
            self.link.and_then(link::section),
            self.sizes.and_then(sizes::section),
            self.frames.and_then(frames::section),
        ]
        .into_iter()
        .flatten()
        .collect();
        let title = escaped(&format!("{}: compression", self.subject.name));
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
             <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n{PAGE_STYLE}{STYLE}\n</style>\n</head>\n<body>\n\
             <header>\n<h1>{}</h1>\n<p class=\"dim\">{}</p>\n",
            escaped(&self.subject.name),
            escaped(&self.subject.describe())
        );
        if sections.len() > 1 {
            page += "<nav>";
            for section in &sections {
                // Writing to a string cannot fail.
                let _ = write!(page, "<a href=\"#{}\">{}</a>", section.id, section.heading);
            }
            page += "</nav>\n";
        }
        page += "</header>\n<main>\n";
        for Section { id, heading, html } in &sections {
            let _ = write!(page, "<section id=\"{id}\">\n<h2>{heading}</h2>\n{html}</section>\n");
        }
        page += "</main>\n";
        if !self.subject.provenance.is_empty() {
            page += "<h2>Provenance</h2>\n<dl class=\"provenance\">\n";
            for (what, value) in &self.subject.provenance {
                let _ = writeln!(page, "<dt>{}</dt><dd>{}</dd>", escaped(what), escaped(value));
            }
            page += "</dl>\n";
        }
        let _ = write!(
            page,
            "<p class=\"note\">Made by slotpress {}. Sizes are exact; times are medians on the machine that \
             measured them. MB are 10^6 bytes.</p>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
            env!("CARGO_PKG_VERSION")
        );
        page
    }
}
