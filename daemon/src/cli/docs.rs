//! `fipd docs`: the parts of the documentation that are made of the program.

use clap::{Args, ValueEnum};

use super::{exit::Failure, output};
use crate::{api::rights, systems::SYSTEMS};

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
