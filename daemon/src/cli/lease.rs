//! `fipd lease`.

use clap::{Args, Subcommand};
use fipd_core::{LeaseState, Timestamp};
use serde::Serialize;
use serde_json::json;

use self::tables::{releases, summaries};
use super::{
    CliSession,
    client::{segment, with_query},
    exit::Failure,
    output::Table,
    wants::{Sharing, Source, named},
};
use crate::{
    api::wire::{
        Allocate as AllocateBody, Granted, LeasePage, LeaseQuery, LeaseView, ReleaseRequest,
        Released, ReleasedAddress, ReserveRequest,
    },
    clock,
};

mod changes;
mod tables;

use tables::facts;

#[derive(Debug, Subcommand)]
pub enum Lease {
    /// Give addresses to an owner; asking again gives the same ones
    Allocate(Box<AllocateArgs>),
    /// Keep addresses for an owner that comes later; asking again changes until when
    Reserve(Box<ReserveArgs>),
    /// Take addresses back; releasing what nobody holds succeeds
    Release(ReleaseArgs),
    /// Report what the check of an address on the wire has come to
    Probed(changes::Report),
    /// Give a lease to another owner, without a moment in between
    Transfer(Box<changes::Transfer>),
    /// Change what is noted about a lease, to find it by; it stays while somebody holds the address
    Label(changes::Label),
    /// Leases in order of network and address
    List(ListArgs),
    /// One lease
    Show {
        /// An address, or a prefix such as 2001:db8:0:3::/64; an address in a leased prefix shows that
        #[arg(value_parser = prefix)]
        address: String,
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
    #[arg(value_name = "ADDRESS", value_parser = prefix)]
    addresses: Vec<String>,
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

// Its fields are the query of the request: their names are those of the API.
#[derive(Debug, Args, Serialize)]
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
    /// Only on these addresses, of prefixes those that are whole in them: a CIDR, a range or one address
    #[arg(long, value_name = "ADDRESSES")]
    within: Option<String>,
    /// Only those that have all of these addresses: a CIDR, a range or one address
    #[arg(long, value_name = "ADDRESSES")]
    containing: Option<String>,
    #[arg(long, value_name = "STATE",
          value_parser = LeaseState::WORDS)]
    state: Option<String>,
    /// Only with this label: KEY or KEY=VALUE; may be repeated, all must fit
    #[arg(long, value_name = "LABEL")]
    label: Vec<String>,
    /// At most so many; all when left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    #[serde(skip)]
    limit: Option<u64>,
}

impl Lease {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        match self {
            Self::Allocate(allocate) => {
                let body = allocate.body(session).await?;
                session
                    .post_and_show("/api/v1/leases", &body, granted)
                    .await
            }
            Self::Reserve(reserve) => {
                let body = reserve.body(session).await?;
                let path = "/api/v1/leases/reserve";
                session.post_and_show(path, &body, granted).await
            }
            Self::Release(release) => {
                let released = release.run(session).await?;
                session.output.show(&released, releases)
            }
            Self::Probed(report) => report.run(session).await,
            Self::Transfer(transfer) => transfer.run(session).await,
            Self::Label(label) => label.run(session).await,
            Self::List(list) => {
                let leases = all(session, &list, list.limit).await?;
                session.output.show(&ListedLeases { leases }, |listed| {
                    summaries(&mut listed.leases.iter().map(|lease| &lease.summary))
                })
            }
            Self::Show { address, network } => {
                let of = NetworkOrPool {
                    network,
                    pool: None,
                };
                session
                    .output
                    .show(&of.held(session, &address).await?, facts)
            }
        }
    }
}

/// An address, or a prefix with its length, as a request has it.
fn prefix(text: &str) -> Result<String, String> {
    named(text).map(|spec| spec.to_string())
}

/// A whole list, without a cursor.
#[derive(Serialize)]
struct ListedLeases {
    leases: Vec<LeaseView>,
}

fn granted(granted: &Granted) -> Table {
    summaries(&mut granted.leases.iter())
}

impl AllocateArgs {
    async fn body(self, session: &CliSession) -> Result<AllocateBody, Failure> {
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
    async fn body(self, session: &CliSession) -> Result<ReserveRequest, Failure> {
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
    async fn run(self, session: &CliSession) -> Result<Released, Failure> {
        if let Some(owner) = self.owner {
            let body = ReleaseRequest {
                owner,
                instance: self.instance,
                addresses: self.addresses,
                pool: self.pool,
                network: self.network,
                reason: self.reason,
            };
            return session.client.post("/api/v1/leases/release", &body).await;
        }
        let mut released = Vec::new();
        for address in &self.addresses {
            let of = NetworkOrPool {
                network: self.network.clone(),
                pool: self.pool.clone(),
            };
            let Some(lease) = find(session, address, of).await? else {
                continue;
            };
            let network = lease.summary.network;
            let path = format!("/api/v1/leases/{}/{}", segment(&network), segment(address));
            // An older daemon does not know `end_quarantine`.
            let query = json!({
                "reason": Some(&self.reason).filter(|reason| !reason.is_empty()),
                "end_quarantine": self.end_quarantine.then_some(true),
            });
            session.client.delete(&with_query(&path, &query)?).await?;
            released.push(ReleasedAddress {
                network,
                address: lease.summary.address,
                length: lease.summary.length,
            });
        }
        Ok(Released { released })
    }
}

/// All pages of a query, up to `limit` leases.
async fn all(
    session: &CliSession,
    query: &impl Serialize,
    limit: Option<u64>,
) -> Result<Vec<LeaseView>, Failure> {
    let path = with_query("/api/v1/leases", query)?;
    let most = limit.and_then(|limit| usize::try_from(limit).ok());
    let most = most.unwrap_or(usize::MAX);
    let page: LeasePage = session.client.rows(&path, "leases", most).await?;
    Ok(page.leases)
}

/// Which lease of an address.
#[derive(Debug, Args)]
pub(super) struct NetworkOrPool {
    /// Network, where several have the address
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Pool, where several have the address
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
}

impl NetworkOrPool {
    /// The lease of an address that somebody holds.
    pub(super) async fn held(
        self,
        session: &CliSession,
        address: &str,
    ) -> Result<LeaseView, Failure> {
        let found = find(session, address, self).await?;
        found.ok_or_else(|| Failure::NotFound(format!("nobody holds the address {address}")))
    }

    /// The path of what can be asked about such a lease.
    pub(super) async fn path(
        self,
        session: &CliSession,
        address: &str,
        what: &str,
    ) -> Result<String, Failure> {
        let network = self.held(session, address).await?.summary.network;
        Ok(format!(
            "/api/v1/leases/{}/{}/{what}",
            segment(&network),
            segment(address)
        ))
    }
}

/// The one lease of an address; an error where several networks have it.
async fn find(
    session: &CliSession,
    address: &str,
    of: NetworkOrPool,
) -> Result<Option<LeaseView>, Failure> {
    let query = LeaseQuery {
        address: Some(address.to_string()),
        network: of.network,
        pool: of.pool,
        ..LeaseQuery::default()
    };
    let mut leases = all(session, &query, None).await?;
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
