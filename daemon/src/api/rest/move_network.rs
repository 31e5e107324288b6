//! `/api/v1/pools/{name}/move-network`.

use axum::{Json, response::Response};
use fipd_core::{Collision, NetworkId, Request};
use http::StatusCode;

use super::pools::{find, guard, pool_of, shown};
use crate::api::{
    access::permit::Requester,
    convert::network_name,
    etag::IfMatch,
    extract::{Body, Path, Query},
    problem::Problem,
    wire::{CollisionView, PoolMove, PoolMovePreview, PoolView},
};

/// What a move to another network would do. A mirror may go, too, where neither its object nor a rule says its network.
#[utoipa::path(get, path = "/api/v1/pools/{name}/move-network", tag = "pools", params(("name" = String, Path)),
    responses((status = 200, body = PoolMovePreview), (status = 409, body = Problem)))]
pub async fn preview(
    requester: Requester,
    Path(name): Path<String>,
    Query(query): Query<PoolMove>,
) -> Result<Json<PoolMovePreview>, Problem> {
    let pool = find(&requester, &name)?;
    let to = network(&requester, &query.network)?;
    let mut preview = requester.ipam.read(|ledger| PoolMovePreview {
        pool: pool.spec.name.to_string(),
        from: network_name(ledger, pool.spec.network),
        to: network_name(ledger, to),
        leases: 0,
        collisions: 0,
        first: Vec::new(),
    });
    let view = |one: Collision| CollisionView {
        address: one.address,
        length: one.length,
        owner: one.owner,
    };
    // All leases of the pool are looked at; the lock is given back after each thousand.
    let mut after = None;
    loop {
        let page = requester
            .ipam
            .read(|ledger| ledger.preview_move(pool.id, to, after))?;
        preview.leases += page.leases as u64;
        preview.collisions += page.collisions.len() as u64;
        let room = Collision::LISTED.saturating_sub(preview.first.len());
        let more = page.collisions.into_iter().take(room).map(view);
        preview.first.extend(more);
        if page.next.is_none() {
            return Ok(Json(preview));
        }
        after = page.next;
        tokio::task::yield_now().await;
    }
}

/// Takes a pool to another network with all of its leases, or does nothing; with `If-Match` only if nobody else has changed
/// it since.
#[utoipa::path(post, path = "/api/v1/pools/{name}/move-network", tag = "pools", request_body = PoolMove,
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = PoolView, headers(("ETag" = String)))))]
pub async fn move_network(
    requester: Requester,
    Path(name): Path<String>,
    if_match: IfMatch,
    Body(body): Body<PoolMove>,
) -> Result<Response, Problem> {
    let id = find(&requester, &name)?.id;
    let request = Request::MoveNetwork {
        pool: id,
        network: network(&requester, &body.network)?,
        actor: requester.actor(),
    };
    let guard = guard(if_match, &name, id);
    let pool = pool_of(requester.submit_if(request, guard).await?)?;
    Ok(shown(&requester.ipam, &pool, StatusCode::OK))
}

fn network(requester: &Requester, name: &str) -> Result<NetworkId, Problem> {
    requester.read(|visible| Ok(visible.network(name)?.id))
}
