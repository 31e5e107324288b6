//! What `fipd config`, `docs` and `completions` print of the program itself.

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::Shell;

use super::{command, exit::Failure, output};
use crate::{api::rights, config::reference, systems::SYSTEMS};

#[derive(Debug, Subcommand)]
pub enum Config {
    /// Print every key of the configuration file: its type, its default and what it does
    Reference {
        /// As text for a manual, as a manual page, or as the JSON Schema that both are made of
        #[arg(long = "as", value_enum, default_value_t = ReferenceForm::Markdown, value_name = "FORM")]
        form: ReferenceForm,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ReferenceForm {
    Markdown,
    Man,
    Schema,
}

impl Config {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let Self::Reference { form } = self;
        match form {
            ReferenceForm::Markdown => output::print(&reference::markdown(*SYSTEMS)),
            ReferenceForm::Man => output::print(&reference::man(*SYSTEMS)),
            ReferenceForm::Schema => output::print(&reference::schema(*SYSTEMS)),
        }
    }
}

#[derive(Debug, Args)]
pub struct Docs {
    part: Part,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Part {
    /// Who may ask what
    Rights,
    /// Flags and variables of the original programs
    Compat,
}

impl Docs {
    pub(super) fn run(&self) -> Result<(), Failure> {
        match self.part {
            Part::Rights => output::print(&rights::markdown(*SYSTEMS)),
            Part::Compat => output::print(&SYSTEMS.compat_markdown()),
        }
    }
}

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
