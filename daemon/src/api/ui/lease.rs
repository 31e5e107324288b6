//! The page of one address.

use std::{net::IpAddr, sync::Arc};

use axum::extract::State;
use fipd_core::{
    Contender, Holder, Identity, Lease, LeaseKey, Ledger, Member, NetworkId, PoolId, Span,
};
use fipd_web_ui::{AddressPage, FreeAddress, Nav, Pager, Party, links};

use super::{
    fields::with_query,
    page::{Answered, Failure, go_to, page},
    views,
};
use crate::{
    api::{
        convert::{network_name, owner_text},
        rest::audit::search,
        ui::session_extract::{PathParam, Query, Visitor},
    },
    guests::GuestBoard,
    ipam::Ipam,
    store::{AuditFilter, AuditFound},
};

/// Rows of history, holders and contenders that are shown.
const SHOWN: usize = 50;

pub async fn show(
    State(guests): State<GuestBoard>,
    visitor: Visitor,
    PathParam((network, address)): PathParam<(String, String)>,
    Query(query): Query,
) -> Answered {
    let asked = find(&visitor, &network, &address)?;
    // What is in a leased prefix is shown as that.
    let around = visitor.read(|ledger| ledger.lease_around(asked).map(|lease| lease.prefix()));
    let key = around.map_or(asked, |prefix| prefix.key);
    let span = around.map_or_else(|| Span::single(asked.address), |prefix| prefix.span());
    let before = query.get("before").parse().ok();
    let history = history(&visitor.ipam, key.network, span, before).await;
    let here = links::lease(key.network.0, key.address);
    let next = history.next.map(|number| number.to_string());
    let next = next.map(|next| with_query(&here, &[("before", &next)]));
    let pager = Pager::onward(before.map(|_| here), next);
    let shell = visitor.shell(Nav::Pools);
    let may_write = visitor.may_write();
    let page_of_lease = visitor.read(|ledger| {
        let lease = ledger.lease(key);
        let pool = lease
            .and_then(|lease| lease.pool)
            .or_else(|| pool_of(ledger, key));
        let pool = pool.and_then(|id| ledger.pool(id));
        AddressPage {
            shell,
            network_name: network_name(ledger, key.network),
            address: key.address,
            pool: pool.map(|pool| (pool.id.0, pool.spec.name.to_string())),
            prefix_len: lease.map(|lease| ledger.prefix_len(lease)),
            gateway: pool.and_then(|pool| pool.spec.gateway),
            tenant: views::text(lease.and_then(|lease| lease.tenant.as_ref()).map(|t| &t.0)),
            labels: lease.map_or_else(Vec::new, labels),
            lease: lease.map(|lease| views::lease_row(ledger, lease)),
            free: lease.is_none().then(|| free(ledger, key, may_write)),
            holders: lease.map_or_else(Vec::new, |lease| holders(ledger, lease, &guests)),
            contenders: lease.map_or_else(Vec::new, |lease| contenders(ledger, lease, &guests)),
            listed: listed(ledger, key, pool.map(|pool| pool.id)),
            history: (history.entries.iter())
                .map(|(_, entry)| views::audit_row(ledger, entry))
                .collect(),
            pager,
        }
    });
    Ok(page(&page_of_lease))
}

/// Pools that list the address, where there is more to say than the one it belongs to.
fn listed(
    ledger: &Ledger,
    key: LeaseKey,
    pool: Option<PoolId>,
) -> Vec<(String, String, &'static str)> {
    let pools = ledger.pools_at(key).into_iter().take(SHOWN);
    let named = pools.filter_map(|(id, gives)| Some((ledger.pool(id)?, gives)));
    let all: Vec<_> = named.collect();
    if let [(only, true)] = all.as_slice()
        && pool == Some(only.id)
    {
        return Vec::new();
    }
    let why = |pool: PoolId, gives: bool| match gives {
        true => "",
        false if ledger.withholds(key, pool) => "not before an admin says which network it is of",
        false => "never gives it",
    };
    let all = all.into_iter();
    all.map(|(pool, gives)| {
        let name = pool.spec.name.to_string();
        (links::pool(pool.id.0), name, why(pool.id, gives))
    })
    .collect()
}

/// From a network by its name to the page of the address.
pub async fn by_name(
    visitor: Visitor,
    PathParam((network, address)): PathParam<(String, String)>,
) -> Answered {
    let known = |ledger: &Ledger| ledger.network_by_name(&network).map(|found| found.id.0);
    let number = visitor.read(known).map(|id| id.to_string());
    let key = find(&visitor, &number.unwrap_or(network), &address)?;
    Ok(go_to(&links::lease(key.network.0, key.address)))
}

