//! How a command ends.

use std::process::ExitCode;

use crate::api::problem::{Code, Problem};

/// Why a command did not do what it was asked; the text is the one line on stderr.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Exit code 1.
    #[error("{0}")]
    Failed(String),
    /// Exit code 2: the command line or a value in it.
    #[error("{0}")]
    Input(String),
    /// Exit code 3.
    #[error("{0}")]
    NotFound(String),
    /// Exit code 4.
    #[error("{0}")]
    Exhausted(String),
}

impl Failure {
    /// What the shell sees.
    pub fn code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Input(_) => 2,
            Self::NotFound(_) => 3,
            Self::Exhausted(_) => 4,
        }
    }

    /// The exit code as the process returns it.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    /// A general failure from any error.
    pub fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let mut line = problem.detail.into_string();
        if !problem.candidates.is_empty() {
            line = format!("{line} ({})", problem.candidates.join(", "));
        }
        match problem.code {
            Code::Exhausted => Self::Exhausted(line),
            Code::NotFound => Self::NotFound(line),
            Code::Invalid
            | Code::NotAssignable
            | Code::Ambiguous
            | Code::TooLarge
            | Code::MethodNotAllowed
            | Code::UnsupportedMediaType => Self::Input(line),
            Code::QuotaExceeded
            | Code::NetworkAmbiguous
            | Code::AddressTaken
            | Code::NetworkHeld
            | Code::RestoreHeld
            | Code::PoolClosed
            | Code::PoolInUse
            | Code::WouldOrphan
            | Code::Collision
            | Code::Exists
            | Code::Conflict
            | Code::Stale
            | Code::Unauthenticated
            | Code::Forbidden
            | Code::ClusterForbidden
            | Code::DiskFull
            | Code::Busy
            | Code::Unavailable
            | Code::Timeout
            | Code::Internal
            | Code::Other => Self::Failed(line),
        }
    }
}

/// An error of the command line as one line: what clap says up to its first blank line, without line breaks.
pub fn usage_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let joined = first.split_whitespace().collect::<Vec<_>>().join(" ");
    joined.strip_prefix("error: ").unwrap_or(&joined).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_follow_the_problem() {
        let code = |code| Failure::from(Problem::new(code, "x")).code();
        assert_eq!(code(Code::Exhausted), 4);
        assert_eq!(code(Code::NotFound), 3);
        assert_eq!(code(Code::Invalid), 2);
        assert_eq!(code(Code::NotAssignable), 2);
        assert_eq!(code(Code::AddressTaken), 1);
        assert_eq!(code(Code::NetworkHeld), 1);
    }
}
