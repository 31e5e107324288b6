//! `/api/v1/pools/{name}/preview`: what an edit of a pool would do.

use std::sync::Arc;

use axum::Json;
use fipd_core::{LeaseKey, Ledger, Pool, PoolPreview, PoolSpec};

use super::pools::{editable, new_spec, patched};
use crate::api::{
    access::{permit::Requester, visible::VisibleLedger},
    convert,
    etag::IfMatch,
    extract::{Body, Path, Query},
    page::{self, Ask},
    problem::Problem,
    wire::{Count, PageQuery, PoolCreate, PoolPatch, PoolPreviewView},
};
use crate::ipam::Ipam;

/// What an edit of a pool would do. It is taken as the edit is, and refused for the same reasons, but for leases that it
/// leaves out of range: these come in pages. Nothing is changed.
#[utoipa::path(post, path = "/api/v1/pools/{name}/preview", tag = "pools", request_body = PoolPatch,
    params(("name" = String, Path), PageQuery), responses((status = 200, body = PoolPreviewView)))]
pub async fn preview(
    requester: Requester,
    Path(name): Path<String>,
    Query(query): Query<PageQuery>,
    Body(patch): Body<PoolPatch>,
) -> Result<Json<PoolPreviewView>, Problem> {
    let ask = Ask::new(query.limit, query.cursor.as_deref())?;
    let which = (name.as_str(), &IfMatch::default());
    let (pool, (_, preview)) = of_edit(&requester, which, patch, ask)?;
    let name = pool.spec.name.to_string();
    Ok(Json(
        requester.read(|visible| view(visible.ledger, name, &preview)),
    ))
}

/// What an edit leads to and what comes of it.
pub(in crate::api) fn of_edit(
    requester: &Requester,
    which: (&str, &IfMatch),
    patch: PoolPatch,
    ask: Ask<LeaseKey>,
) -> Result<(Arc<Pool>, (PoolSpec, PoolPreview)), Problem> {
    let pool = editable(requester, which)?;
    convert::text("reason", patch.reason.as_deref().unwrap_or_default())?;
    let found = requester.read(|VisibleLedger { ledger, .. }| {
        let spec = patched(ledger, pool.spec.clone(), patch)?;
        let preview = ledger.preview_pool_after(Some(pool.id), &spec, ask.after, ask.limit)?;
        Ok::<_, Problem>((spec, preview))
    });
    Ok((pool, found?))
}

/// What a new pool would be.
pub(in crate::api) fn of_new(
    ipam: &Ipam,
    body: PoolCreate,
) -> Result<(PoolSpec, PoolPreview), Problem> {
    ipam.read(|ledger| {
        let spec = new_spec(ledger, body)?;
        let preview = ledger.preview_pool(None, &spec)?;
        Ok((spec, preview))
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
