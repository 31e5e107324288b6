//! `/api/v1/pools` and `/api/v1/networks`.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use fipd_core::{
    Answer, Ends, Family, Ledger, NetworkId, Order, Origin, Pool, PoolEdit, PoolSpec, Request,
    Sticky,
};
use http::{HeaderValue, StatusCode, header};
use ipnet::IpNet;

use super::{
    Api,
    auth::Caller,
    convert,
    extract::{Body, IfMatch, Path},
    problem::{Code, Problem},
    wants,
    wire::{NetworkCreate, NetworkList, NetworkView, PoolCreate, PoolList, PoolPatch, PoolView},
};

/// All networks.
#[utoipa::path(get, path = "/api/v1/networks", tag = "networks",
    responses((status = 200, body = NetworkList)))]
pub async fn list_networks(State(api): State<Arc<Api>>, caller: Caller) -> Json<NetworkList> {
    let networks = api.ipam.read(|ledger| {
        let reach = caller.within(ledger);
        let networks = ledger.networks().filter(|one| reach.has_network(one));
        networks
            .map(|network| convert::network_view(reach, network))
            .collect()
    });
    Json(NetworkList { networks })
}

/// One network.
#[utoipa::path(get, path = "/api/v1/networks/{name}", tag = "networks",
    params(("name" = String, Path)),
    responses((status = 200, body = NetworkView), (status = 404, body = Problem)))]
pub async fn show_network(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<NetworkView>, Problem> {
    api.ipam.read(|ledger| {
        let reach = caller.within(ledger);
        let network = reach.network(&name)?;
        Ok(Json(convert::network_view(reach, network)))
    })
}

/// Makes a network; answers the existing one of that name.
#[utoipa::path(post, path = "/api/v1/networks", tag = "networks", request_body = NetworkCreate,
    responses((status = 200, body = NetworkView), (status = 422, body = Problem)))]
pub async fn create_network(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Body(body): Body<NetworkCreate>,
) -> Result<Json<NetworkView>, Problem> {
    let request = Request::CreateNetwork {
        name: body.name.into(),
        actor: caller.actor.clone(),
    };
    let answer = api.submit(&caller, request).await?;
    let Answer::Network(network) = answer else {
        return Err(convert::unexpected(&answer));
    };
    Ok(Json(api.ipam.read(|ledger| {
        convert::network_view(caller.within(ledger), &network)
    })))
}

/// All pools with their use.
#[utoipa::path(get, path = "/api/v1/pools", tag = "pools",
    responses((status = 200, body = PoolList)))]
pub async fn list(State(api): State<Arc<Api>>, caller: Caller) -> Json<PoolList> {
    // The lock is given back every so many pools.
    const PAGE: usize = 200;
    let all: Vec<Arc<Pool>> = api.ipam.read(|ledger| {
        let pools = ledger.pools().filter(|pool| caller.scope.has_pool(pool));
        pools.cloned().collect()
    });
    let mut pools = Vec::with_capacity(all.len());
    for page in all.chunks(PAGE) {
        api.ipam.read(|ledger| {
            pools.extend(page.iter().map(|pool| convert::pool_view(ledger, pool)));
        });
    }
    Json(PoolList { pools })
}

/// One pool, by full or unique short name.
#[utoipa::path(get, path = "/api/v1/pools/{name}", tag = "pools",
    params(("name" = String, Path, description = "slashes as %2F")),
    responses((status = 200, body = PoolView, headers(("ETag" = String))), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub async fn show(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let pool = find(&api, &caller, &name)?;
    Ok(shown(&api, &pool, StatusCode::OK))
}

/// Makes a pool.
#[utoipa::path(post, path = "/api/v1/pools", tag = "pools", request_body = PoolCreate,
    responses((status = 201, body = PoolView, headers(("ETag" = String))), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 422, body = Problem)))]
