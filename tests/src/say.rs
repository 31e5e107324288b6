//! Speaking to whoever started the command: standard output for results, standard error for progress.

use std::fmt::Display;
use std::io::Write;

/// Prints one line on standard output. A closed pipe is no error: nobody is listening any more.
pub fn say(line: impl Display) {
    let mut out = std::io::stdout().lock();
    let _closed = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Prints one line of progress on standard error, marked as the testbed's.
pub fn progress(line: impl Display) {
    let _closed = writeln!(std::io::stderr().lock(), "testbed: {line}");
}
