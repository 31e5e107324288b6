//! `fipd lease`.

use std::net::IpAddr;

use clap::{Args, Subcommand};
use fipd_core::{LeaseState, Timestamp};

use self::tables::{releases, summaries};
use super::{
    Session,
    client::{segment, with_query},
    exit::Failure,
    wants::{Sharing, Source},
};
use crate::{
    api::wire::{
        Allocate as AllocateBody, Granted, LeasePage, LeaseQuery, LeaseView, ReleaseRequest,
        Released, ReleasedAddress, ReserveRequest,
    },
    clock,
};

mod label;
mod tables;

pub(super) use tables::facts;

#[derive(Debug, Subcommand)]
pub enum Lease {
    /// Give addresses to an owner; asking again gives the same ones
    Allocate(Box<AllocateArgs>),
    /// Keep addresses for an owner that comes later; asking again changes until when
    Reserve(Box<ReserveArgs>),
    /// Take addresses back; releasing what nobody holds succeeds
    Release(ReleaseArgs),
    /// Report what the check of an address on the wire has come to
    Probed(super::probed::Report),
    /// Give a lease to another owner, without a moment in between
    Transfer(Box<super::transfer::Transfer>),
    /// Change what is noted about a lease, to find it by; it stays while somebody holds the address
    Label(label::Label),
    /// Leases in order of network and address
    List(ListArgs),
    /// One lease
    Show {
        address: IpAddr,
        /// Network, where several have the address
        #[arg(long, value_name = "NAME")]
        network: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct AllocateArgs {
    #[command(flatten)]
    source: Source,
    /// Who shall hold it: SYSTEM/[CLUSTER/]KIND/NAMESPACE/NAME, such as fipd/Host/lab/printer
    #[arg(long, value_name = "OWNER")]
    owner: String,
    /// How many from each pool, 1 to 1024
    #[arg(long, value_name = "N", conflicts_with = "address",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(fipd_core::Want::MAX_COUNT)))]
    count: Option<u32>,
    /// Instance of the owner, such as an object's UID
    #[arg(long, default_value = "", value_name = "ID")]
    instance: String,
    /// Who is charged
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    sharing: Sharing,
    /// Only once it is checked that nobody else uses it: report that by `fipd lease probed` within 30 s
    #[arg(long, conflicts_with = "share")]
    probe: bool,
}

#[derive(Debug, Args)]
pub struct ReserveArgs {
    #[command(flatten)]
    source: Source,
    /// Who will hold it: SYSTEM/[CLUSTER/]KIND/NAMESPACE/NAME
    #[arg(long, value_name = "OWNER")]
    owner: String,
    /// Who is charged
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// How long, such as 12h or 7d; for ever when neither this nor --until is given
    #[arg(long = "for", value_name = "TIME", value_parser = clock::seconds)]
    lasts: Option<u32>,
    /// Until when, such as 2026-03-01T12:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "lasts", value_parser = time)]
    until: Option<Timestamp>,
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(true).args(["addresses", "owner"])))]
pub struct ReleaseArgs {
    /// Addresses to take back, whoever holds them (with --owner: only if it does)
    #[arg(value_name = "ADDRESS")]
    addresses: Vec<IpAddr>,
    /// All that this owner holds
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// Only leases of this instance of the owner
    #[arg(long, requires = "owner", value_name = "ID")]
    instance: Option<String>,
    /// Only leases of this pool
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// Only leases in this network
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Free addresses that cool after a release before their time
    #[arg(long, conflicts_with = "owner")]
    end_quarantine: bool,
    /// Why, for the audit log
    #[arg(long, default_value = "", value_name = "TEXT")]
    reason: String,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Name or id of a cluster
    #[arg(long, value_name = "CLUSTER")]
    cluster: Option<String>,
    #[arg(long, value_name = "SYSTEM")]
    system: Option<String>,
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// Who is charged
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only on these addresses: a CIDR, a range or one address
    #[arg(long, value_name = "ADDRESSES")]
    within: Option<String>,
    #[arg(long, value_name = "STATE",
          value_parser = LeaseState::WORDS)]
    state: Option<String>,
    /// Only with this label: KEY or KEY=VALUE; may be repeated, all must fit
    #[arg(long, value_name = "LABEL")]
    label: Vec<String>,
    /// At most so many; all when left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