pub async fn create(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Body(body): Body<PoolCreate>,
) -> Result<Response, Problem> {
    let spec = api.ipam.read(|ledger| new_spec(ledger, body))?;
    let request = Request::CreatePool {
        spec,
        actor: caller.actor.clone(),
    };
    let pool = pool_of(api.submit(&caller, request).await?)?;
    Ok(shown(&api, &pool, StatusCode::CREATED))
}

/// Changes a pool; with `If-Match` only if nobody else has since.
#[utoipa::path(patch, path = "/api/v1/pools/{name}", tag = "pools", request_body = PoolPatch,
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = PoolView, headers(("ETag" = String))), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 412, body = Problem), (status = 422, body = Problem)))]
pub async fn update(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(name): Path<String>,
    IfMatch(generation): IfMatch,
    Body(patch): Body<PoolPatch>,
) -> Result<Response, Problem> {
    let pool = find(&api, &caller, &name)?;
    refuse_mirror(&pool)?;
    let force = patch.force;
    let reason = convert::text("reason", patch.reason.as_deref().unwrap_or_default())?;
    let spec = api
        .ipam
        .read(|ledger| patched(ledger, pool.spec.clone(), patch))?;
    let edit = PoolEdit {
        pool: pool.id,
        spec,
        // What was read and what is written belong together, whether or not the client asks for it.
        if_generation: Some(generation.unwrap_or(pool.generation)),
        force,
        actor: caller.actor.clone(),
        reason,
    };
    let pool = pool_of(api.submit(&caller, Request::UpdatePool(edit)).await?)?;
    Ok(shown(&api, &pool, StatusCode::OK))
}

