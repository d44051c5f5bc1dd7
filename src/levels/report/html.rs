//! One self-contained page: advice, charts, tables. No network, no fonts; light and dark; readable on a
//! phone. Everything that comes from outside is escaped here.

use std::fmt::Write;

use super::chart::{STYLE, escaped};
use super::table::{Cell, Column, Emphasis};
use super::{Advice, Block, Section, Subject, Table, Value};

const PAGE_STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The whole file.
pub fn page(subject: &Subject, section: &Section) -> String {
    let name = escaped(&subject.name);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{name}: compression</title>\n\
         <style>\n{PAGE_STYLE}{STYLE}\n</style>\n</head>\n<body>\n\
         <header>\n<h1>{name}</h1>\n<p class=\"dim\">{}</p>\n",
        escaped(&subject.describe())
    );
    page += "</header>\n<main>\n";
    page += &of_section(section);
    page += "</main>\n";
    if !subject.provenance.is_empty() {
        let line = |(what, value): &(&str, String)| format!("<dt>{}</dt><dd>{}</dd>\n", escaped(what), escaped(value));
        let lines: String = subject.provenance.iter().map(line).collect();
        page += &format!("<h2>Provenance</h2>\n<dl class=\"provenance\">\n{lines}</dl>\n");
    }
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "<p class=\"note\">Made by slotpress {}. Sizes are exact; times are medians on the machine that measured \
         them.</p>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    );
    page
}

/// Recommendations first, then warnings, then the rest.
fn of_section(section: &Section) -> String {
    let is_first = |block: &&Block| matches!(block, Block::Advice(_) | Block::Doubts(_));
    let (first, others): (Vec<&Block>, Vec<&Block>) = section.blocks.iter().partition(is_first);
    let blocks: String = others.into_iter().map(of_block).collect();
    // Advice before doubts, whichever comes first elsewhere.
    let (advice, doubts): (Vec<&Block>, Vec<&Block>) =
        first.into_iter().partition(|block| matches!(block, Block::Advice(_)));
    let first: String = advice.into_iter().chain(doubts).map(of_block).collect();
    let Section { id, heading, .. } = section;
    format!("<section id=\"{id}\">\n<h2>{heading}</h2>\n{first}{blocks}</section>\n")
}

fn of_block(block: &Block) -> String {
    match block {
        Block::Facts(lines) | Block::Text(lines) => lines.iter().map(|line| paragraph("", line)).collect(),
        Block::Table(table) => of_table(table),
        Block::Doubts(items) if items.is_empty() => String::new(),
        Block::Doubts(items) => {
            format!("<div class=\"doubts\">{}{}</div>\n", paragraph("", "Warnings:"), list(items))
        }
        Block::Advice(advice) => of_advice(advice),
        Block::Chart { svg, caption } => {
            format!("<figure>\n{svg}<figcaption>{}</figcaption></figure>\n", escaped(caption))
        }
    }
}

fn paragraph(class: &str, text: &str) -> String {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    format!("<p{class}>{}</p>\n", prose(text))
}

/// A sentence, with what stands between backticks as code.
fn prose(text: &str) -> String {
    let text = escaped(text);
    let parts: Vec<&str> = text.split('`').collect();
    match parts.len() % 2 {
        // A backtick without another is only that.
        0 => text,
        _ => parts.chunks(2).map(|part| part.join("<code>")).collect::<Vec<_>>().join("</code>"),
    }
}

fn list(items: &[String]) -> String {
    let items: String = items.iter().map(|item| format!("<li>{}</li>\n", prose(item))).collect();
    format!("<ul class=\"plain\">\n{items}</ul>\n")
}

fn of_advice(advice: &[Advice]) -> String {
    let card = |Advice { what, choice, reason }: &Advice| {
        let [what, choice, reason] = [what, choice, reason].map(|text| escaped(text));
        format!("<li>{what}<b><code>{choice}</code></b><span class=\"note\">{reason}</span></li>\n")
    };
    format!("<ul class=\"choices\">\n{}</ul>\n", advice.iter().map(card).collect::<String>())
}

/// A table that can be sorted by each column, and scrolls by itself where the screen is narrower.
fn of_table(table: &Table) -> String {
    let shown = || table.columns.iter().enumerate().filter(|(_, column)| column.heading.is_some());
    let heading = |(_, column): (usize, &Column)| {
        let text = column.heading.as_deref().map(escaped).unwrap_or_default();
        format!("<th scope=\"col\"><button type=\"button\">{text}</button></th>")
    };
    let head: String = shown().map(heading).collect();
    let mut body = String::new();
    for (emphasis, cells) in &table.rows {
        body += match emphasis {
            Emphasis::Plain => "<tr>",
            Emphasis::Best => "<tr class=\"knee\">",
            Emphasis::Total => "<tr class=\"all\">",
        };
        for (cell, column) in shown().filter_map(|(at, column)| Some((cells.get(at)?, column))) {
            let text = escaped(&show(column, cell));
            let _ = write!(body, "<td data-value=\"{}\">{text}</td>", escaped(&sorted_by(&cell.value)));
        }
        body += "</tr>\n";
    }
    let note = |text: &str| if text.is_empty() { String::new() } else { paragraph("note", text) };
    format!(
        "{}<p class=\"note more\" hidden>Scroll for more columns \u{2192}</p>\n<div class=\"scroll\" tabindex=\"0\"><table id=\"{}\">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n\
         </table></div>\n{}",
        note(&table.title),
        table.id,
        note(&table.footnote)
    )
}

fn show(column: &Column, cell: &Cell) -> String {
    let shown = column.unit.show(&cell.value);
    match cell.sign {
        Some(sign) => format!("{}{sign}{}", shown.trim_end_matches('x'), cell.note),
        None => shown + &cell.note,
    }
}

/// The value that a page sorts by; empty for unknown values, which are sorted last.
fn sorted_by(value: &Value) -> String {
    match (value.number(), value) {
        (Some(number), _) => number.to_string(),
        (None, Value::Text(text) | Value::Nested(_, text)) => text.clone(),
        (None, _) => String::new(),
    }
}
