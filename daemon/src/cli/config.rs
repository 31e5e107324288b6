//! `fipd config`.

use clap::{Subcommand, ValueEnum};

use super::{exit::Failure, output};
use crate::{config::reference, systems::SYSTEMS};

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