/// Removes a pool without leases; with `If-Match` only if nobody else has changed it since.
#[utoipa::path(delete, path = "/api/v1/pools/{name}", tag = "pools",
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 412, body = Problem)))]
pub async fn delete(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(name): Path<String>,
    IfMatch(generation): IfMatch,
) -> Result<StatusCode, Problem> {
    let pool = find(&api, &caller, &name)?;
    refuse_mirror(&pool)?;
    if let Some(expected) = generation.filter(|expected| *expected != pool.generation) {
        let (pool, actual) = (pool.spec.name.clone(), pool.generation);
        return Err(fipd_core::Refusal::Stale {
            pool,
            expected,
            actual,
        }
        .into());
    }
    let request = Request::DeletePool {
        pool: pool.id,
        actor: caller.actor.clone(),
    };
    api.submit(&caller, request).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn find(api: &Api, caller: &Caller, name: &str) -> Result<Arc<Pool>, Problem> {
    api.ipam
        .read(|ledger| caller.within(ledger).pool(name).cloned())
}

/// A mirror says what its object says; a change here would be undone by the next look at the object.
fn refuse_mirror(pool: &Pool) -> Result<(), Problem> {
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

fn pool_of(answer: Answer) -> Result<Arc<Pool>, Problem> {
    let Answer::Pool(pool) = answer else {
        return Err(convert::unexpected(&answer));
    };
    Ok(pool)
}

fn shown(api: &Api, pool: &Pool, status: StatusCode) -> Response {
    let view: PoolView = api.ipam.read(|ledger| convert::pool_view(ledger, pool));
    let mut response = (status, Json(view)).into_response();
    if let Ok(etag) = HeaderValue::from_str(&format!("\"{}\"", pool.generation)) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}

pub(super) fn new_spec(ledger: &Ledger, body: PoolCreate) -> Result<PoolSpec, Problem> {
    let addresses = convert::specs("addresses", &body.addresses)?;
    let family = addresses
        .first()
        .map_or(Family::V4, fipd_core::AddressSpec::family);
    let mut ends = Ends::own_default(family);
    set_ends(
        &mut ends,
        body.reserve_first,
        body.reserve_last,
        body.reserve_of.as_deref(),
    )?;
    Ok(PoolSpec {
        name: body.name.into(),
        network: network_id(ledger, body.network.as_deref())?.unwrap_or(NetworkId::DEFAULT),
        addresses,
        exclusions: convert::specs("exclusions", &body.exclusions)?,
        gateway: body
            .gateway
            .map(|text| convert::address("gateway", &text))
            .transpose()?,
        prefix_len: body.prefix,
        subnet: body.subnet.map(|text| subnet(&text)).transpose()?,
        ends,
        order: order(body.order.as_deref())?.unwrap_or_default(),
        origin: Origin::Own,
        closed: false,
        quarantine: body.quarantine.unwrap_or(0),
        sticky: sticky(Sticky::OWN_DEFAULT, body.sticky_for, body.sticky_most),
        priority: body.priority.unwrap_or(0),
        scopes: body.scopes.into_iter().map(wants::scope).collect(),
    })
}

pub(super) fn patched(
    ledger: &Ledger,
    mut spec: PoolSpec,
    patch: PoolPatch,
) -> Result<PoolSpec, Problem> {
    if let Some(name) = patch.name {
        spec.name = name.into();
    }
    if let Some(network) = network_id(ledger, patch.network.as_deref())? {
        spec.network = network;
    }
    if let Some(addresses) = patch.addresses {
        spec.addresses = convert::specs("addresses", &addresses)?;
    }
    if let Some(exclusions) = patch.exclusions {
        spec.exclusions = convert::specs("exclusions", &exclusions)?;
    }
    if let Some(gateway) = patch.gateway {
        spec.gateway = gateway
            .map(|text| convert::address("gateway", &text))
            .transpose()?;
    }
    if let Some(prefix) = patch.prefix {
        spec.prefix_len = prefix;
    }
    if let Some(given) = patch.subnet {
        spec.subnet = given.map(|text| subnet(&text)).transpose()?;
    }
    let (first, last) = (patch.reserve_first, patch.reserve_last);
    set_ends(&mut spec.ends, first, last, patch.reserve_of.as_deref())?;
    spec.order = order(patch.order.as_deref())?.unwrap_or(spec.order);
    spec.closed = patch.closed.unwrap_or(spec.closed);
    spec.sticky = sticky(spec.sticky, patch.sticky_for, patch.sticky_most);
    spec.quarantine = patch.quarantine.unwrap_or(spec.quarantine);
    spec.priority = patch.priority.unwrap_or(spec.priority);
    if let Some(scopes) = patch.scopes {
        spec.scopes = scopes.into_iter().map(wants::scope).collect();
    }
    Ok(spec)
}

fn network_id(ledger: &Ledger, name: Option<&str>) -> Result<Option<NetworkId>, Problem> {
    name.map(|name| convert::network(ledger, name).map(|network| network.id))
        .transpose()
}

fn set_ends(
    ends: &mut Ends,
    first: Option<u32>,
    last: Option<u32>,
    of: Option<&str>,
) -> Result<(), Problem> {
    ends.first = first.unwrap_or(ends.first);
    ends.last = last.unwrap_or(ends.last);
    if let Some(of) = of {
        ends.of = convert::ends_of(of)?;
    }
    Ok(())
}

/// Who switches it on and gives no number of addresses gets that of new pools.
fn sticky(before: Sticky, lasts: Option<u32>, most: Option<u32>) -> Sticky {
    let lasts = lasts.unwrap_or(before.lasts);
    if lasts == 0 {
        return Sticky::OFF;
    }
    let known = if before.is_on() {
        before
    } else {
        Sticky::OWN_DEFAULT
    };
    let most = most.unwrap_or(known.most);
    Sticky { lasts, most }
}

fn order(text: Option<&str>) -> Result<Option<Order>, Problem> {
    text.map(convert::order).transpose()
}

fn subnet(text: &str) -> Result<IpNet, Problem> {
    text.parse()
        .map_err(|_| Problem::invalid("subnet", text, "a CIDR such as 192.0.2.0/24"))
}
