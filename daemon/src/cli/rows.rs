//! `fipd export` and `fipd import`: rows in files.

use std::path::PathBuf;

use clap::Args;
use http::Method;
use serde::Serialize;

use super::{
    CliSession,
    client::{answer, with_query},
    download::{DownloadedFile, to_file, to_stdout},
    exit::Failure,
    output::Table,
    shown,
};
use crate::api::wire::{ImportQuery, ImportReport, ImportedRow};

// Its fields are the query of the request: their names are those of the API.
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
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
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

pub(super) const IMPORT_LONG_ABOUT: &str = "\
Write networks, separations, pools, quotas and leases from a file, in the form in which `fipd export` writes them. A lease
needs no more than address and owner, a pool no more than name and addresses, a separation no more than the names of two
networks in `networks`; what is named must be there or come first. A new pool that names no network is in `default`, and
gives nothing that a pool of another network may mean. All rows are taken in one decision or none is: one bad row keeps all
others out. What is so already stays as it is.

Up to 128 MiB and 200,000 rows are taken at once. A tenant gets more than its quota only with --force. While free addresses
are held after a restore, no file gives one to anybody new; `fipd hold lift` ends that.";

#[derive(Debug, Args)]
pub struct Import {
    /// JSON Lines, or CSV with a header line
    file: PathBuf,
    /// Only say what would become of each row
    #[arg(long)]
    dry_run: bool,
    /// Also where the quota of a tenant is used up
    #[arg(long)]
    force: bool,
    /// Left out: CSV where the file is called so
    #[arg(long, value_name = "FORMAT", value_parser = ["jsonl", "csv"])]
    format: Option<String>,
}

impl Import {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        let file = shown(&self.file);
        let unread = |error: std::io::Error| Failure::Input(format!("{file}: {error}"));
        let length = std::fs::metadata(&self.file).map_err(unread)?.len();
        if length > ImportQuery::MAX_BYTES as u64 {
            let most = ImportQuery::MOST;
            return Err(Failure::Input(format!("{file} has {length} bytes: {most}")));
        }
        let text = std::fs::read(&self.file).map_err(unread)?;
        let csv = self.file.extension().is_some_and(|end| end == "csv");
        let format = self
            .format
            .unwrap_or_else(|| if csv { "csv" } else { "jsonl" }.to_owned());
        let query = ImportQuery {
            dry_run: self.dry_run,
            force: self.force,
            format: Some(format),
        };
        let path = with_query("/api/v1/import", &query)?;
        let report = session.client.send(Method::POST, &path, Some(text)).await?;
        let report: ImportReport = answer(&report)?;
        session.output.show(&report, table)?;
        if report.refused == 0 {
            return Ok(());
        }
        Err(Failure::Input(format!(
            "{file}: {} of {} rows are refused; nothing is written",
            report.refused,
            report.rows.len()
        )))
    }
}

fn table(report: &ImportReport) -> Table {
    let row = |row: &ImportedRow| {
        let why = row.error.clone().unwrap_or_default();
        [row.row.to_string(), row.what.clone(), row.fate.clone(), why]
    };
    let heads = ["ROW", "WHAT", "FATE", "WHY"];
    let mut table = Table::of(heads, report.rows.iter().map(row));
    let written = match report.written {
        true => "written",
        false => "not written",
    };
    let counts = format!(
        "{} to create, {} to change, {} the same, {} refused",
        report.created, report.changed, report.same, report.refused
    );
    table.row(["all".to_owned(), counts, written.to_owned(), String::new()]);
    table
}
