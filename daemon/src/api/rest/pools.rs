//! `/api/v1/pools` and `/api/v1/networks`.

use std::{net::IpAddr, sync::Arc};

use axum::{Json, extract::State as Shared, response::Response};
use fipd_core::{
    AddressSpec, Answer, Ends, Family, Ledger, Network, NetworkId, Order, Origin, Pool, PoolEdit,
    PoolId, PoolSpec, QuotaUnit, Request, Span, Sticky, Timestamp,
};
use http::StatusCode;
use ipnet::IpNet;

use super::{overlaps, wants};
use crate::api::{
    access::{permit::Requester, visible::VisibleLedger},
    convert::{self, given},
    etag::{IfMatch, IfNoneMatch, State, tagged},
    extract::{Body, Path, Query},
    page::Ask,
    problem::{Code, Problem},
    wire::{
        NetworkCreate, NetworkList, NetworkView, PageQuery, PoolCreate, PoolList, PoolPatch,
        PoolQuery, PoolView,
    },
};
use crate::{
    clusters::Clusters,
    ipam::{Guard, Ipam},
};

/// All networks.
#[utoipa::path(get, path = "/api/v1/networks", tag = "networks", params(PageQuery),
    responses((status = 200, body = NetworkList)))]
pub async fn list_networks(
    requester: Requester,
    Query(query): Query<PageQuery>,
) -> Result<Json<NetworkList>, Problem> {
    let ask = Ask::new(query.limit, query.cursor.as_deref())?;
    let (networks, next) = ask.walk(|after, limit| {
        requester.read(|visible| {
            let view = |network: &&Network| {
                let mine = visible.has_network(network);
                mine.then(|| convert::network_view(visible, network))
            };
            let networks = visible.ledger.networks_after(after);
            Ask { limit, after }.of(networks, |network| network.id, view)
        })
    });
    Ok(Json(NetworkList { networks, next }))
}

/// One network.
#[utoipa::path(get, path = "/api/v1/networks/{name}", tag = "networks", params(("name" = String, Path)),
    responses((status = 200, body = NetworkView, headers(("ETag" = String))), (status = 304)))]
pub async fn show_network(
    requester: Requester,
    Path(name): Path<String>,
    known: IfNoneMatch,
) -> Result<Response, Problem> {
    requester.read(|visible| {
        let network = visible.network(&name)?;
        let view = convert::network_view(visible, network);
        Ok(known.answer(&State::of(network), &view))
    })
}

/// Makes a network; answers the existing one of that name.
#[utoipa::path(post, path = "/api/v1/networks", tag = "networks", request_body = NetworkCreate,
    responses((status = 200, body = NetworkView)))]
pub async fn create_network(
    requester: Requester,
    Body(body): Body<NetworkCreate>,
) -> Result<Json<NetworkView>, Problem> {
    let request = Request::CreateNetwork {
        name: body.name.into(),
        actor: requester.actor(),
    };
    let answer = requester.submit(request).await?;
    let Answer::Network(network) = answer else {
        return Err(convert::unexpected(&answer));
    };
    Ok(Json(
        requester.read(|visible| convert::network_view(visible, &network)),
    ))
}

/// All pools with their use.
#[utoipa::path(get, path = "/api/v1/pools", tag = "pools", params(PoolQuery),
    responses((status = 200, body = PoolList), (status = 404, body = Problem)))]
pub async fn list(
    requester: Requester,
    Query(query): Query<PoolQuery>,
) -> Result<Json<PoolList>, Problem> {
    // What is shown of a pool takes longer than a look at a row.
    const MOST: usize = 200;
    let ask = Ask::new(query.limit, query.cursor.as_deref())?;
    let filter = requester.read(|visible| PoolFilter::new(visible, &query))?;
    let now = requester.ipam.now();
    let (pools, next) = ask.walk(|after, limit| {
        requester.read(|VisibleLedger { ledger, scope }| {
            let view = |pool: &&Arc<Pool>| {
                let mine = scope.has_pool(pool) && filter.matches(pool);
                mine.then(|| with_forecast(ledger, pool, now))
            };
            let limit = limit.min(MOST);
            Ask { limit, after }.of(ledger.pools_after(after), |pool| pool.id, view)
        })
    });
    Ok(Json(PoolList { pools, next }))
}

/// Which pools are listed.
struct PoolFilter {
    network: Option<NetworkId>,
    containing: Option<Span>,
    within: Option<Span>,
}

