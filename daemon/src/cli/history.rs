//! `fipd pool history`.

use clap::Args;
use serde::Serialize;

use super::{
    CliSession,
    client::{segment, with_query},
    exit::Failure,
    output::Table,
};
use crate::api::wire::{HistoryPage, HistoryView};

// Its fields are the query of the request: their names are those of the API.
#[derive(Debug, Args, Serialize)]
pub struct History {
    /// Full name, or the last part of it where that is unique
    #[serde(skip)]
    name: String,
    /// One row an hour, or one a day
    #[arg(long, value_name = "STEP", default_value = "hour", value_parser = ["hour", "day"])]
    step: String,
    /// RFC 3339; 7 days before --to when left out, or 90 with --step day
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// RFC 3339; the last hour that is over when left out
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
}

impl History {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        let path = format!("/api/v1/pools/{}/history", segment(&self.name));
        let path = with_query(&path, &self)?;
        session.show_list(&path, "rows", table).await
    }
}

fn table(history: &HistoryPage) -> Table {
    let row = |row: &HistoryView| {
        [
            row.at.clone(),
            row.size.to_string(),
            row.used.to_string(),
            row.highest.to_string(),
            row.quarantined.to_string(),
            row.given.to_string(),
            row.released.to_string(),
            row.refused.to_string(),
        ]
    };
    let heads = [
        "AT", "SIZE", "USED", "HIGHEST", "COOLING", "GIVEN", "RELEASED", "REFUSED",
    ];
    Table::of(heads, history.before.iter().chain(&history.rows).map(row))
}
