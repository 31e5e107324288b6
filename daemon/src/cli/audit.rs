//! `fipd audit`.

use clap::Args;

use super::{
    Session,
    client::with_query,
    exit::Failure,
    output::{Table, or_dash},
};
use crate::api::wire::{AuditPage, AuditQuery};

#[derive(Debug, Args)]
pub struct Audit {
    /// How many entries, 1 to 1000
    #[arg(long, default_value_t = 50, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Only entries before this number
    #[arg(long, value_name = "NUMBER")]
    before: Option<u64>,
}

impl Audit {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let query = AuditQuery {
            before: self.before,
            cursor: None,
            limit: Some(self.limit.into()),
        };
        let page: AuditPage = session
            .client
            .get(&with_query("/api/v1/audit", &query)?)
            .await?;
        session.output.show(&page, table)
    }
}

fn table(page: &AuditPage) -> Table {
    let mut table = Table::new([
        "NUMBER", "AT", "ACTOR", "ACTION", "ADDRESS", "POOL", "OWNER", "DETAIL",
    ]);
    for entry in &page.entries {
        table.row([
            entry.number.to_string(),
            entry.at.clone(),
            entry.actor.clone(),
            entry.action.clone(),
            or_dash(entry.address.as_ref()),
            or_dash(entry.pool.as_ref()),
            or_dash(entry.owner.as_ref()),
            entry.detail.clone(),
        ]);
    }
    table
}
