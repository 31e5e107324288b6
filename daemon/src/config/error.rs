//! Why a configuration is not used.

use std::path::PathBuf;

/// The file cannot be used. The daemon does not start with it; a running one keeps what it had.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    /// `what` starts with line and column, where one place is wrong.
    #[error("{}: {what}", path.display())]
    Invalid { path: PathBuf, what: String },
    /// What the command line and the environment say does not fit.
    #[error("{0}")]
    Given(String),
}

/// `what`, with line and column of the byte `offset` of `text`, both counted from 1.
pub(super) fn at(text: &str, offset: usize, what: &str) -> String {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    format!("line {line}, column {column}: {what}")
}
