//! One box for addresses, owners and pools.

use std::{net::IpAddr, sync::Arc};

use axum::{extract::State, response::Response};
use fipd_core::{LeaseFilter, LeaseKey, Ledger, NetworkId};
use fipd_web_ui::{LeaseRow, Nav, SearchPage, links};

use super::{
    page::{Answered, go_to, page},
    pools::rows_named,
    views,
    visit::{Query, Visitor},
};
use crate::{
    api::{Api, convert::owner},
    ipam::Ipam,
};

/// Leases and pools that are shown.
const SHOWN: usize = 100;
/// Steps of [`Ledger::SCAN`] rows a search by text takes at the most.
const STEPS: usize = 100;
/// Longer texts are found nowhere.
const MAX_TEXT: usize = 600;

pub async fn find(State(api): State<Arc<Api>>, visitor: Visitor, Query(query): Query) -> Answered {
    let text: String = query.get("q").chars().take(MAX_TEXT).collect();
    if let Some(target) = direct(&api.ipam, &text) {
        return Ok(target);
    }
    let (leases, more) = if text.is_empty() {
        (Vec::new(), false)
    } else {
        leases(&api.ipam, &text).await
    };
    let pools = if text.is_empty() {
        Vec::new()
    } else {
        rows_named(&api.ipam, &text, SHOWN)
    };
    let shell = visitor.shell(Nav::None);
    Ok(page(&SearchPage {
        shell,
        query: text,
        leases,
        pools,
        more,
    }))
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

/// Networks that hold the address; else those with a pool around it.
fn networks_of(ledger: &Ledger, address: IpAddr) -> Vec<NetworkId> {
    let keys = || {
        ledger
            .networks()
            .take(Ledger::SCAN)
            .map(|network| LeaseKey {
                network: network.id,
                address,
            })
    };
    let holding: Vec<_> = keys()
        .filter(|key| ledger.lease(*key).is_some())
        .map(|key| key.network)
        .collect();
    if !holding.is_empty() {
        return holding;
    }
    keys()
        .filter(|key| !ledger.pools_at(*key).is_empty())
        .map(|key| key.network)
        .take(1)
        .collect()
}

/// Leases with the text in address or owner, step by step, so that nobody waits for a long search.
async fn leases(ipam: &Ipam, text: &str) -> (Vec<LeaseRow>, bool) {
    if let Some(identity) = ipam.read(|ledger| owner(ledger, text).ok()) {
        let rows: Vec<_> = ipam.read(|ledger| {
            let leases = ledger.leases_of(&identity);
            leases
                .iter()
                .take(SHOWN)
                .map(|lease| views::lease_row(ledger, lease))
                .collect()
        });
        if !rows.is_empty() {
            return (rows, false);
        }
    }
    let filter = LeaseFilter {
        text: Some(text.into()),
        ..LeaseFilter::default()
    };
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..STEPS {
        let next = ipam.read(|ledger| {
            let step = ledger.leases(&filter, after, SHOWN - found.len());
            found.extend(
                step.leases
                    .iter()
                    .map(|lease| views::lease_row(ledger, lease)),
            );
            step.next
        });
        if next.is_none() || found.len() >= SHOWN {
            return (found, next.is_some());
        }
        after = next;
        tokio::task::yield_now().await;
    }
    (found, true)
}
