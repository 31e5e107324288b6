//! `fipd man`: what packages install for `man fipd`.

use std::{
    io,
    path::{Path, PathBuf},
};

use clap::{Args, Command};
use clap_mangen::Man;

use fipd_core::Timestamp;

use super::{command, exit::Failure, shown};
use crate::{clock, config::reference, systems::SYSTEMS};

/// Commands of users, beside which there is fipd.toml(5); the daemon among them is started by its unit.
const SECTION: &str = "1";
const SOURCE: &str = concat!("fipd ", env!("CARGO_PKG_VERSION"));

#[derive(Debug, Args)]
pub struct Pages {
    /// A folder that is there
    folder: PathBuf,
}

impl Pages {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut top = command().disable_help_subcommand(true);
        top.build();
        let written = write(&top, &self.folder, &date());
        let config = self.folder.join("fipd.toml.5");
        let written = written.and_then(|()| std::fs::write(config, reference::man(*SYSTEMS)));
        written.map_err(|error| {
            Failure::Failed(format!(
                "the manual pages cannot be written to {}: {error}",
                shown(&self.folder)
            ))
        })
    }
}

/// One page for the command and one for each below it, as `fipd-pool-create.1`.
fn write(command: &Command, folder: &Path, date: &str) -> io::Result<()> {
    let below = command.get_subcommands().filter(|one| !one.is_hide_set());
    for command in below {
        write(command, folder, date)?;
    }
    let page = Man::new(command.clone())
        .section(SECTION)
        .date(date)
        .source(SOURCE)
        .manual("fipd");
    page.generate_to(folder).map(drop)
}

/// Of the pages: the same source makes the same pages, on whatever day.
fn date() -> String {
    let said = std::env::var("SOURCE_DATE_EPOCH").ok();
    let seconds = said.and_then(|seconds| seconds.parse::<u64>().ok());
    let at = seconds.map_or_else(clock::now, |seconds| {
        Timestamp(seconds.saturating_mul(1_000))
    });
    clock::rfc3339(at)
        .chars()
        .take("2026-03-01".len())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_that_names_its_options() {
        let folder = tempfile::tempdir().unwrap();
        let pages = Pages {
            folder: folder.path().to_owned(),
        };
        pages.run().unwrap();
        let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(page("fipd.1").contains("fipd\\-pool(1)"));
        assert!(page("fipd-serve.1").contains("\\-\\-data\\-dir"));
        assert!(page("fipd.toml.5").contains("data\\-dir"));
        assert!(page("fipd-pool-create.1").contains("\\-\\-cidr"));
        assert!(
            !folder.path().join("fipd-man.1").exists(),
            "for packages only"
        );
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let pages = Pages {
            folder: "/nowhere/at/all".into(),
        };
        let told = pages.run().unwrap_err().to_string();
        assert!(told.contains("/nowhere/at/all"), "{told}");
    }
}
