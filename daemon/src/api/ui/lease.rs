//! The page of one address.

use std::{net::IpAddr, sync::Arc};

use axum::extract::State;
use fipd_core::{
    Contender, Holder, Identity, Lease, LeaseKey, LeasePrefix, LeaseState, Ledger, Member,
    NetworkId, Pool, PoolId, Span,
};
use fipd_web_ui::{AddressPage, FreeAddress, Nav, Pager, Party, links};

use super::{
    fields::with_query,
    operations,
    page::{Answered, Failure, go_to, page},
    views,
};
use crate::{
    api::{
        convert::{network_name, owner_text, used_texts},
        rest::audit::search,
        ui::session_extract::{PathParam, Query, Visitor},
    },
    config::Systems,
    guests::GuestBoard,
    ipam::Ipam,
    store::{AuditFilter, AuditFound},
};

/// Rows of history, holders and contenders that are shown.
const SHOWN: usize = 50;

pub async fn show(
    State(guests): State<GuestBoard>,
    State(known): State<Systems>,
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
    let about = MoreOf(known, &guests);
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
            holders: lease.map_or_else(Vec::new, |lease| holders(ledger, lease, about)),
            contenders: lease.map_or_else(Vec::new, |lease| contenders(ledger, lease, about)),
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

/// Whether anybody may have an address that nobody has.
enum Availability<'a> {
    /// The pool gives this there.
    Free(PoolId, LeasePrefix),
    Withheld(PoolId),
    /// The pool would give this prefix, but somebody has some of it.
    Occupied(PoolId, LeasePrefix, &'a Arc<Lease>),
    Closed(PoolId),
    Excluded(PoolId),
    Unlisted,
}

fn standing(ledger: &Ledger, key: LeaseKey) -> Availability<'_> {
    let pools = ledger.pools_at(key);
    let giving = pools.iter().filter(|(_, gives)| *gives);
    let giving = giving.filter_map(|(id, _)| ledger.pool(*id));
    let (open, closed): (Vec<&Arc<Pool>>, Vec<_>) = giving.partition(|pool| !pool.spec.closed);
    let open: Vec<(PoolId, LeasePrefix)> = open
        .into_iter()
        .map(|pool| (pool.id, around(pool, key)))
        .collect();
    let mut occupied = None;
    for (id, prefix) in open {
        match ledger.lease_over(prefix) {
            None => return Availability::Free(id, prefix),
            Some(lease) => occupied = occupied.or(Some(Availability::Occupied(id, prefix, lease))),
        }
    }
    let doubted = pools.iter().find(|(id, _)| ledger.withholds(key, *id));
    if let Some((id, _)) = doubted {
        return Availability::Withheld(*id);
    }
    match (occupied, closed.first(), pools.first()) {
        (Some(occupied), ..) => occupied,
        (None, Some(pool), _) => Availability::Closed(pool.id),
        (None, None, Some((id, _))) => Availability::Excluded(*id),
        (None, None, None) => Availability::Unlisted,
    }
}

/// What the pool gives where the address is: the address, or the prefix around it.
fn around(pool: &Pool, key: LeaseKey) -> LeasePrefix {
    let span = Span::of_prefix(key.address, pool.spec.lease_length());
    let address = span.first_address();
    pool.spec.prefix_at(LeaseKey { address, ..key })
}

/// What may be had where the address is; the address alone where nothing may.
pub fn available(ledger: &Ledger, key: LeaseKey) -> LeasePrefix {
    if let Availability::Free(_, prefix) = standing(ledger, key) {
        prefix
    } else {
        key.whole()
    }
}

/// Goes on after "This address is".
fn status(ledger: &Ledger, standing: &Availability<'_>) -> String {
    let name = |id: &PoolId| views::text(ledger.pool(*id).map(|pool| &pool.spec.name));
    match standing {
        Availability::Free(id, prefix) if prefix.is_address() => {
            format!("free in pool {}", name(id))
        }
        Availability::Free(id, prefix) => {
            format!("in the prefix {prefix}, which is free in pool {}", name(id))
        }
        Availability::Withheld(id) => format!(
            "withheld in pool {}: a pool of another network may mean the same one, and it waits for an admin's word",
            name(id)
        ),
        Availability::Occupied(id, prefix, lease) => {
            let cools = lease.state == LeaseState::Quarantined;
            format!(
                "in pool {}, but its prefix {prefix} is not free: {} in it is {}",
                name(id),
                lease.prefix(),
                if cools { "quarantined" } else { "held" }
            )
        }
        Availability::Closed(id) => format!("free in pool {}, which is closed", name(id)),
        Availability::Excluded(id) => {
            format!("excluded or reserved in pool {} and never given", name(id))
        }
        Availability::Unlisted => "in no pool of this network".to_owned(),
    }
}

