//! `fipd backup`.

use std::path::PathBuf;

use clap::Args;

use super::{
    Session,
    download::{Written, to_file},
    exit::Failure,
};

#[derive(Debug, Args)]
pub struct Backup {
    /// File to write; must not exist. Readable by its owner only
    file: PathBuf,
}

impl Backup {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let written = to_file(session, "/api/v1/backup", &self.file).await?;
        session.output.show(&written, Written::facts)
    }
}
