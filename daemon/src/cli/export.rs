//! `fipd export`.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::{
    Session,
    client::with_query,
    download::{DownloadedFile, to_file, to_stdout},
    exit::Failure,
};

/// Asked for as it is.
#[derive(Debug, Args, Serialize)]
pub struct Export {
    /// File to write, readable by its owner only; must not exist. Stdout when left out
    #[serde(skip)]
    file: Option<PathBuf>,
    /// What to write; `fipd import` takes all but the audit log, networks and pools first
    #[arg(long, value_name = "KIND", default_value = "leases",
          value_parser = ["leases", "pools", "networks", "separations", "quotas", "audit"])]
    what: String,
    /// One JSON object a line, or CSV with a header line
    #[arg(long, value_name = "FORMAT", default_value = "jsonl", value_parser = ["jsonl", "csv"])]
    format: String,
}

impl Export {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let path = with_query("/api/v1/export", &self)?;
        match self.file {
            None => to_stdout(session, &path).await,
            Some(file) => {
                let written = to_file(session, &path, &file).await?;
                session.output.show(&written, DownloadedFile::facts)
            }
        }
    }
}
