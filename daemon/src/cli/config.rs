//! `fipd config`.

use clap::{Subcommand, ValueEnum};

use super::{exit::Failure, output};
use crate::{config::reference, systems::SYSTEMS};

#[derive(Debug, Subcommand)]
pub enum Config {
    /// Print every key of the configuration file: its type, its default and what it does
    Reference {
        /// As text for a manual, as a manual page, or as the JSON Schema that both are made of
        #[arg(long = "as", value_enum, default_value_t = Form::Markdown, value_name = "FORM")]
        form: Form,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Form {
    Markdown,
    Man,
    Schema,
}

impl Config {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let Self::Reference { form } = self;
        match form {
            Form::Markdown => output::print(&reference::markdown(*SYSTEMS)),
            Form::Man => output::print(&reference::man(*SYSTEMS)),
            Form::Schema => output::print(&reference::schema(*SYSTEMS)),
        }
    }
}
