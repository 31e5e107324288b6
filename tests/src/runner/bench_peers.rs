//! `cargo bench-peers [NAME]`: runs the benches and prints one line per figure.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::bench::{BENCHES, Bench};
use crate::say::say;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only the bench of this name
    name: Option<String>,
}

/// Runs the benches. The exit code is a failure when any figure is short of its budget.
pub async fn run(arguments: &Arguments) -> Result<ExitCode> {
    if cfg!(debug_assertions) {
        bail!("benches measure release builds: run them as `cargo bench-peers`");
    }
    let mut short = 0;
    for bench in chosen(BENCHES, arguments.name.as_deref())? {
        for figure in (bench.run)().await? {
            say(figure.line());
            short += usize::from(!figure.is_ok());
        }
    }
    if short > 0 {
        say(format_args!("{short} short of the budget"));
    }
    Ok(if short == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn chosen<'a>(all: &'a [Bench], name: Option<&str>) -> Result<Vec<&'a Bench>> {
    let found = all
        .iter()
        .filter(|bench| name.is_none_or(|name| name == bench.name))
        .collect::<Vec<_>>();
    if found.is_empty() {
        let names = all
            .iter()
            .map(|bench| bench.name)
            .collect::<Vec<_>>()
            .join(", ");
        bail!(
            "no bench is called {:?}; there are: {names}",
            name.unwrap_or_default()
        );
    }
    Ok(found)
}
