//! `fipd audit`.

use std::net::IpAddr;

use clap::Args;
use fipd_core::Action;

use super::{
    Session,
    client::with_query,
    exit::Failure,
    output::{Table, or_dash},
};
use crate::api::wire::{AuditPage, AuditQuery};

#[derive(Debug, Args)]
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
    /// Who had it, and when
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
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
    limit: u16,
    /// Only entries before this number
    #[arg(long, value_name = "NUMBER")]
    before: Option<u64>,
}

impl Audit {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let limit = usize::from(self.limit);
        let mut query = AuditQuery {
            actor: self.actor,
            action: self.action,
            network: self.network,
            pool: self.pool,
            address: self.address.map(|address| address.to_string()),
            owner: self.owner,
            from: self.from,
            to: self.to,
            before: self.before,
            cursor: None,
            limit: None,
        };
        let mut entries = Vec::new();
        // One request looks at a part of the log only.
        let next = loop {
            query.limit = Some(limit - entries.len());
            let path = with_query("/api/v1/audit", &query)?;
            let page: AuditPage = session.client.get(&path).await?;
            entries.extend(page.entries);
            if page.next.is_none() || entries.len() >= limit {
                break page.next;
            }
            query.cursor = page.next;
        };
        session.output.show(&AuditPage { entries, next }, table)
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
