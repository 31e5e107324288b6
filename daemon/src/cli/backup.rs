//! `fipd backup`.

mod drill;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{
    CliSession,
    download::{DownloadedFile, to_file},
    exit::Failure,
    output::Table,
};
use crate::api::wire::{BackupList, BackupView};

pub(super) const LONG_ABOUT: &str = "\
Write a copy of the store to a file while the daemon runs. Without a file: show, make or try the copies that the daemon
keeps, as [backup] in its configuration says.";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct Backup {
    /// File to write; must not exist. Readable by its owner only
    file: Option<PathBuf>,
    #[command(subcommand)]
    kept: Option<Kept>,
}

#[derive(Debug, Subcommand)]
enum Kept {
    /// The copies that the daemon keeps, newest first
    List,
    /// Let the daemon make one at once
    Now,
    /// Restore the newest one into a temporary directory, check it and compare it; nothing is changed
    Drill {
        /// This backup instead
        file: Option<PathBuf>,
    },
}

impl Backup {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        match (self.kept, self.file) {
            (None, Some(file)) => {
                let written = to_file(session, "/api/v1/backup", &file).await?;
                session.output.show(&written, DownloadedFile::facts)
            }
            (Some(Kept::List) | None, _) => session.show("/api/v1/backups", table).await,
            (Some(Kept::Now), _) => session.post_and_show("/api/v1/backups", &(), facts).await,
            (Some(Kept::Drill { file }), _) => drill::run(session, file.as_deref()).await,
        }
    }
}

fn facts(made: &BackupView) -> Table {
    Table::facts([
        ("Name", made.name.clone()),
        ("Created", made.created.clone()),
        ("Bytes", made.bytes.to_string()),
    ])
}

fn table(list: &BackupList) -> Table {
    let row = |copy: &BackupView| {
        let (name, created) = (copy.name.clone(), copy.created.clone());
        let verified = if copy.verified { "yes" } else { "NO" };
        [name, created, copy.bytes.to_string(), verified.to_owned()]
    };
    let heads = ["NAME", "CREATED", "BYTES", "VERIFIED"];
    Table::of(heads, list.backups.iter().map(row))
}
