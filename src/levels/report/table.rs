//! Tables: what their values are, and how each column is shown.

use slotpress_base::TimeUnit;
use slotpress_base::quantity::{self};

/// A value, as it was measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The row has no such field: JSON leaves it out.
    Absent,
    /// Not known: null in JSON.
    Unknown,
    /// A word.
    Text(String),
    /// A word that stands for a number: the text, and the number that a page sorts by.
    Class(String, f64),
    /// A number.
    Whole(i128),
    /// A number.
    Number(f64),
    /// The value in JSON, and the text everywhere else.
    Nested(serde_json::Value, String),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_string())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Values of the types that are whole numbers.
macro_rules! whole {
    ($($kind:ty),*) => {$(
        impl From<$kind> for Value {
            fn from(number: $kind) -> Self {
                Self::Whole(number as i128)
            }
        }
    )*};
}
whole!(u64, i32, usize);

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl<V: Into<Self>> From<Option<V>> for Value {
    fn from(value: Option<V>) -> Self {
        value.map_or(Self::Unknown, Into::into)
    }
}

impl Value {
    /// The number; `None` if it is no number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Whole(number) => Some(*number as f64),
            Self::Number(number) | Self::Class(_, number) => Some(*number),
            _ => None,
        }
    }
}

/// The unit of a column, as people are shown it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unit {
    /// Words.
    Text,
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Percent, with this number of decimals.
    Percent(usize),
    /// Input for each byte of output.
    Ratio,
    /// Times as much.
    Factor,
    /// Bytes per second, shown in MiB/s, which the heading says.
    Rate,
    /// Seconds, each in the unit that fits.
    Time,
    /// Seconds in one unit.
    TimeIn(TimeUnit),
    /// An amount of money.
    Price,
}

impl Unit {
    /// As people are shown it.
    pub fn show(self, value: &Value) -> String {
        let number = match value {
            Value::Absent => return String::new(),
            Value::Unknown => return "-".to_string(),
            Value::Text(text) | Value::Nested(_, text) | Value::Class(text, _) => return text.clone(),
            Value::Whole(number) if self == Self::Text => return number.to_string(),
            _ => value.number().unwrap_or_default(),
        };
        match self {
            Self::Text => number.to_string(),
            Self::Count => quantity::count(number.round().max(0.0) as u64),
            Self::Bytes => quantity::bytes(number.round() as u64),
            Self::Percent(decimals) => format!("{number:.decimals$} %"),
            Self::Ratio => format!("{number:.3}"),
            Self::Factor => format!("{}x", quantity::times(number)),
            Self::Rate => quantity::significant(number / f64::from(1 << 20)),
            Self::Time => quantity::time(number),
            // What takes no time is not done.
            Self::TimeIn(_) if number == 0.0 => "-".to_string(),
            Self::TimeIn(unit) => unit.show(number),
            Self::Price => format!("{number:.2}"),
        }
    }

    /// The same for a narrow column: without decimals that do not fit.
    pub fn show_within(self, value: &Value, width: usize) -> String {
        let shown = self.show(value);
        let (Some(number), true) = (value.number(), shown.chars().count() > width) else { return shown };
        let sign = if matches!(self, Self::Percent(_)) { "%" } else { "" };
        let fits = |text: &String| text.len() <= width;
        match self {
            Self::Percent(_) | Self::Ratio | Self::Price => {
                let shorter = |decimals: usize| format!("{number:.decimals$}{sign}");
                (0..=2).rev().map(shorter).find(fits).unwrap_or_else(|| shorter(0))
            }
            Self::TimeIn(_) => quantity::time(number),
            _ => shown,
        }
    }
}

/// A value of a row, with a note.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The value.
    pub value: Value,
    /// Text behind it in Markdown and on pages: `± 1.2 %`.
    pub note: String,
    /// A sign in place of its unit, explained by the table's footnote.
    pub sign: Option<char>,
}

impl<V: Into<Value>> From<V> for Cell {
    fn from(value: V) -> Self {
        Self { value: value.into(), note: String::new(), sign: None }
    }
}

impl Cell {
    /// With the error of an estimate, in percent.
    pub fn with_error(mut self, percent: Option<f64>) -> Self {
        self.note = percent.map(|percent| format!(" ± {}", quantity::percent(percent))).unwrap_or_default();
        self
    }

    /// With a sign.
    pub fn with_sign(mut self, sign: Option<char>) -> Self {
        self.sign = sign;
        self
    }
}

/// How a column is called and shown.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name in CSV, and in JSON, where `compress.p50_seconds` is a field of an object; `None` where people only
    /// are shown it.
    pub name: Option<String>,
    /// Decimals in CSV.
    pub decimals: usize,
    /// Its heading in Markdown and on pages; `None` where they leave it out.
    pub heading: Option<String>,
    /// The column on the terminal; `None` if it is not shown there.
    pub terminal: Option<TerminalColumn>,
    /// What its values are.
    pub unit: Unit,
    /// Whether its values begin at the left.
    pub is_left: bool,
}

/// A column on the terminal.
#[derive(Clone, Debug, Default)]
pub struct TerminalColumn {
    /// Its heading; lines of it stand one above the other.
    pub heading: String,
    /// Characters.
    pub width: usize,
    /// A heading that it shares with its neighbours.
    pub group: &'static str,
    /// Without a space before the percent sign.
    pub is_tight: bool,
    /// If the terminal is too narrow, columns with the highest number are left out first; those with 0 never.
    pub spare: u8,
}

