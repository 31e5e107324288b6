//! `fipd audit`.

use clap::Args;
use fipd_core::{Action, AddressSpec};
use serde::Serialize;

use super::{
    CliSession,
    client::with_query,
    exit::Failure,
    output::{Table, or_dash},
};
use crate::api::wire::{AuditPage, AuditView};

// Its fields are the query of the request: their names are those of the API.
#[derive(Debug, Args, Serialize)]
pub struct Audit {
    /// Part of who asked, such as user:ann
    #[arg(long, value_name = "ACTOR")]
    actor: Option<String>,
    /// What was decided, such as allocated or released
    #[arg(long, value_name = "ACTION", value_parser = Action::WORDS)]
    action: Option<String>,
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// Who had it, and when; of a prefix also what lies in it
    #[arg(long, value_name = "ADDRESS")]
    address: Option<AddressSpec>,
    /// Whose leases: SYSTEM/[CLUSTER/]KIND/NAMESPACE/NAME
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// Not before: RFC 3339, or a day such as 2026-03-01, in UTC
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Not after
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// How many entries, 1 to 1000
    #[arg(long, default_value_t = 50, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    #[serde(skip)]
    limit: u16,
    /// Only entries before this number
    #[arg(long, value_name = "NUMBER")]
    before: Option<u64>,
}

impl Audit {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        let path = with_query("/api/v1/audit", &self)?;
        // One request looks at a part of the log only.
        let page = session.client.rows(&path, "entries", self.limit.into());
        session.output.show(&page.await?, table)
    }
}

fn table(page: &AuditPage) -> Table {
    let row = |entry: &AuditView| {
        [
            entry.number.to_string(),
            entry.at.clone(),
            entry.actor.clone(),
            entry.action.clone(),
            or_dash(entry.what().as_ref()),
            or_dash(entry.pool.as_ref()),
            or_dash(entry.owner.as_ref()),
            entry.detail.clone(),
        ]
    };
    let heads = [
        "NUMBER", "AT", "ACTOR", "ACTION", "ADDRESS", "POOL", "OWNER", "DETAIL",
    ];
    Table::of(heads, page.entries.iter().map(row))
}
