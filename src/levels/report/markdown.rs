//! Markdown: headings and tables that GitHub shows.

use std::fmt::Write;

use super::table::{Cell, Column};
use super::{Advice, Block, Section, Subject, Table};

/// The whole file.
pub fn markdown(subject: &Subject, section: &Section) -> String {
    let mut text = format!("{}: {}\n", escaped(&subject.name), subject.describe());
    for block in &section.blocks {
        let of_block = match block {
            Block::Facts(lines) | Block::Text(lines) => list(lines),
            Block::Doubts(lines) if lines.is_empty() => continue,
            Block::Doubts(lines) => format!("Warnings:\n\n{}", list(lines)),
            Block::Table(table) => of_table(table),
            Block::Advice(advice) => list(&advice.iter().map(of_advice).collect::<Vec<_>>()),
            Block::Chart { .. } => continue,
        };
        if !of_block.is_empty() {
            text += "\n";
            text += &of_block;
        }
    }
    text
}

fn list(items: &[String]) -> String {
    items.iter().map(|item| format!("- {item}\n")).collect()
}

fn of_advice(advice: &Advice) -> String {
    format!("{}: `{}`: {}", advice.what, advice.choice, advice.reason)
}

fn of_table(table: &Table) -> String {
    let shown = || table.columns.iter().filter(|column| column.heading.is_some());
    let headings: Vec<String> = shown().filter_map(|column| Some(escaped(column.heading.as_deref()?))).collect();
    let aligns: String = shown().map(|column| if column.is_left { "---|" } else { "--:|" }).collect();
    let title = if table.title.is_empty() { String::new() } else { format!("{}\n\n", table.title) };
    let mut text = format!("{title}| {} |\n|{aligns}\n", headings.join(" | "));
    for (_, cells) in &table.rows {
        let of_row = table.columns.iter().zip(cells).filter(|(column, _)| column.heading.is_some());
        let cells: Vec<String> = of_row.map(|(column, cell)| escaped(&show(column, cell))).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    if !table.footnote.is_empty() {
        let _ = writeln!(text, "\n{}", escaped(&table.footnote));
    }
    text
}

/// As Markdown and pages show it.
pub(super) fn show(column: &Column, cell: &Cell) -> String {
    let shown = column.unit.show(&cell.value);
    match cell.sign {
        Some(sign) => format!("{}{sign}{}", shown.trim_end_matches('x'), cell.note),
        None => shown + &cell.note,
    }
}

/// Escapes text for Markdown.
fn escaped(name: &str) -> String {
    name.chars()
        .flat_map(|char| {
            let slash = "\\`*_{}[]<>#|".contains(char).then_some('\\');
            slash.into_iter().chain([if char.is_control() { ' ' } else { char }])
        })
        .collect()
}
