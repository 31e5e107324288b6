//! `fipd quota`.

use clap::Subcommand;

use super::{
    Session,
    client::{segment, with_query},
    exit::Failure,
    output::Table,
};
use crate::api::wire::{QuotaPage, QuotaPut, QuotaQuery, QuotaView};

#[derive(Debug, Subcommand)]
pub enum Quota {
    /// Limit how many addresses of a pool a tenant may hold; what it holds already stays
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
    /// Take a limit away: the tenant may have any number of the pool's addresses
    Delete {
        #[arg(long)]
        tenant: String,
        #[arg(long)]
        pool: String,
    },
}

impl Quota {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::Set {
                tenant,
                pool,
                limit,
            } => {
                let path = path(&pool, &tenant);
                let quota: QuotaView = session.client.put(&path, &QuotaPut { limit }).await?;
                session.output.show(&quota, |quota| {
                    Table::facts([
                        ("Tenant", quota.tenant.clone()),
                        ("Pool", quota.pool.clone()),
                        ("Used", quota.used.to_string()),
                        ("Limit", quota.limit.to_string()),
                    ])
                })
            }
            Self::List { tenant, pool } => {
                let mut query = QuotaQuery {
                    tenant,
                    pool,
                    limit: Some(1000),
                    ..QuotaQuery::default()
                };
                let mut list: QuotaPage = session.client.get(&listed(&query)?).await?;
                while let Some(next) = list.next.take() {
                    query.cursor = Some(next);
                    let page: QuotaPage = session.client.get(&listed(&query)?).await?;
                    list.quotas.extend(page.quotas);
                    list.next = page.next;
                }
                session.output.show(&list, |list| table(&list.quotas))
            }
            Self::Delete { tenant, pool } => {
                let path = path(&pool, &tenant);
                session.client.delete(&path).await.map(drop)
            }
        }
    }
}

fn listed(query: &QuotaQuery) -> Result<String, Failure> {
    with_query("/api/v1/quotas", query)
}

fn path(pool: &str, tenant: &str) -> String {
    format!("/api/v1/quotas/{}/{}", segment(pool), segment(tenant))
}

fn table(quotas: &[QuotaView]) -> Table {
    let mut table = Table::new(["TENANT", "POOL", "USED", "LIMIT"]);
    for quota in quotas {
        table.row([
            quota.tenant.clone(),
            quota.pool.clone(),
            quota.used.to_string(),
            quota.limit.to_string(),
        ]);
    }
    table
}
