//! The pieces of HTML that sections are made of. Everything that comes from outside is escaped here.

use {
    crate::levels::export::chart::escaped,
    std::fmt::{Display, Write},
};

/// A cell: what is shown, and what its column is sorted by.
#[derive(Clone, Debug)]
pub struct Cell {
    shown: String,
    value: String,
}

impl Cell {
    /// A number, and how it is shown.
    pub fn number(shown: impl Display, value: impl Into<f64>) -> Self {
        Self { shown: shown.to_string(), value: format!("{}", value.into()) }
    }

    /// A word, which is sorted as it is.
    pub fn word(shown: impl Display) -> Self {
        Self { shown: shown.to_string(), value: shown.to_string() }
    }

    /// Nothing is known; sorted behind what is.
    pub fn none() -> Self {
        Self { shown: "-".to_string(), value: String::new() }
    }
}

/// A table that can be sorted by each column.
#[derive(Debug)]
pub struct Table {
    id: &'static str,
    head: String,
    body: String,
}

impl Table {
    /// A table with these columns.
    pub fn new(id: &'static str, columns: &[&str]) -> Self {
        let mut head = String::new();
        for column in columns {
            // Writing to a string cannot fail.
            let _ = write!(head, "<th scope=\"col\"><button type=\"button\">{}</button></th>", escaped(column));
        }
        Self { id, head, body: String::new() }
    }

    /// Adds a row; a row of a class is drawn in its way.
    pub fn row(&mut self, class: &str, cells: &[Cell]) {
        self.body += &if class.is_empty() { "<tr>".to_string() } else { format!("<tr class=\"{class}\">") };
        for Cell { shown, value } in cells {
            let _ = write!(self.body, "<td data-value=\"{}\">{}</td>", escaped(value), escaped(shown));
        }
        self.body += "</tr>\n";
    }

    /// The table; it scrolls by itself where the screen is narrower.
    pub fn finish(self) -> String {
        let Self { id, head, body } = self;
        format!(
            "<div class=\"scroll\" tabindex=\"0\"><table id=\"{id}\">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n"
        )
    }
}

/// A picture, and what it shows in words.
pub fn figure(svg: &str, caption: &str) -> String {
    format!("<figure>\n{svg}<figcaption>{}</figcaption></figure>\n", escaped(caption))
}

/// A paragraph.
pub fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escaped(text))
}

/// A list of sentences.
pub fn list(items: &[String]) -> String {
    let items: String = items.iter().map(|item| format!("<li>{}</li>\n", escaped(item))).collect();
    format!("<ul class=\"plain\">\n{items}</ul>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_is_no_markup() {
        let mut table = Table::new("t", &["<b>"]);
        table.row("", &[Cell::word("<script>\"'&")]);
        let html = table.finish() + &paragraph("<i>") + &figure("", "<u>") + &list(&["<s>".to_string()]);
        for markup in ["<b>", "<script>", "<i>", "<u>", "<s>", "\"'&\""] {
            assert!(!html.contains(markup), "{markup} in {html}");
        }
        assert!(html.contains("&lt;script&gt;&quot;'&amp;"));
    }
}