impl Column {
    /// In JSON and CSV only.
    pub fn named(name: impl Into<String>) -> Self {
        let name = Some(name.into());
        Self { name, decimals: 0, heading: None, terminal: None, unit: Unit::Text, is_left: false }
    }

    /// In Markdown and on pages; with [`Column::wide`], on the terminal too.
    pub fn shown(heading: &str, unit: Unit) -> Self {
        let is_left = unit == Unit::Text;
        Self { name: None, decimals: 0, heading: Some(heading.to_string()), terminal: None, unit, is_left }
    }

    /// On the terminal only.
    pub fn on_terminal(heading: &str, unit: Unit, width: usize) -> Self {
        Self { heading: None, ..Self::shown(heading, unit).headed(heading, width) }
    }

    /// Also in JSON and CSV, there with this number of decimals.
    pub fn name(mut self, name: impl Into<String>, decimals: usize) -> Self {
        (self.name, self.decimals) = (Some(name.into()), decimals);
        self
    }

    /// Decimals in CSV.
    pub fn decimals(mut self, decimals: usize) -> Self {
        self.decimals = decimals;
        self
    }

    /// On the terminal under its heading, in this number of characters.
    pub fn wide(self, width: usize) -> Self {
        let heading = self.heading.clone().unwrap_or_default();
        self.headed(&heading, width)
    }

    /// On the terminal under another heading.
    pub fn headed(mut self, heading: &str, width: usize) -> Self {
        self.terminal = Some(TerminalColumn { heading: heading.to_string(), width, ..TerminalColumn::default() });
        self
    }

    /// On the terminal without a space before the percent sign.
    pub fn tight(mut self) -> Self {
        self.terminal = self.terminal.map(|terminal| TerminalColumn { is_tight: true, ..terminal });
        self
    }

    /// If the terminal is too narrow, columns with the highest number are left out first.
    pub fn spare(mut self, spare: u8) -> Self {
        self.terminal = self.terminal.map(|terminal| TerminalColumn { spare, ..terminal });
        self
    }

    /// On the terminal under a heading that it shares.
    pub fn group(mut self, group: &'static str) -> Self {
        self.terminal = self.terminal.map(|terminal| TerminalColumn { group, ..terminal });
        self
    }

    /// Whether its values begin at the left.
    pub fn left(mut self, is_left: bool) -> Self {
        self.is_left = is_left;
        self
    }
}

/// Whether a row is emphasized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Emphasis {
    /// Not emphasized.
    #[default]
    Plain,
    /// The recommended row.
    Best,
    /// The sum of the other rows.
    Total,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name in a page.
    pub id: &'static str,
    /// The `type` of its rows in JSON.
    pub kind: &'static str,
    /// Whether CSV has a column `type`, because the rows share a file with others.
    pub has_kind_column: bool,
    /// Above it.
    pub title: String,
    /// Below it.
    pub footnote: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, with a cell per column.
    pub rows: Vec<(Emphasis, Vec<Cell>)>,
}

/// A table that is built column by column.
#[derive(Debug)]
pub struct TableOf<'a, R> {
    items: &'a [&'a R],
    table: Table,
}

impl Table {
    /// A table with a row for each item.
    pub fn of<'a, R>(items: &'a [&'a R]) -> TableOf<'a, R> {
        let rows = items.iter().map(|_| (Emphasis::Plain, Vec::new())).collect();
        let (title, footnote, columns) = (String::new(), String::new(), Vec::new());
        TableOf { items, table: Self { id: "", kind: "", has_kind_column: false, title, footnote, columns, rows } }
    }

    /// The columns and values of a row in JSON and CSV.
    pub fn named_cells(&self, row: usize) -> impl Iterator<Item = (&str, &Column, &Value)> {
        let cells = self.rows.get(row).map_or(&[][..], |(_, cells)| cells.as_slice());
        let named = |(column, cell): (_, _)| named_cell(column, cell);
        self.columns.iter().zip(cells).filter_map(named)
    }
}

fn named_cell<'a>(column: &'a Column, cell: &'a Cell) -> Option<(&'a str, &'a Column, &'a Value)> {
    Some((column.name.as_deref()?, column, &cell.value))
}

impl<R> TableOf<'_, R> {
    /// Adds a column, with the value of each item.
    pub fn column<C: Into<Cell>>(mut self, column: Column, value: impl Fn(&R) -> C) -> Self {
        for (item, (_, cells)) in self.items.iter().zip(&mut self.table.rows) {
            cells.push(value(item).into());
        }
        self.table.columns.push(column);
        self
    }

    /// Sets how each row stands out.
    pub fn emphasis(mut self, emphasis: impl Fn(&R) -> Emphasis) -> Self {
        for (item, (of_row, _)) in self.items.iter().zip(&mut self.table.rows) {
            *of_row = emphasis(item);
        }
        self
    }

    /// Sets the line above it.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.table.title = title.into();
        self
    }

    /// Sets the line below it.
    pub fn footnote(mut self, footnote: impl Into<String>) -> Self {
        self.table.footnote = footnote.into();
        self
    }

    /// The `type` of its rows in JSON.
    pub fn kind(mut self, kind: &'static str) -> Self {
        self.table.kind = kind;
        self
    }

    /// The `type` of its rows, in CSV too.
    pub fn kind_column(mut self, kind: &'static str) -> Self {
        self.table.has_kind_column = true;
        self.kind(kind)
    }

    /// The table, and its name in a page.
    pub fn finish(mut self, id: &'static str) -> Table {
        self.table.id = id;
        self.table
    }
}