impl PoolFilter {
    fn new(visible: VisibleLedger<'_>, query: &PoolQuery) -> Result<Self, Problem> {
        let span = |field: &str, text: &Option<String>| {
            given(text, |text| {
                Ok(convert::parse::<AddressSpec>(field, text)?.span())
            })
        };
        Ok(Self {
            network: given(&query.network, |name| Ok(visible.network(name)?.id))?,
            containing: span("containing", &query.containing)?,
            within: span("within", &query.within)?,
        })
    }

    fn matches(&self, pool: &Pool) -> bool {
        let spec = &pool.spec;
        let mut entries = spec.addresses.iter().map(|entry| entry.span());
        self.network.is_none_or(|network| spec.network == network)
            && self
                .within
                .is_none_or(|outer| entries.clone().all(|entry| outer.covers(&entry)))
            && self
                .containing
                .is_none_or(|inner| entries.any(|entry| entry.covers(&inner)))
    }
}

/// One pool, by full or unique short name.
#[utoipa::path(get, path = "/api/v1/pools/{name}", tag = "pools",
    params(("name" = String, Path, description = "slashes as %2F")),
    responses((status = 200, body = PoolView, headers(("ETag" = String))), (status = 304), (status = 409, body = Problem)))]
pub async fn show(
    Shared(clusters): Shared<Clusters>,
    requester: Requester,
    Path(name): Path<String>,
    known: IfNoneMatch,
) -> Result<Response, Problem> {
    let pool = find(&requester, &name)?;
    let now = requester.ipam.now();
    let shared = overlaps::shared(&clusters, &requester.caller.scope, &pool);
    let view = requester.read(|visible| PoolView {
        shared,
        overlaps: overlaps::views(visible, pool.id, overlaps::SHOWN),
        ambiguous: overlaps::doubts(visible, pool.id, overlaps::SHOWN),
        ..with_forecast(visible.ledger, &pool, now)
    });
    Ok(known.answer(&State::number(pool.generation), &view))
}

/// Makes a pool.
#[utoipa::path(post, path = "/api/v1/pools", tag = "pools", request_body = PoolCreate,
    responses((status = 201, body = PoolView, headers(("ETag" = String)))))]
pub async fn create(
    requester: Requester,
    Body(body): Body<PoolCreate>,
) -> Result<Response, Problem> {
    let pool = make(&requester, body).await?;
    Ok(shown(&requester.ipam, &pool, StatusCode::CREATED))
}

/// Makes a pool.
pub(in crate::api) async fn make(
    requester: &Requester,
    body: PoolCreate,
) -> Result<Arc<Pool>, Problem> {
    let request = Request::CreatePool {
        spec: requester.ipam.read(|ledger| new_spec(ledger, body))?,
        actor: requester.actor(),
    };
    pool_of(requester.submit(request).await?)
}

/// Changes a pool; with `If-Match` only if nobody else has since.
#[utoipa::path(patch, path = "/api/v1/pools/{name}", tag = "pools", request_body = PoolPatch,
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = PoolView, headers(("ETag" = String)))))]
pub async fn update(
    requester: Requester,
    Path(name): Path<String>,
    if_match: IfMatch,
    Body(patch): Body<PoolPatch>,
) -> Result<Response, Problem> {
    let pool = change(&requester, (&name, &if_match), patch).await?;
    Ok(shown(&requester.ipam, &pool, StatusCode::OK))
}

/// Changes a pool.
pub(in crate::api) async fn change(
    requester: &Requester,
    which: (&str, &IfMatch),
    patch: PoolPatch,
) -> Result<Arc<Pool>, Problem> {
    let pool = editable(requester, which)?;
    let force = patch.force;
    let reason = convert::text("reason", patch.reason.as_deref().unwrap_or_default())?;
    let spec = requester.read(|visible| patched(visible.ledger, pool.spec.clone(), patch))?;
    let edit = PoolEdit {
        pool: pool.id,
        spec,
        // What was read and what is written belong together, whether or not the client asks for it.
        if_generation: Some(pool.generation),
        force,
        actor: requester.actor(),
        reason,
    };
    pool_of(requester.submit(Request::UpdatePool(edit)).await?)
}

/// The pool that an edit is about, as the client has read it.
pub(super) fn editable(
    requester: &Requester,
    (name, if_match): (&str, &IfMatch),
) -> Result<Arc<Pool>, Problem> {
    let pool = find(requester, name)?;
    refuse_mirror(&pool)?;
    let state = State::number(pool.generation);
    if_match.check(&format!("pool {name}"), Some(&state))?;
    Ok(pool)
}

