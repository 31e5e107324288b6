//! One box for addresses, CIDRs, owners, namespaces, pools, tenants and clusters.

use std::{collections::BTreeMap, net::IpAddr};

use axum::{extract::State, response::Response};
use fipd_core::{AddressSpec, LeaseFilter, LeaseKey, Ledger, NetworkId, Span, Tenancy, Tenant};
use fipd_web_ui::{LeaseRow, Nav, SearchPage, count, links};

use super::{
    clusters::rows as cluster_rows,
    fields::with_query,
    leases::by_address,
    page::{Answered, go_to, page},
    pools, tenants,
};
use crate::api::{
    convert::{network_name, owner},
    ui::session_extract::{Query, Visitor},
};
use crate::{clusters::Clusters, ipam::Ipam};

/// Leases and pools that are shown.
const SHOWN: usize = 50;
/// Clusters and tenants that are shown.
const GROUP: usize = 20;
/// Longer texts are found nowhere.
const MAX_TEXT: usize = 600;

pub async fn find(
    State(clusters): State<Clusters>,
    visitor: Visitor,
    Query(query): Query,
) -> Answered {
    let text: String = query.get("q").chars().take(MAX_TEXT).collect();
    if let Some(target) = direct(&visitor.ipam, &text) {
        return Ok(target);
    }
    let shell = visitor.shell(Nav::None);
    if text.is_empty() {
        return Ok(page(&SearchPage {
            shell,
            ..SearchPage::default()
        }));
    }
    let span = text.parse::<AddressSpec>().ok().map(|spec| spec.span());
    let mut found = match span {
        Some(span) => within(&visitor.ipam, &text, span).await,
        None => named(&visitor.ipam, &clusters, &text, visitor.may_write()).await,
    };
    let all = match span {
        Some(_) => ("within", text.as_str()),
        None => ("q", text.as_str()),
    };
    found.networks = choice(&visitor.ipam, &text);
    found.all = with_query(links::LEASES, &[all]);
    Ok(page(&SearchPage {
        shell,
        query: text,
        ..found
    }))
}

/// What lies on the addresses of a CIDR or range.
async fn within(ipam: &Ipam, text: &str, span: Span) -> SearchPage {
    let filter = LeaseFilter {
        within: Some(span),
        ..LeaseFilter::default()
    };
    let found = by_address(ipam, &filter, "", SHOWN).await;
    let (pools, all_pools) = pools::first(ipam, "within", text, SHOWN).await;
    SearchPage {
        leases: found.rows,
        more: found.next.is_some(),
        pools,
        all_pools,
        ..SearchPage::default()
    }
}

/// The first tenants by name, with how many pools each has leases or a limit of; and whether there are more. What they hold
/// is no sum: pools count leases or addresses.
fn first_tenants(found: Vec<Tenancy>) -> (BTreeMap<Tenant, usize>, bool) {
    let mut first = BTreeMap::<Tenant, usize>::new();
    for one in found {
        let last = first.last_key_value().filter(|_| first.len() > GROUP);
        if last.is_some_and(|(last, _)| one.tenant > *last) {
            continue;
        }
        *first.entry(one.tenant).or_default() += 1;
        if first.len() > GROUP + 1 {
            first.pop_last();
        }
    }
    let more = first.len() > GROUP;
    if more {
        first.pop_last();
    }
    (first, more)
}

/// What has the text in its name.
async fn named(ipam: &Ipam, clusters: &Clusters, text: &str, tenants: bool) -> SearchPage {
    let (leases, more) = leases(ipam, text).await;
    let mut clusters = cluster_rows(clusters);
    clusters.retain(|row| row.name.contains(text) || row.id.contains(text));
    let more_clusters = clusters.len() > GROUP;
    clusters.truncate(GROUP);
    let cluster = |row: &fipd_web_ui::ClusterRow| {
        let link = with_query(links::CLUSTERS, &[("filter", &row.name)]);
        let about = format!("{}, {} leases", row.state, count(row.leases));
        (link, row.name.clone(), about)
    };
    let (tenancies, cut) = match tenants {
        true => tenants::found(ipam, text, tenants::STEPS).await,
        false => (Vec::new(), false),
    };
    let (first, more_tenants) = first_tenants(tenancies);
    let tenant = |(Tenant(name), pools): (Tenant, usize)| {
        let link = with_query(links::TENANTS, &[("filter", &name)]);
        let about = match pools {
            1 => "in 1 pool".to_owned(),
            _ => format!("in {} pools", count(pools)),
        };
        (link, name.to_string(), about)
    };
    let (pools, all_pools) = pools::first(ipam, "filter", text, SHOWN).await;
    SearchPage {
        leases,
        more,
        pools,
        all_pools,
        clusters: clusters.iter().map(cluster).collect(),
        more_clusters,
        tenants: first.into_iter().map(tenant).collect(),
        more_tenants: more_tenants || cut,
        ..SearchPage::default()
    }
}

