//! The text of an import as one JSON object a row.

use serde_json::{Map, Value};

use crate::api::{
    cell::unguarded,
    problem::{Code, Problem},
};

/// A row, or why it is none.
#[derive(Debug)]
pub struct ImportTableRow {
    /// Of the text, from 1: where it begins.
    pub line: usize,
    pub value: Result<Value, Problem>,
}

/// Columns that hold words joined with spaces.
const WORDS: &[&str] = &["addresses", "exclusions", "networks"];
/// Columns that hold JSON.
const JSON: &[&str] = &["members", "contenders", "scopes"];
/// Columns that hold `key=value` with semicolons between them.
const PAIRS: &[&str] = &["labels"];
/// Columns of text that may look like numbers.
const TEXT: &[&str] = &[
    "name",
    "network",
    "pool",
    "tenant",
    "group",
    "owner",
    "address",
    "origin.object",
    "origin.cluster",
    "origin.uid",
];
/// Columns that follow from others: an export has them, an import looks at none.
const DERIVED: &[&str] = &[
    "marks",
    "waiting_for",
    "held_until",
    "pools",
    "used",
    "family",
];

/// The rows of the text, each read when it is asked for.
pub fn rows(
    body: &[u8],
    csv: bool,
) -> Result<Box<dyn Iterator<Item = ImportTableRow> + '_>, Problem> {
    Ok(if csv {
        Box::new(of_csv(body)?)
    } else {
        Box::new(of_lines(body)?)
    })
}

/// One object a line; empty lines count for nothing.
fn of_lines(body: &[u8]) -> Result<impl Iterator<Item = ImportTableRow>, Problem> {
    let text = std::str::from_utf8(body)
        .map_err(|error| Problem::new(Code::Invalid, format!("body: {error}")))?;
    let lines = text.lines().zip(1..);
    let lines = lines.filter(|(text, _)| !text.trim().is_empty());
    let read = |text: &str| match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(Problem::invalid("row", text, "one JSON object a line")),
        Err(error) => Err(Problem::invalid("row", text, format!("JSON: {error}"))),
    };
    Ok(lines.map(move |(text, line)| ImportTableRow {
        line,
        value: read(text),
    }))
}

/// CSV with a header line whose columns are fields, those of a nested object behind a dot.
fn of_csv(body: &[u8]) -> Result<impl Iterator<Item = ImportTableRow>, Problem> {
    let mut reader = csv::Reader::from_reader(body);
    let malformed = |error: csv::Error| Problem::new(Code::Invalid, format!("CSV: {error}"));
    let heads = reader.headers().map_err(malformed)?.clone();
    let read = move |record: csv::Result<csv::StringRecord>| {
        let record = record.map_err(malformed)?;
        let mut row = Map::new();
        for (head, cell) in heads.iter().zip(&record) {
            put(&mut row, head, unguarded(cell))?;
        }
        Ok(Value::Object(row))
    };
    let rows = reader.into_records().map(move |record| {
        let at = match &record {
            Ok(record) => record.position(),
            Err(error) => error.position(),
        };
        ImportTableRow {
            line: at.map_or(0, |at| line_of(body, at)),
            value: read(record),
        }
    });
    Ok(rows)
}

/// The line of the row that is read from there on: what ends the line before may be left to skip.
fn line_of(body: &[u8], at: &csv::Position) -> usize {
    let from = usize::try_from(at.byte()).unwrap_or(usize::MAX);
    let rest = body.get(from..).unwrap_or_default();
    let ends = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    let skipped = ends.filter(|byte| **byte == b'\n').count();
    usize::try_from(at.line()).map_or(0, |line| line.saturating_add(skipped))
}

fn pairs(head: &str, cell: &str) -> Result<Value, Problem> {
    let pairs = cell.split(';').map(|pair| {
        let allowed = "key=value, with semicolons between several";
        let pair = pair.split_once('=');
        let (key, value) = pair.ok_or_else(|| Problem::invalid(head, cell, allowed))?;
        Ok((key.to_owned(), Value::from(value)))
    });
    pairs.collect::<Result<Map<_, _>, _>>().map(Value::Object)
}

fn put(row: &mut Map<String, Value>, head: &str, cell: &str) -> Result<(), Problem> {
    let derived = DERIVED.contains(&head) || head.starts_with("usage.");
    if derived || cell.is_empty() {
        return Ok(());
    }
    let value = if WORDS.contains(&head) {
        cell.split_whitespace().map(Value::from).collect()
    } else if PAIRS.contains(&head) {
        pairs(head, cell)?
    } else if JSON.contains(&head) {
        serde_json::from_str(cell)
            .map_err(|error| Problem::invalid(head, cell, format!("JSON: {error}")))?
    } else if TEXT.contains(&head) {
        Value::from(cell)
    } else {
        match (cell.parse::<u64>(), cell) {
            (Ok(number), _) => Value::from(number),
            (Err(_), "true") => Value::from(true),
            (Err(_), "false") => Value::from(false),
            (Err(_), text) => Value::from(text),
        }
    };
    match head.split_once('.') {
        None => drop(row.insert(head.to_owned(), value)),
        Some((outer, inner)) => {
            let object = row
                .entry(outer)
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(object) = object {
                object.insert(inner.to_owned(), value);
            }
        }
    }
    Ok(())
}