/// The address of a known network.
pub fn find(visitor: &Visitor, network: &str, address: &str) -> Result<LeaseKey, Failure> {
    let address: Option<IpAddr> = address.parse().ok();
    let network = network.parse().ok().map(NetworkId);
    let known = network.filter(|id| visitor.read(|ledger| ledger.network(*id).is_some()));
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
fn pool_of(ledger: &Ledger, key: LeaseKey) -> Option<PoolId> {
    let pools = ledger.pools_at(key);
    let giving = pools.iter().find(|(_, assignable)| *assignable);
    giving.or(pools.first()).map(|(id, _)| *id)
}

fn free(ledger: &Ledger, key: LeaseKey, may_write: bool) -> FreeAddress {
    let pools = ledger.pools_at(key);
    let name = |id| views::text(ledger.pool(id).map(|pool| &pool.spec.name));
    let open = |id| ledger.pool(id).is_some_and(|pool| !pool.spec.closed);
    // Of a pool of prefixes the whole prefix is given.
    let whole = |id| {
        let spec = &ledger.pool(id)?.spec;
        let first = Span::of_prefix(key.address, spec.lease_length()).first_address();
        let prefix = spec.prefix_at(LeaseKey {
            network: key.network,
            address: first,
        });
        ledger.lease_over(prefix).is_none().then_some(prefix)
    };
    let gives = |(id, assignable): &(PoolId, bool)| (*assignable && open(*id)).then_some(*id);
    let mut giving = pools.iter().filter_map(gives);
    let giving = giving.find_map(|id| Some((id, whole(id)?)));
    let doubted = pools.iter().find(|(id, _)| ledger.withholds(key, *id));
    let doubted = doubted.filter(|_| giving.is_none());
    let status = match (giving, doubted, pools.first()) {
        (Some((id, _)), ..) => format!("free in pool {}", name(id)),
        (None, Some((id, _)), _) => format!(
            "withheld in pool {}: a pool of another network may mean the same one, and it waits for an admin's word",
            name(*id)
        ),
        (None, None, Some((id, true))) => format!("free in pool {}, which is closed", name(*id)),
        (None, None, Some((id, false))) => {
            format!("excluded or reserved in pool {} and never given", name(*id))
        }
        (None, None, None) => "in no pool of this network".to_owned(),
    };
    let settle = doubted.map(|(id, _)| links::pool(id.0) + "#doubts");
    let giving = giving.filter(|_| may_write);
    let giving = giving.map(|(id, prefix)| (id, prefix.to_string()));
    let allocate = |(id, address): &(PoolId, String)| {
        with_query(&(links::pool(id.0) + "/allocate"), &[("address", address)])
    };
    let reserve = |(id, address): &(PoolId, String)| {
        with_query(
            links::RESERVE,
            &[("pool", &name(*id)), ("address", address)],
        )
    };
    FreeAddress {
        status,
        allocate: giving.as_ref().map(allocate),
        reserve: giving.as_ref().map(reserve),
        settle,
    }
}

fn labels(lease: &Arc<Lease>) -> Vec<(String, String)> {
    let labels = lease.labels.iter();
    labels
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

fn holders(ledger: &Ledger, lease: &Lease, guests: &GuestBoard) -> Vec<Party> {
    let party = |member: &Member| {
        let ports = member.ports.iter();
        let ports = ports.map(|claim| format!("{} {}", claim.protocol, claim.port));
        Party {
            ports: ports.collect(),
            ..party(ledger, &member.holder, guests)
        }
    };
    lease.members.iter().take(SHOWN).map(party).collect()
}

fn contenders(ledger: &Ledger, lease: &Lease, guests: &GuestBoard) -> Vec<Party> {
    let party = |contender: &Contender| Party {
        since: Some(views::moment(contender.since)),
        ..party(ledger, &contender.holder, guests)
    };
    lease.contenders.iter().take(SHOWN).map(party).collect()
}

fn party(ledger: &Ledger, holder: &Holder, guests: &GuestBoard) -> Party {
    let Identity {
        cluster, namespace, ..
    } = &holder.identity;
    let named = cluster
        .as_ref()
        .map(|id| (id, views::cluster_name(ledger, id)));
    // Rancher has a namespace of the same name for each cluster that it manages.
    let guest = named.as_ref().and_then(|(_, rancher)| {
        let name = guests.name(&rancher.as_str().into(), namespace)?;
        Some((links::guests_named(namespace), name))
    });
    let cluster = named.map(|(id, name)| format!("{name} ({id})"));
    Party {
        owner: owner_text(ledger, &holder.identity),
        instance: holder.instance.to_string(),
        cluster: views::text(cluster),
        guest,
        ports: Vec::new(),
        since: None,
    }
}

/// Empty while the log cannot be read: the page is still worth showing.
async fn history(
    ipam: &Ipam,
    network: NetworkId,
    touches: Span,
    before: Option<u64>,
) -> AuditFound {
    let filter = AuditFilter {
        network: Some(network),
        touches: Some(touches),
        ..AuditFilter::default()
    };
    search(ipam, &filter, before, SHOWN)
        .await
        .unwrap_or_default()
}
