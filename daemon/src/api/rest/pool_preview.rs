//! `/api/v1/pools/{name}/preview`: what an edit of a pool would do.

use std::sync::Arc;

use axum::{Json, extract::State};
use fipd_core::{LeaseKey, Ledger, PoolPreview};

use super::pools::{find, patched, refuse_mirror};
use crate::api::{
    Api,
    access::auth::Caller,
    convert,
    extract::{Body, Path, Query},
    page::{self, Ask},
    problem::Problem,
    wire::{Count, PageQuery, PoolPatch, PoolPreviewView},
};

/// What an edit of a pool would do. It is taken as the edit is, and refused for the same reasons, but for leases that it
/// leaves out of range: these come in pages. Nothing is changed.
#[utoipa::path(post, path = "/api/v1/pools/{name}/preview", tag = "pools", request_body = PoolPatch,
    params(("name" = String, Path), PageQuery),
    responses((status = 200, body = PoolPreviewView), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
pub async fn preview(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<PageQuery>,
    Body(patch): Body<PoolPatch>,
) -> Result<Json<PoolPreviewView>, Problem> {
    let ask = Ask::<LeaseKey>::new(query.limit, query.cursor.as_deref())?;
    let pool = find(&api, &caller, &name)?;
    refuse_mirror(&pool)?;
    convert::text("reason", patch.reason.as_deref().unwrap_or_default())?;
    api.ipam.read(|ledger| {
        let spec = patched(ledger, pool.spec.clone(), patch)?;
        let preview = ledger.preview_pool_after(Some(pool.id), &spec, ask.after, ask.limit)?;
        Ok(Json(view(ledger, pool.spec.name.to_string(), &preview)))
    })
}

fn view(ledger: &Ledger, pool: String, preview: &PoolPreview) -> PoolPreviewView {
    let leaving = preview.leaving.iter();
    let overlaps = preview.overlaps.iter().filter_map(|id| ledger.pool(*id));
    PoolPreviewView {
        pool,
        size_before: Count(preview.before.map_or(0, |size| size.assignable)),
        size_after: Count(preview.after.assignable),
        overlaps: overlaps.map(|pool| pool.spec.name.to_string()).collect(),
        leaving: leaving
            .map(|lease| convert::lease_summary(ledger, lease))
            .collect(),
        next: preview.next.as_ref().map(page::text),
    }
}