fn free(ledger: &Ledger, key: LeaseKey, may_write: bool) -> FreeAddress {
    let standing = standing(ledger, key);
    let status = status(ledger, &standing);
    let (mut giving, mut settle, mut held) = (None, None, None);
    match standing {
        Availability::Free(id, prefix) => giving = Some((id, prefix)),
        Availability::Withheld(id) => settle = Some(links::pool(id.0) + "#doubts"),
        Availability::Occupied(_, _, lease) => {
            let link = links::lease(lease.key.network.0, lease.key.address);
            held = Some((link, lease.prefix().to_string()));
        }
        Availability::Closed(_) | Availability::Excluded(_) | Availability::Unlisted => {}
    }
    let what = giving.map_or_else(|| key.whole(), |(_, prefix)| prefix);
    let what = what.to_string();
    let giving = giving.filter(|_| may_write).map(|(id, _)| id);
    let allocate =
        |id: PoolId| with_query(&(links::pool(id.0) + "/allocate"), &[("address", &what)]);
    let reserve = |id: PoolId| {
        let name = views::text(ledger.pool(id).map(|pool| &pool.spec.name));
        with_query(links::RESERVE, &[("pool", &name), ("address", &what)])
    };
    FreeAddress {
        status,
        allocate: giving.map(allocate),
        reserve: giving.map(reserve),
        settle,
        held,
        what,
    }
}

fn labels(lease: &Arc<Lease>) -> Vec<(String, String)> {
    let labels = lease.labels.iter();
    labels
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

fn holders(ledger: &Ledger, lease: &Lease, about: MoreOf<'_>) -> Vec<Party> {
    let party = |member: &Member| {
        let ports = member.ports.iter();
        let ports = ports.map(|claim| format!("{} {}", claim.protocol, claim.port));
        Party {
            ports: ports.collect(),
            ..party(ledger, &member.holder, about)
        }
    };
    lease.members.iter().take(SHOWN).map(party).collect()
}

fn contenders(ledger: &Ledger, lease: &Lease, about: MoreOf<'_>) -> Vec<Party> {
    let party = |contender: &Contender| Party {
        since: Some(views::moment(contender.since)),
        uses: used_texts(lease, contender),
        ..party(ledger, &contender.holder, about)
    };
    lease.contenders.iter().take(SHOWN).map(party).collect()
}

/// Where more is shown of a holder.
#[derive(Clone, Copy)]
struct MoreOf<'a>(Systems, &'a GuestBoard);

fn party(ledger: &Ledger, holder: &Holder, MoreOf(systems, guests): MoreOf<'_>) -> Party {
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
        listed: operations::of_holder(systems, &holder.identity),
        instance: holder.instance.to_string(),
        cluster: views::text(cluster),
        guest,
        ports: Vec::new(),
        uses: Vec::new(),
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

#[cfg(test)]
mod tests {
    use fipd_core::{Op, PoolSpec, testing};

    use super::*;

    /// With a pool of prefixes.
    fn ledger(closed: bool) -> Ledger {
        let spec = PoolSpec {
            allocation_length: Some(64),
            closed,
            ..testing::pool_spec("delegated", &["2001:db8::/48"])
        };
        let pool = testing::pool(spec);
        let mut ledger = Ledger::new();
        ledger.apply(&Op::PutPool(pool.into()));
        ledger
    }

    #[test]
    fn a_free_prefix_is_offered_as_a_whole() {
        let key = testing::key_of("2001:db8:0:3::8");
        let open = free(&ledger(false), key, true);
        let status = "in the prefix 2001:db8:0:3::/64, which is free in pool delegated";
        assert_eq!((&*open.status, &*open.what), (status, "2001:db8:0:3::/64"));
        let allocate = "/ui/pools/1/allocate?address=2001:db8:0:3::/64";
        assert_eq!(open.allocate.as_deref(), Some(allocate));
        let closed = free(&ledger(true), key, true);
        assert_eq!(closed.status, "free in pool delegated, which is closed");
        assert_eq!((&*closed.what, closed.allocate), ("2001:db8:0:3::8", None));
    }

    #[test]
    fn a_prefix_that_somebody_has_some_of_is_not_closed() {
        let mut ledger = ledger(false);
        let taken = testing::key_of("2001:db8:0:3::7");
        let holder = testing::holder("fipd/host/lab/a", "");
        let mut lease = testing::lease(taken, Some(PoolId(1)), [holder]);
        ledger.apply(&Op::PutLease(lease.clone().into()));
        let key = testing::key_of("2001:db8:0:3::8");
        let of = |how: &str| {
            format!(
                "in pool delegated, but its prefix 2001:db8:0:3::/64 is not free: 2001:db8:0:3::7 in it is {how}"
            )
        };
        let held = free(&ledger, key, true);
        assert_eq!((held.status, held.allocate), (of("held"), None));
        let (link, what) = held.held.unwrap();
        assert_eq!(link, links::lease(0, taken.address));
        assert_eq!(what, "2001:db8:0:3::7");
        lease.state = LeaseState::Quarantined;
        lease.members.clear();
        ledger.apply(&Op::PutLease(lease.into()));
        assert_eq!(free(&ledger, key, true).status, of("quarantined"));
    }
}
