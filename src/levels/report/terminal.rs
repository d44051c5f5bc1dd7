//! The terminal: tables of fixed columns, each line of which can be printed as soon as its row is ready, and text that
//! is wrapped at words.

use {
    super::{
        Block, Section, Table, Value,
        table::{Cell, Column, TerminalColumn},
    },
    slotpress_base::text::{cut, wrap},
};

/// All lines of a section, without what is doubtful; text is wrapped at so many columns.
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
                let label = |what: &str, choice: &str| format!("{what:width$}  {choice}: ");
                advice.iter().flat_map(|one| wrap(&label(&one.what, &one.choice), &one.reason, columns)).collect()
            }
            Block::List(heading, items) => {
                let items = items.iter().flat_map(|item| wrap("  ", item, columns));
                std::iter::once(heading.clone()).chain(items).collect()
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

fn table_lines(table: &Table, columns: usize) -> Vec<String> {
    let rows = (0..table.rows.len()).flat_map(|row| row_lines(table, row, columns));
    let mut footnote = if table.footnote.is_empty() { Vec::new() } else { wrap("", &table.footnote, columns) };
    // A line is a sign explained; several are a text of their own.
    if footnote.len() > 1 {
        footnote.insert(0, String::new());
    }
    header_lines(table, columns).into_iter().chain(rows).chain(footnote).collect()
}

/// The lowest number of columns that are left out so that a table fits: see [`TerminalColumn::spare`].
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
        let line = join(columns.iter().map(|(column, terminal)| pad(&of(terminal), terminal.width, column.is_left)));
        // The last may go on below: then its heading has no room either.
        if line.chars().count() > columns_max { fixed_part(&columns, &line) } else { line }
    };
    let title = if table.title.is_empty() { Vec::new() } else { wrap("", &table.title, columns_max) };
    let note = (!left_out.is_empty()).then(|| "(a wider terminal shows more columns)".to_string());
    title.into_iter().chain(note).chain(group_line(&columns)).chain((0..height).map(heading)).collect()
}

/// A line without what stands in a column that takes the rest of it.
fn fixed_part(columns: &[(&Column, &TerminalColumn)], line: &str) -> String {
    let width = columns.iter().filter(|(_, terminal)| terminal.width > 0).map(|(_, terminal)| terminal.width + 1).sum();
    line.chars().take(width).collect::<String>().trim_end().to_string()
}

/// What neighbouring columns are, where they share that.
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

/// The lines of a row: one, and another for what does not fit.
pub fn row_lines(table: &Table, row: usize, columns: usize) -> Vec<String> {
    let spare = spare_from(table, columns);
    let Some((_, cells)) = table.rows.get(row) else { return Vec::new() };
    let of_cell = |(column, cell)| (show(column, cell), column);
    let shown = table
        .columns
        .iter()
        .zip(cells)
        .filter(|(column, _)| column.terminal.as_ref().is_some_and(|one| one.spare < spare))
        .map(of_cell);
    let (rest, fixed): (Vec<_>, Vec<_>) = shown.partition(|(_, column)| width(column) == 0);
    let line =
        fixed.iter().map(|(text, column)| pad(text, width(column), column.is_left)).collect::<Vec<_>>().join(" ");
    match rest.first() {
        Some((flags, _)) => with_flags(&line, flags, columns),
        None => vec![line.trim_end().to_string()],
    }
}

/// Flags behind a line; those that do not fit below it, so that all can be copied into a shell.
fn with_flags(line: &str, flags: &str, columns: usize) -> Vec<String> {
    let room = columns.saturating_sub(line.chars().count() + 1);
    match flags.split_once(" --") {
        _ if flags.chars().count() <= room => vec![format!("{line} {flags}")],
        Some((first, others)) if first.chars().count() + 2 <= room => {
            vec![format!("{line} {first} \\"), format!("    --{others}")]
        }
        _ => vec![line.trim_end().to_string(), format!("    {flags}")],
    }
}

fn width(column: &Column) -> usize {
    column.terminal.as_ref().map_or(0, |terminal| terminal.width)
}

fn show(column: &Column, cell: &Cell) -> String {
    let shown = match (&cell.value, width(column)) {
        (Value::Flag(flag), _) => if *flag { "*" } else { "" }.to_string(),
        (value, 0) => column.unit.show(value),
        (value, width) => column.unit.show_within(value, width),
    };
    let is_tight = column.terminal.as_ref().is_some_and(|terminal| terminal.is_tight);
    let shown = if is_tight { shown.replace(" %", "%") } else { shown };
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
