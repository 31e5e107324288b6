//! `/api/v1/pools/{name}/move-network`.

use axum::{Json, extract::State as Shared, response::Response};
use fipd_core::{Collision, NetworkId, PoolId, Request};
use http::StatusCode;

use super::pools::{find, guard, pool_of, shown};
use crate::api::{
    access::auth::Caller,
    convert::network_name,
    etag::IfMatch,
    extract::{Body, Path, Query},
    problem::Problem,
    wire::{CollisionView, PoolMove, PoolMovePreview, PoolMoveQuery, PoolView},
};
use crate::ipam::Ipam;

/// What comes of a move: how many leases go along, and what is in the way.
#[derive(Clone, Debug, Default)]
pub struct Outlook {
    pub leases: u64,
    pub collisions: u64,
    /// The lowest, at most [`Collision::LISTED`].
    pub first: Vec<Collision>,
}

/// What a move to another network would do. A mirror may go, too, where neither its object nor a rule says its network.
#[utoipa::path(get, path = "/api/v1/pools/{name}/move-network", tag = "pools",
    params(("name" = String, Path), PoolMoveQuery),
    responses((status = 200, body = PoolMovePreview), (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 422, body = Problem)))]
pub async fn preview(
    Shared(ipam): Shared<Ipam>,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<PoolMoveQuery>,
) -> Result<Json<PoolMovePreview>, Problem> {
    let pool = find(&ipam, &caller, &name)?;
    let to = network(&ipam, &caller, &query.network)?;
    let outlook = outlook(&ipam, pool.id, to).await?;
    let view = |one: Collision| CollisionView {
        address: one.address,
        owner: one.owner,
    };
    Ok(Json(ipam.read(|ledger| PoolMovePreview {
        pool: pool.spec.name.to_string(),
        from: network_name(ledger, pool.spec.network),
        to: network_name(ledger, to),
        leases: outlook.leases,
        collisions: outlook.collisions,
        first: outlook.first.into_iter().map(view).collect(),
    })))
}

/// Takes a pool to another network with all of its leases, or does nothing; with `If-Match` only if nobody else has changed
/// it since.
#[utoipa::path(post, path = "/api/v1/pools/{name}/move-network", tag = "pools", request_body = PoolMove,
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = PoolView, headers(("ETag" = String))), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 412, body = Problem), (status = 422, body = Problem)))]
pub async fn move_network(
    Shared(ipam): Shared<Ipam>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
    Body(body): Body<PoolMove>,
) -> Result<Response, Problem> {
    let id = find(&ipam, &caller, &name)?.id;
    let request = Request::MoveNetwork {
        pool: id,
        network: network(&ipam, &caller, &body.network)?,
        actor: caller.actor.clone(),
    };
    let guard = guard(if_match, &name, id);
    let pool = pool_of(caller.submit_if(&ipam, request, guard).await?)?;
    Ok(shown(&ipam, &pool, StatusCode::OK))
}

fn network(ipam: &Ipam, caller: &Caller, name: &str) -> Result<NetworkId, Problem> {
    ipam.read(|ledger| {
        let network = caller.within(ledger).network(name)?;
        Ok(network.id)
    })
}

/// Looks through all leases of the pool; the lock is given back after each thousand.
pub(in crate::api) async fn outlook(
    ipam: &Ipam,
    pool: PoolId,
    to: NetworkId,
) -> Result<Outlook, Problem> {
    let mut outlook = Outlook::default();
    let mut after = None;
    loop {
        let page = ipam.read(|ledger| ledger.preview_move(pool, to, after))?;
        outlook.leases += page.leases as u64;
        outlook.collisions += page.collisions.len() as u64;
        let room = Collision::LISTED.saturating_sub(outlook.first.len());
        outlook.first.extend(page.collisions.into_iter().take(room));
        if page.next.is_none() {
            return Ok(outlook);
        }
        after = page.next;
        tokio::task::yield_now().await;
    }
}
