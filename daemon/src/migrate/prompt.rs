//! Questions to whoever runs the command.

use std::io::{self, IsTerminal as _, Write as _};

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptAnswer {
    /// Go on.
    Yes,
    /// Not this one.
    No,
    /// Nobody answers any more.
    Ended,
}

/// Whether there is somebody who can answer.
pub fn somebody_is_there() -> bool {
    io::stdin().is_terminal()
}

/// Asks until the answer is yes or no; Enter alone is yes.
///
/// # Errors
/// The terminal cannot be read or written.
pub async fn ask(question: String) -> io::Result<PromptAnswer> {
    let asked = tokio::task::spawn_blocking(move || {
        loop {
            write!(io::stderr(), "{question} [Y/n] ")?;
            let mut line = String::new();
            if io::stdin().read_line(&mut line)? == 0 {
                return Ok(PromptAnswer::Ended);
            }
            if let Some(reply) = understood(&line) {
                return Ok(reply);
            }
        }
    });
    asked.await.map_err(io::Error::other)?
}

fn understood(line: &str) -> Option<PromptAnswer> {
    match line.trim().to_ascii_lowercase().as_str() {
        "" | "y" | "yes" => Some(PromptAnswer::Yes),
        "n" | "no" => Some(PromptAnswer::No),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enter_is_yes_and_nonsense_is_asked_again() {
        for line in ["\n", " \r\n", "y\n", "YES\n"] {
            assert_eq!(understood(line), Some(PromptAnswer::Yes), "{line:?}");
        }
        for line in ["n\n", "No"] {
            assert_eq!(understood(line), Some(PromptAnswer::No), "{line:?}");
        }
        for line in ["maybe\n", "yn\n"] {
            assert_eq!(understood(line), None, "{line:?}");
        }
    }
}
