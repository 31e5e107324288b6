//! `fipd completions`.

use clap::Args;
use clap_complete::Shell;

use super::{command, exit::Failure, output};

#[derive(Debug, Args)]
pub struct Completions {
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

impl Completions {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let shell = match self.shell.as_str() {
            "zsh" => Shell::Zsh,
            "fish" => Shell::Fish,
            _ => Shell::Bash,
        };
        output::print(&script(shell)?)
    }
}

fn script(shell: Shell) -> Result<String, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "fipd", &mut script);
    String::from_utf8(script).map_err(Failure::failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_is_told_of_the_commands_and_their_options() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell).unwrap();
            for word in [
                "allocate",
                "transfer",
                "set-password",
                "export",
                "jsonl",
                "completions",
            ] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
