//! Cells of CSV that are text for every spreadsheet, and what they were before.

use std::borrow::Cow;

/// What a spreadsheet takes for the beginning of a formula, and what says that it is none.
const MARKS: [char; 7] = ['=', '+', '-', '@', '\t', '\r', '\''];

/// The cell as it is written: behind an apostrophe where a spreadsheet would take it for a formula.
pub fn guarded(cell: &str) -> Cow<'_, str> {
    if cell.starts_with(MARKS) {
        Cow::Owned(format!("'{cell}"))
    } else {
        Cow::Borrowed(cell)
    }
}

/// What was written as this cell. One that nobody guarded stays as it is.
pub fn unguarded(cell: &str) -> &str {
    match cell.strip_prefix('\'') {
        Some(rest) if rest.starts_with(MARKS) => rest,
        Some(_) | None => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_guarded_is_read_as_it_was() {
        for (cell, written) in [
            ("", ""),
            ("plain", "plain"),
            ("it's", "it's"),
            ("=1+1", "'=1+1"),
            ("-2", "'-2"),
            ("@x", "'@x"),
            ("\tx", "'\tx"),
            ("'", "''"),
            ("'quoted'", "''quoted'"),
            ("'=1", "''=1"),
        ] {
            assert_eq!(guarded(cell), written);
            assert_eq!(unguarded(written), cell);
        }
        assert_eq!(unguarded("'by hand"), "'by hand");
    }
}