impl Lease {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::Allocate(allocate) => {
                let body = allocate.body(session).await?;
                let granted: Granted = session.client.post("/api/v1/leases", &body).await?;
                session.output.show(&granted, |granted| {
                    summaries(&granted.leases.iter().collect::<Vec<_>>())
                })
            }
            Self::Reserve(reserve) => {
                let body = reserve.body(session).await?;
                let granted: Granted = session.client.post("/api/v1/leases/reserve", &body).await?;
                session.output.show(&granted, |granted| {
                    summaries(&granted.leases.iter().collect::<Vec<_>>())
                })
            }
            Self::Release(release) => {
                let released = release.run(session).await?;
                session.output.show(&released, releases)
            }
            Self::Probed(report) => report.run(session).await,
            Self::Transfer(transfer) => transfer.run(session).await,
            Self::Label(label) => label.run(session).await,
            Self::List(list) => {
                let (query, limit) = list.query();
                let leases = all(session, query, limit).await?;
                let listed = LeasePage { leases, next: None };
                session.output.show(
                    &ListedLeases {
                        leases: &listed.leases,
                    },
                    |listed| {
                        let leases: Vec<_> =
                            listed.leases.iter().map(|lease| &lease.summary).collect();
                        summaries(&leases)
                    },
                )
            }
            Self::Show { address, network } => {
                let lease = find(session, address, network, None).await?;
                let lease = lease.ok_or_else(|| {
                    Failure::NotFound(format!("nobody holds the address {address}"))
                })?;
                session.output.show(&lease, facts)
            }
        }
    }
}

/// A whole list, without a cursor.
#[derive(serde::Serialize)]
struct ListedLeases<'a> {
    leases: &'a [LeaseView],
}

impl AllocateArgs {
    async fn body(self, session: &Session) -> Result<AllocateBody, Failure> {
        let wants = self.source.wants(session, self.count).await?;
        Ok(AllocateBody {
            owner: self.owner,
            instance: self.instance,
            tenant: self.tenant,
            wants,
            share: self.sharing.body(),
            probe: self.probe,
        })
    }
}

impl ReserveArgs {
    async fn body(self, session: &Session) -> Result<ReserveRequest, Failure> {
        Ok(ReserveRequest {
            wants: self.source.wants(session, None).await?,
            owner: self.owner,
            tenant: self.tenant,
            until: self.until.map(clock::rfc3339),
            lasts: self.lasts,
        })
    }
}

fn time(text: &str) -> Result<Timestamp, String> {
    clock::parse_rfc3339(text)
        .ok_or_else(|| "a time such as 2026-03-01T12:00:00Z is allowed".to_owned())
}

impl ReleaseArgs {
    async fn run(self, session: &Session) -> Result<Released, Failure> {
        if let Some(owner) = self.owner {
            let body = ReleaseRequest {
                owner,
                instance: self.instance,
                addresses: self.addresses.iter().map(ToString::to_string).collect(),
                pool: self.pool,
                network: self.network,
                reason: self.reason,
            };
            return session.client.post("/api/v1/leases/release", &body).await;
        }
        let mut released = Vec::new();
        for address in &self.addresses {
            let found = find(session, *address, self.network.clone(), self.pool.clone()).await?;
            let Some(lease) = found else { continue };
            let network = lease.summary.network;
            let path = format!("/api/v1/leases/{}/{address}", segment(&network));
            let query = [
                ("reason", self.reason.as_str()),
                (
                    "end_quarantine",
                    if self.end_quarantine { "true" } else { "" },
                ),
            ];
            let query: std::collections::BTreeMap<_, _> = query
                .into_iter()
                .filter(|(_, value)| !value.is_empty())
                .collect();
            session.client.delete(&with_query(&path, &query)?).await?;
            released.push(ReleasedAddress {
                network,
                address: *address,
            });
        }
        Ok(Released { released })
    }
}

impl ListArgs {
    fn query(self) -> (LeaseQuery, Option<usize>) {
        let limit = self
            .limit
            .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let query = LeaseQuery {
            pool: self.pool,
            network: self.network,
            cluster: self.cluster,
            system: self.system,
            owner: self.owner,
            state: self.state,
            tenant: self.tenant,
            within: self.within,
            label: self.label,
            ..LeaseQuery::default()
        };
        (query, limit)
    }
}

/// All pages of a query, up to `limit` leases.
async fn all(
    session: &Session,
    mut query: LeaseQuery,
    limit: Option<usize>,
) -> Result<Vec<LeaseView>, Failure> {
    const PAGE: usize = 1000;
    let mut leases = Vec::new();
    loop {
        let wanted = limit.map_or(PAGE, |limit| limit.saturating_sub(leases.len()).min(PAGE));
        if wanted == 0 {
            return Ok(leases);
        }
        query.limit = Some(wanted);
        let page: LeasePage = session
            .client
            .get(&with_query("/api/v1/leases", &query)?)
            .await?;
        leases.extend(page.leases);
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => return Ok(leases),
        }
    }
}

/// The one lease of an address; an error where several networks have it.
pub(super) async fn find(
    session: &Session,
    address: IpAddr,
    network: Option<String>,
    pool: Option<String>,
) -> Result<Option<LeaseView>, Failure> {
    let query = LeaseQuery {
        address: Some(address.to_string()),
        network,
        pool,
        ..LeaseQuery::default()
    };
    let mut leases = all(session, query, None).await?;
    if leases.len() > 1 {
        let networks: Vec<_> = leases
            .iter()
            .map(|lease| lease.summary.network.as_str())
            .collect();
        return Err(Failure::Input(format!(
            "address: \"{address}\" is held in several networks; choose one with --network: {}",
            networks.join(", ")
        )));
    }
    Ok(leases.pop())
}