/// What has a page of its own: an address of one network, the name of a pool.
fn direct(ipam: &Ipam, text: &str) -> Option<Response> {
    if let Ok(address) = text.parse::<IpAddr>() {
        let address = address.to_canonical();
        let mut networks = ipam.read(|ledger| networks_of(ledger, address));
        return match (networks.pop(), networks.is_empty()) {
            (Some(network), true) => Some(go_to(&links::lease(network.0, address))),
            (None, _) => Some(go_to(&links::lease(NetworkId::DEFAULT.0, address))),
            (Some(_), false) => None,
        };
    }
    let pool = ipam.read(|ledger| ledger.find_pool(text).ok().map(|pool| pool.id));
    pool.map(|id| go_to(&links::pool(id.0)))
}

/// The pages of an address that several networks mean something by, and the names of these.
fn choice(ipam: &Ipam, text: &str) -> Vec<(String, String)> {
    let Ok(address) = text.parse::<IpAddr>() else {
        return Vec::new();
    };
    let address = address.to_canonical();
    ipam.read(|ledger| {
        let networks = networks_of(ledger, address).into_iter();
        networks
            .take(SHOWN)
            .map(|id| (links::lease(id.0, address), network_name(ledger, id)))
            .collect()
    })
}

/// Networks that hold the address; else those with a pool around it.
fn networks_of(ledger: &Ledger, address: IpAddr) -> Vec<NetworkId> {
    let networks = ledger.networks().take(Ledger::SCAN);
    let keys: Vec<LeaseKey> = networks
        .map(|network| LeaseKey {
            network: network.id,
            address,
        })
        .collect();
    let of = |has: &dyn Fn(LeaseKey) -> bool| -> Vec<NetworkId> {
        let found = keys.iter().filter(|key| has(**key));
        found.map(|key| key.network).collect()
    };
    let holding = of(&|key| ledger.lease_around(key).is_some());
    if !holding.is_empty() {
        return holding;
    }
    of(&|key| !ledger.pools_at(key).is_empty())
}

/// Leases with the text in address or owner, step by step, so that nobody waits for a long search.
async fn leases(ipam: &Ipam, text: &str) -> (Vec<LeaseRow>, bool) {
    let owner = ipam.read(|ledger| owner(ledger, text).ok());
    if owner.is_some() {
        let filter = LeaseFilter {
            owner,
            ..LeaseFilter::default()
        };
        let found = by_address(ipam, &filter, "", SHOWN).await;
        if !found.rows.is_empty() {
            return (found.rows, found.next.is_some());
        }
    }
    let filter = LeaseFilter {
        text: Some(text.into()),
        ..LeaseFilter::default()
    };
    let found = by_address(ipam, &filter, "", SHOWN).await;
    (found.rows, found.next.is_some())
}

#[cfg(test)]
mod tests {
    use fipd_core::PoolId;

    use super::*;

    #[test]
    fn the_first_tenants_are_told_with_all_of_their_pools() {
        let held = |pool, name: String| Tenancy {
            pool: PoolId(pool),
            tenant: Tenant(name.as_str().into()),
            used: u64::MAX,
            limit: None,
        };
        // As the ledger has them: by pool, and by name within it, so that early names come late again.
        let tenants = |many: usize| {
            let of = move |pool| (0..many).map(move |number| held(pool, format!("t-{number:03}")));
            (1..=3).flat_map(of).collect::<Vec<_>>()
        };
        for (many, more) in [(0, false), (GROUP, false), (GROUP + 1, true), (100, true)] {
            let (first, told) = first_tenants(tenants(many));
            assert_eq!((first.len(), told), (many.min(GROUP), more), "{many}");
            assert!(first.values().all(|pools| *pools == 3), "{first:?}");
            let last = first
                .last_key_value()
                .map(|(tenant, _)| tenant.0.to_string());
            assert!(last.is_none_or(|last| last == "t-019"));
        }
    }
}
