//! `fipd pool history`.

use clap::Args;

use super::{
    Session,
    client::{segment, with_query},
    exit::Failure,
    output::Table,
};
use crate::api::wire::{HistoryPage, HistoryQuery};

/// Pages of one listing: the whole history of a pool as it is kept by default.
const PAGES: usize = 100;

#[derive(Debug, Args)]
pub struct History {
    /// Full name, or the last part of it where that is unique
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
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let path = format!("/api/v1/pools/{}/history", segment(&self.name));
        let mut query = HistoryQuery {
            from: self.from,
            to: self.to,
            step: Some(self.step),
            cursor: None,
            limit: Some(1_000),
        };
        let mut whole: HistoryPage = session.client.get(&with_query(&path, &query)?).await?;
        for _ in 1..PAGES {
            query.cursor = whole.next.take();
            if query.cursor.is_none() {
                break;
            }
            let page: HistoryPage = session.client.get(&with_query(&path, &query)?).await?;
            whole.rows.extend(page.rows);
            whole.next = page.next;
        }
        session.output.show(&whole, table)
    }
}

fn table(history: &HistoryPage) -> Table {
    let mut table = Table::new([
        "AT", "SIZE", "USED", "HIGHEST", "COOLING", "GIVEN", "RELEASED", "REFUSED",
    ]);
    for row in history.before.iter().chain(&history.rows) {
        table.row([
            row.at.clone(),
            row.size.to_string(),
            row.used.to_string(),
            row.highest.to_string(),
            row.quarantined.to_string(),
            row.given.to_string(),
            row.released.to_string(),
            row.refused.to_string(),
        ]);
    }
    table
}
