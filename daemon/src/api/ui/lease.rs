//! The page of one address.

use std::{net::IpAddr, sync::Arc};

use axum::extract::State;
use fipd_core::{Contender, Lease, LeaseKey, Ledger, Member, NetworkId};
use fipd_web_ui::{AuditRow, FreeAddress, LeasePage, Nav, Party, links};

use super::{
    audit::read_page,
    fields::with_query,
    page::{Answered, Failure, page},
    views,
    visit::{Place, Visitor},
};
use crate::api::{
    Api,
    convert::{network_name, owner_text},
};

/// Newest rows of the audit log that are searched for the address.
const SEARCHED: usize = 1_000;
/// Rows of history, holders and contenders that are shown.
const SHOWN: usize = 50;

pub async fn show(
    State(api): State<Arc<Api>>,
    visitor: Visitor,
    Place((network, address)): Place<(String, String)>,
) -> Answered {
    let key = find(&api, &visitor, &network, &address)?;
    let history = history(&api, key).await;
    let shell = visitor.shell(Nav::Pools);
    let may_write = visitor.may_write();
    let page_of_lease = api.ipam.read(|ledger| {
        let lease = ledger.lease(key);
        let pool = lease
            .and_then(|lease| lease.pool)
            .or_else(|| pool_of(ledger, key));
        let pool = pool.and_then(|id| ledger.pool(id));
        LeasePage {
            shell,
            network_name: network_name(ledger, key.network),
            address: key.address,
            pool: pool.map(|pool| (pool.id.0, pool.spec.name.to_string())),
            prefix_len: lease.map(|lease| ledger.prefix_len(lease)),
            gateway: pool.and_then(|pool| pool.spec.gateway),
            tenant: lease
                .and_then(|lease| lease.tenant.as_ref())
                .map_or_else(String::new, |t| t.0.to_string()),
            lease: lease.map(|lease| views::lease_row(ledger, lease)),
            free: lease.is_none().then(|| free(ledger, key, may_write)),
            holders: lease.map_or_else(Vec::new, |lease| holders(ledger, lease)),
            contenders: lease.map_or_else(Vec::new, |lease| contenders(ledger, lease)),
            history,
            searched: SEARCHED,
        }
    });
    Ok(page(&page_of_lease))
}

/// The address of a known network.
pub fn find(
    api: &Api,
    visitor: &Visitor,
    network: &str,
    address: &str,
) -> Result<LeaseKey, Failure> {
    let address: Option<IpAddr> = address.parse().ok();
    let network = network.parse().ok().map(NetworkId);
    let known = network.filter(|id| api.ipam.read(|ledger| ledger.network(*id).is_some()));
    match (known, address) {
        (Some(network), Some(address)) => Ok(LeaseKey {
            network,
            address: address.to_canonical(),
        }),
        (None, _) => Err(visitor.not_found("There is no network with that number.")),
        (_, None) => Err(visitor.not_found("That is no address.")),
    }
}

/// The pool that gives the address, else one that lists it.
fn pool_of(ledger: &Ledger, key: LeaseKey) -> Option<fipd_core::PoolId> {
    let pools = ledger.pools_at(key);
    let giving = pools.iter().find(|(_, assignable)| *assignable);
    giving.or(pools.first()).map(|(id, _)| *id)
}

fn free(ledger: &Ledger, key: LeaseKey, may_write: bool) -> FreeAddress {
    let pools = ledger.pools_at(key);
    let name = |id| {
        ledger
            .pool(id)
            .map_or_else(String::new, |pool| pool.spec.name.to_string())
    };
    let open = |id| ledger.pool(id).is_some_and(|pool| !pool.spec.closed);
    let giving = pools
        .iter()
        .find(|(id, assignable)| *assignable && open(*id));
    match (giving, pools.first()) {
        (Some((id, _)), _) => FreeAddress {
            status: format!("free in pool {}", name(*id)),
            allocate: may_write.then(|| {
                with_query(
                    &links::allocate(id.0),
                    &[("address", &key.address.to_string())],
                )
            }),
        },
        (None, Some((id, true))) => FreeAddress {
            status: format!("free in pool {}, which is closed", name(*id)),
            allocate: None,
        },
        (None, Some((id, false))) => FreeAddress {
            status: format!("excluded or reserved in pool {} and never given", name(*id)),
            allocate: None,
        },
        (None, None) => FreeAddress {
            status: "in no pool of this network".to_owned(),
            allocate: None,
        },
    }
}

fn holders(ledger: &Ledger, lease: &Lease) -> Vec<Party> {
    let party = |member: &Member| {
        let ports = member.ports.iter().map(|claim| {
            let protocol = match claim.protocol {
                fipd_core::Protocol::Tcp => "TCP",
                fipd_core::Protocol::Udp => "UDP",
                fipd_core::Protocol::Sctp => "SCTP",
            };
            format!("{protocol} {}", claim.port)
        });
        Party {
            ports: ports.collect(),
            ..party(ledger, &member.holder)
        }
    };
    lease.members.iter().take(SHOWN).map(party).collect()
}

fn contenders(ledger: &Ledger, lease: &Lease) -> Vec<Party> {
    let party = |contender: &Contender| Party {
        since: Some(views::moment(contender.since)),
        ..party(ledger, &contender.holder)
    };
    lease.contenders.iter().take(SHOWN).map(party).collect()
}

fn party(ledger: &Ledger, holder: &fipd_core::Holder) -> Party {
    let cluster = holder.identity.cluster.as_ref();
    Party {
        owner: owner_text(ledger, &holder.identity),
        instance: holder.instance.to_string(),
        cluster: cluster.map_or_else(String::new, |id| {
            format!("{} ({id})", views::cluster_name(ledger, id))
        }),
        ports: Vec::new(),
        since: None,
    }
}

/// Empty while the log cannot be read: the page is still worth showing.
async fn history(api: &Api, key: LeaseKey) -> Vec<AuditRow> {
    let Ok(entries) = read_page(api, None, SEARCHED).await else {
        return Vec::new();
    };
    let of_address = entries.iter().filter(|(_, entry)| {
        entry.network == Some(key.network) && entry.address == Some(key.address)
    });
    let of_address: Vec<_> = of_address.take(SHOWN).map(|(_, entry)| entry).collect();
    api.ipam.read(|ledger| {
        of_address
            .iter()
            .map(|entry| views::audit_row(ledger, entry))
            .collect()
    })
}
