//! What a command prints on stdout: a table, JSON or YAML.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use clap::builder::{EnumValueParser, PathBufValueParser, TypedValueParser};
use serde::Serialize;

use super::exit::Failure;

/// The form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    #[default]
    Table,
    Json,
    Yaml,
}

/// The value of `--output`: the form of the output, or the file to write where a command has that instead. It is one type, since
/// clap hands the value of a global option to all commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputArg {
    Form(Format),
    File(PathBuf),
}

impl OutputArg {
    /// Takes a form.
    pub fn form_parser() -> impl TypedValueParser<Value = Self> {
        EnumValueParser::<Format>::new().map(Self::Form)
    }

    /// Takes a path.
    pub fn file_parser() -> impl TypedValueParser<Value = Self> {
        PathBufValueParser::new().map(Self::File)
    }

    /// The form that was asked for.
    pub fn form(&self) -> Format {
        match self {
            Self::Form(form) => *form,
            Self::File(_) => Format::default(),
        }
    }

    /// The file that was named.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Form(_) => None,
            Self::File(file) => Some(file),
        }
    }
}

/// Aligned columns under a header.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column heads.
    pub fn new(heads: impl IntoIterator<Item = &'static str>) -> Self {
        let heads = heads.into_iter().map(str::to_owned);
        Self {
            rows: vec![heads.collect()],
        }
    }

    /// A table with these column heads and rows.
    pub fn of<const N: usize>(
        heads: [&'static str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Self {
        let mut table = Self::new(heads);
        rows.into_iter().for_each(|row| table.row(row));
        table
    }

    /// A table of `name: value` lines, without a header.
    pub fn facts<const N: usize>(facts: [(&str, String); N]) -> Self {
        let rows = facts
            .into_iter()
            .map(|(name, value)| vec![format!("{name}:"), value]);
        Self {
            rows: rows.collect(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let cell = if cell.is_empty() { "-" } else { cell };
                line.push_str(&format!("{cell:<width$}  "));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

impl Format {
    /// Prints a value in this form.
    pub fn show<T: Serialize>(
        self,
        value: &T,
        table: impl FnOnce(&T) -> Table,
    ) -> Result<(), Failure> {
        let text = match self {
            Self::Table => table(value).render(),
            Self::Json => {
                let json = serde_json::to_string_pretty(value).map_err(Failure::failed)?;
                format!("{json}\n")
            }
            Self::Yaml => serde_saphyr::to_string(value).map_err(Failure::failed)?,
        };
        print(&text)
    }
}

/// Writes to stdout. A reader that went away (`| head`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::failed(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

pub fn yes_or_no(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

/// Text of a value that may be missing.
pub fn or_dash<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(["NAME", "FREE"]);
        table.row(["vips".to_owned(), "3".to_owned()]);
        table.row(["ünïcode-pool".to_owned(), String::new()]);
        assert_eq!(
            table.render(),
            "NAME          FREE\nvips          3\nünïcode-pool  -\n"
        );
    }
}
