//! `fipd quota`.

use clap::Subcommand;
use http::Method;

use super::{
    CliSession,
    client::{segment, with_query},
    exit::Failure,
    output::Table,
};
use crate::api::wire::{QuotaPage, QuotaPut, QuotaQuery, QuotaView};

#[derive(Debug, Subcommand)]
pub enum Quota {
    /// Limit how many leases of a pool a tenant may hold, or how many addresses where the quotas of the pool count those;
    /// what it holds already stays
    Set {
        /// Who is charged: a Rancher project or what leases were given with
        #[arg(long)]
        tenant: String,
        #[arg(long)]
        pool: String,
        /// 0: none at all
        #[arg(long, value_name = "NUMBER")]
        limit: u64,
    },
    /// Limits and how much of them is used
    List {
        #[arg(long)]
        tenant: Option<String>,
        #[arg(long)]
        pool: Option<String>,
    },
    /// Take a limit away: the tenant may hold as much of the pool as there is
    Delete {
        #[arg(long)]
        tenant: String,
        #[arg(long)]
        pool: String,
    },
}

impl Quota {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        match self {
            Self::Set {
                tenant,
                pool,
                limit,
            } => {
                let (path, body) = (path(&pool, &tenant), QuotaPut { limit });
                session
                    .write_and_show(Method::PUT, &path, &body, facts)
                    .await
            }
            Self::List { tenant, pool } => {
                let query = QuotaQuery {
                    tenant,
                    pool,
                    ..QuotaQuery::default()
                };
                let path = with_query("/api/v1/quotas", &query)?;
                session.show_list(&path, "quotas", table).await
            }
            Self::Delete { tenant, pool } => session.client.delete(&path(&pool, &tenant)).await,
        }
    }
}

fn path(pool: &str, tenant: &str) -> String {
    format!("/api/v1/quotas/{}/{}", segment(pool), segment(tenant))
}

fn facts(quota: &QuotaView) -> Table {
    let [tenant, pool, used, limit] = cells(quota);
    Table::facts([
        ("Tenant", tenant),
        ("Pool", pool),
        ("Used", used),
        ("Limit", limit),
    ])
}

fn table(page: &QuotaPage) -> Table {
    let rows = page.quotas.iter().map(cells);
    Table::of(["TENANT", "POOL", "USED", "LIMIT"], rows)
}

fn cells(quota: &QuotaView) -> [String; 4] {
    let (used, limit) = (quota.used.to_string(), quota.limit.to_string());
    [quota.tenant.clone(), quota.pool.clone(), used, limit]
}