/// Removes a pool without leases; with `If-Match` only if nobody else has changed it since.
#[utoipa::path(delete, path = "/api/v1/pools/{name}", tag = "pools",
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 204), (status = 409, body = Problem)))]
pub async fn delete(
    requester: Requester,
    Path(name): Path<String>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    let pool = find(&requester, &name)?;
    refuse_mirror(&pool)?;
    let request = Request::DeletePool {
        pool: pool.id,
        actor: requester.actor(),
    };
    let guard = guard(if_match, &name, pool.id);
    requester.submit_if(request, guard).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Refuses what is about another state of the pool than the client has read.
pub(super) fn guard(if_match: IfMatch, name: &str, id: PoolId) -> Guard {
    if_match.guard(format!("pool {name}"), move |ledger| {
        ledger.pool(id).map(|pool| State::number(pool.generation))
    })
}

pub(super) fn find(requester: &Requester, name: &str) -> Result<Arc<Pool>, Problem> {
    requester.read(|visible| visible.pool(name).cloned())
}

fn with_forecast(ledger: &Ledger, pool: &Pool, now: Timestamp) -> PoolView {
    PoolView {
        forecast: Some(ledger.forecast(pool.id, now).into()),
        ..convert::pool_view(ledger, pool)
    }
}

/// A mirror says what its object says; a change here would be undone by the next look at the object.
pub(in crate::api) fn refuse_mirror(pool: &Pool) -> Result<(), Problem> {
    match &pool.spec.origin {
        Origin::Own => Ok(()),
        Origin::Mirror { object, .. } => Err(Problem::new(
            Code::Conflict,
            format!(
                "pool {} follows the object {object} of its cluster; change that object",
                pool.spec.name
            ),
        )),
    }
}

pub(in crate::api) fn pool_of(answer: Answer) -> Result<Arc<Pool>, Problem> {
    let Answer::Pool(pool) = answer else {
        return Err(convert::unexpected(&answer));
    };
    Ok(pool)
}

pub(in crate::api) fn shown(ipam: &Ipam, pool: &Pool, status: StatusCode) -> Response {
    let now = ipam.now();
    let view = ipam.read(|ledger| with_forecast(ledger, pool, now));
    tagged(status, &State::number(pool.generation), &view)
}

pub(in crate::api) fn new_spec(ledger: &Ledger, body: PoolCreate) -> Result<PoolSpec, Problem> {
    let addresses = convert::specs("addresses", &body.addresses)?;
    let family = addresses.first().map_or(Family::V4, AddressSpec::family);
    let mut ends = Ends::own_default_of(family, body.allocation_length);
    let (first, last) = (body.reserve_first, body.reserve_last);
    set_ends(&mut ends, first, last, &body.reserve_of)?;
    Ok(PoolSpec {
        allocation_length: body.allocation_length,
        quota_unit: given(&body.quota_unit, quota_unit)?.unwrap_or_default(),
        name: body.name.into(),
        network_by_default: body.network.is_none(),
        network: network_id(ledger, &body.network)?.unwrap_or(NetworkId::DEFAULT),
        addresses,
        exclusions: convert::specs("exclusions", &body.exclusions)?,
        gateway: given(&body.gateway, gateway)?,
        prefix_len: body.prefix,
        subnet: given(&body.subnet, subnet)?,
        ends,
        order: given(&body.order, order)?.unwrap_or_default(),
        origin: Origin::Own,
        closed: false,
        quarantine: body.quarantine.unwrap_or(0),
        sticky: sticky(Sticky::OWN_DEFAULT, body.sticky_for, body.sticky_most),
        priority: body.priority.unwrap_or(0),
        scopes: body.scopes.into_iter().map(wants::scope).collect(),
        share_across_clusters: body.share_across_clusters.unwrap_or(false),
        quota_required: body.quota_required.unwrap_or(false),
    })
}

pub(in crate::api) fn patched(
    ledger: &Ledger,
    mut spec: PoolSpec,
    patch: PoolPatch,
) -> Result<PoolSpec, Problem> {
    if let Some(name) = patch.name {
        spec.name = name.into();
    }
    if let Some(network) = network_id(ledger, &patch.network)? {
        spec.network_by_default &= spec.network == network;
        spec.network = network;
    }
    let added = convert::specs("add_addresses", &patch.add_addresses)?;
    match patch.addresses {
        Some(_) if !added.is_empty() => {
            let given = patch.add_addresses.join(" ");
            let allowed = "nothing beside addresses, which replace all that the pool has";
            return Err(Problem::invalid("add_addresses", &given, allowed));
        }
        Some(addresses) => spec.addresses = convert::specs("addresses", &addresses)?,
        None => spec.addresses.extend(added),
    }
    if let Some(exclusions) = patch.exclusions {
        spec.exclusions = convert::specs("exclusions", &exclusions)?;
    }
    spec.allocation_length = patch.allocation_length.unwrap_or(spec.allocation_length);
    spec.quota_unit = given(&patch.quota_unit, quota_unit)?.unwrap_or(spec.quota_unit);
    if let Some(text) = patch.gateway {
        spec.gateway = given(&text, gateway)?;
    }
    if let Some(prefix) = patch.prefix {
        spec.prefix_len = prefix;
    }
    if let Some(text) = patch.subnet {
        spec.subnet = given(&text, subnet)?;
    }
    let (first, last) = (patch.reserve_first, patch.reserve_last);
    set_ends(&mut spec.ends, first, last, &patch.reserve_of)?;
    spec.order = given(&patch.order, order)?.unwrap_or(spec.order);
    spec.closed = patch.closed.unwrap_or(spec.closed);
    spec.sticky = sticky(spec.sticky, patch.sticky_for, patch.sticky_most);
    let across = patch.share_across_clusters;
    spec.share_across_clusters = across.unwrap_or(spec.share_across_clusters);
    spec.quota_required = patch.quota_required.unwrap_or(spec.quota_required);
    spec.quarantine = patch.quarantine.unwrap_or(spec.quarantine);
    spec.priority = patch.priority.unwrap_or(spec.priority);
    if let Some(scopes) = patch.scopes {
        spec.scopes = scopes.into_iter().map(wants::scope).collect();
    }
    Ok(spec)
}

fn network_id(ledger: &Ledger, name: &Option<String>) -> Result<Option<NetworkId>, Problem> {
    given(name, |name| Ok(convert::network(ledger, name)?.id))
}

fn set_ends(
    ends: &mut Ends,
    first: Option<u32>,
    last: Option<u32>,
    of: &Option<String>,
) -> Result<(), Problem> {
    ends.first = first.unwrap_or(ends.first);
    ends.last = last.unwrap_or(ends.last);
    let of = given(of, |of| convert::parse("reserve_of", of))?;
    ends.of = of.unwrap_or(ends.of);
    Ok(())
}

/// Who switches it on and gives no number of addresses gets that of new pools.
pub(in crate::api) fn sticky(before: Sticky, lasts: Option<u32>, most: Option<u32>) -> Sticky {
    let lasts = lasts.unwrap_or(before.lasts);
    if lasts == 0 {
        return Sticky::OFF;
    }
    let known = match before.is_on() {
        true => before,
        false => Sticky::OWN_DEFAULT,
    };
    let most = most.unwrap_or(known.most);
    Sticky { lasts, most }
}

fn order(text: &str) -> Result<Order, Problem> {
    convert::parse("order", text)
}

fn quota_unit(text: &str) -> Result<QuotaUnit, Problem> {
    convert::parse("quota_unit", text)
}

fn gateway(text: &str) -> Result<IpAddr, Problem> {
    convert::address("gateway", text)
}

fn subnet(text: &str) -> Result<IpNet, Problem> {
    text.parse()
        .map_err(|_| Problem::invalid("subnet", text, "a CIDR such as 192.0.2.0/24"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fipd_core::testing;

    #[test]
    fn addresses_come_beside_those_that_a_pool_has_or_in_their_place() {
        let (ledger, had) = (Ledger::new(), "10.0.0.0/24");
        let edit = |addresses: Option<&str>, more: &str| {
            let spec = testing::pool_spec("lab", &[had]);
            let patch = PoolPatch {
                addresses: addresses.map(|text| vec![text.to_owned()]),
                add_addresses: more.split_whitespace().map(str::to_owned).collect(),
                ..PoolPatch::default()
            };
            let spec = patched(&ledger, spec, patch)?;
            let addresses = spec.addresses.iter().map(ToString::to_string);
            Ok::<_, Problem>(addresses.collect::<Vec<_>>())
        };
        assert_eq!(edit(None, "10.1.0.0/24").unwrap(), [had, "10.1.0.0/24"]);
        assert_eq!(edit(Some("10.2.0.0/24"), "").unwrap(), ["10.2.0.0/24"]);
        let refused = edit(Some("10.2.0.0/24"), "10.1.0.0/24").unwrap_err();
        assert_eq!(refused.field.as_deref(), Some("add_addresses"));
        assert!(edit(None, "10.1.0.0/33").is_err());
    }
}
