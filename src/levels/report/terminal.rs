//! The terminal: tables of fixed columns, each line of which can be printed as soon as its row is ready, and text that
//! is wrapped at words.

use slotpress_base::text::{cut, wrap};

use super::table::{Cell, Column, TerminalColumn};
use super::{Advice, Block, Section, Table};

/// All lines of a section, without warnings; text is wrapped at this number of columns.
pub fn lines(section: &Section, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for block in &section.blocks {
        let of_block: Vec<String> = match block {
            Block::Facts(facts) => {
                lines.extend(facts.iter().flat_map(|fact| wrap("  ", fact, columns)));
                continue;
            }
            Block::Table(table) => table_lines(table, columns),
            Block::Advice(advice) => {
                let width = advice.iter().map(|one| one.what.chars().count()).max().unwrap_or_default();
                advice.iter().flat_map(|one| advice_lines(one, width, columns)).collect()
            }
            Block::Text(sentences) => sentences.iter().flat_map(|sentence| wrap("", sentence, columns)).collect(),
            Block::Doubts(_) | Block::Chart { .. } => continue,
        };
        if !lines.is_empty() && !of_block.is_empty() {
            lines.push(String::new());
        }
        lines.extend(of_block);
    }
    lines
}

/// The goal in `width` characters, the choice, the reason: beside each other, where there is room.
fn advice_lines(Advice { what, choice, reason }: &Advice, width: usize, columns: usize) -> Vec<String> {
    let label = format!("{what:width$}  {choice}:");
    let below = |first: Vec<String>, indent: &str| [first, wrap(indent, reason, columns)].concat();
    match label.chars().count() {
        length if length <= columns / 2 => wrap(&format!("{label} "), reason, columns),
        length if length <= columns => below(vec![label], &" ".repeat(width + 2)),
        _ => below([vec![what.clone()], wrap("  ", &format!("{choice}:"), columns)].concat(), "  "),
    }
}

fn table_lines(table: &Table, columns: usize) -> Vec<String> {
    let rows = (0..table.rows.len()).map(|row| row_line(table, row, columns));
    let mut footnote = if table.footnote.is_empty() { Vec::new() } else { wrap("", &table.footnote, columns) };
    // A line is a sign explained; several are a text of their own.
    if footnote.len() > 1 {
        footnote.insert(0, String::new());
    }
    header_lines(table, columns).into_iter().chain(rows).chain(footnote).collect()
}

/// Columns with this number or a higher one are left out, so that the table fits: see [`TerminalColumn::spare`].
fn spare_from(table: &Table, columns: usize) -> u8 {
    let shown = || table.columns.iter().filter_map(|column| column.terminal.as_ref());
    let width_below = |spare: u8| shown().filter(|one| one.spare < spare).map(|one| one.width + 1).sum::<usize>();
    (1..=u8::MAX).rev().find(|spare| width_below(*spare) <= columns + 1).unwrap_or(1)
}

/// The lines above the rows.
pub fn header_lines(table: &Table, columns_max: usize) -> Vec<String> {
    let spare = spare_from(table, columns_max);
    let shown = table.columns.iter().filter_map(|column| Some((column, column.terminal.as_ref()?)));
    let (columns, left_out): (Vec<_>, Vec<_>) = shown.partition(|(_, terminal)| terminal.spare < spare);
    let height = columns.iter().map(|(_, terminal)| terminal.heading.lines().count()).max().unwrap_or(1);
    let heading = |line: usize| {
        // Headings of fewer lines stand at the bottom.
        let of = |terminal: &TerminalColumn| {
            let own: Vec<&str> = terminal.heading.lines().collect();
            (line + own.len()).checked_sub(height).and_then(|at| own.get(at)).map_or("", |text| *text).to_string()
        };
        join(columns.iter().map(|(column, terminal)| pad(&of(terminal), terminal.width, column.is_left)))
    };
    let title = if table.title.is_empty() { Vec::new() } else { wrap("", &table.title, columns_max) };
    let note = (!left_out.is_empty()).then(|| "(a wider terminal shows more columns)".to_string());
    title.into_iter().chain(note).chain(group_line(&columns)).chain((0..height).map(heading)).collect()
}

/// The line of headings that neighbouring columns share.
fn group_line(columns: &[(&Column, &TerminalColumn)]) -> Option<String> {
    let is_same = |a: &(&Column, &TerminalColumn), b: &(&Column, &TerminalColumn)| a.1.group == b.1.group;
    let parts = columns.chunk_by(is_same).map(|group| {
        let width = group.iter().map(|(_, terminal)| terminal.width + 1).sum::<usize>().saturating_sub(1);
        match group.first().map_or("", |(_, terminal)| terminal.group) {
            "" => " ".repeat(width),
            name if name.len() + 4 > width => format!("{:^width$}", cut(name, width)),
            name => format!("{:-^width$}", format!(" {name} ")),
        }
    });
    columns.iter().any(|(_, terminal)| !terminal.group.is_empty()).then(|| join(parts))
}

/// The line of a row.
pub fn row_line(table: &Table, row: usize, columns: usize) -> String {
    let spare = spare_from(table, columns);
    let cells = table.rows.get(row).map_or(&[][..], |(_, cells)| cells.as_slice());
    join(table.columns.iter().zip(cells).filter_map(|(column, cell)| {
        let terminal = column.terminal.as_ref().filter(|terminal| terminal.spare < spare)?;
        Some(pad(&show(column, terminal, cell), terminal.width, column.is_left))
    }))
}

fn show(column: &Column, terminal: &TerminalColumn, cell: &Cell) -> String {
    let shown = column.unit.show_within(&cell.value, terminal.width);
    let shown = if terminal.is_tight { shown.replace(" %", "%") } else { shown };
    match cell.sign {
        Some(sign) => format!("{}{sign}", shown.trim_end_matches('x')),
        None => shown,
    }
}

fn pad(text: &str, width: usize, is_left: bool) -> String {
    if is_left { format!("{text:<width$}") } else { format!("{text:>width$}") }
}

/// One space between columns, none at the end.
fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(" ").trim_end().to_string()
}
