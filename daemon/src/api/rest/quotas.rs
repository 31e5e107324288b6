//! `/api/v1/quotas`.

use axum::{Json, response::Response};
use fipd_core::{Ledger, PoolId, Quota, QuotaUsage, Request, Tenant};
use http::StatusCode;

use crate::api::{
    access::{permit::Requester, visible::VisibleLedger},
    convert::{self, given},
    etag::{IfMatch, IfNoneMatch, State, tagged},
    extract::{Body, Path, Query},
    page::Ask,
    problem::Problem,
    wire::{QuotaPage, QuotaPut, QuotaQuery, QuotaView},
};
use crate::ipam::Guard;

/// Quotas with their use, in order of pool number and tenant.
#[utoipa::path(get, path = "/api/v1/quotas", tag = "quotas", params(QuotaQuery),
    responses((status = 200, body = QuotaPage), (status = 404, body = Problem)))]
pub async fn list(
    requester: Requester,
    Query(query): Query<QuotaQuery>,
) -> Result<Json<QuotaPage>, Problem> {
    let ask = Ask::new(query.limit, query.cursor.as_deref())?;
    let tenant = given(&query.tenant, tenant)?;
    let find = |name: &str| requester.read(|visible| visible.pool_id(name));
    let pool = given(&query.pool, find)?;
    let (quotas, next) = ask.walk(|after, limit| {
        requester.read(|visible| {
            let found = visible.ledger.quotas(tenant.as_ref(), pool, after, limit);
            let mine = found.iter().filter(|usage| visible.has_quota(&usage.quota));
            let views = mine.map(|usage| view(visible.ledger, usage)).collect();
            let last = found.last().filter(|_| found.len() == limit);
            (views, last.map(|usage| key(&usage.quota)))
        })
    });
    Ok(Json(QuotaPage { quotas, next }))
}

/// One quota with its use.
#[utoipa::path(get, path = "/api/v1/quotas/{pool}/{tenant}", tag = "quotas",
    params(("pool" = String, Path, description = "slashes as %2F"), ("tenant" = String, Path)),
    responses((status = 200, body = QuotaView, headers(("ETag" = String))), (status = 304), (status = 409, body = Problem)))]
pub async fn show(
    requester: Requester,
    Path((pool, name)): Path<(String, String)>,
    known: IfNoneMatch,
) -> Result<Response, Problem> {
    let (id, tenant) = named(&requester, (&pool, &name))?;
    requester.read(|visible| {
        let usage = find(visible, id, &tenant);
        let usage = usage.ok_or_else(|| unknown(&name, &pool))?;
        let view = view(visible.ledger, &usage);
        Ok(known.answer(&State::of(&usage.quota), &view))
    })
}

/// Limits what a tenant may have of a pool. What it holds already stays, also above the limit.
#[utoipa::path(put, path = "/api/v1/quotas/{pool}/{tenant}", tag = "quotas", request_body = QuotaPut,
    params(("pool" = String, Path, description = "slashes as %2F"), ("tenant" = String, Path),
        ("If-Match" = Option<String>, Header)), responses((status = 200, body = QuotaView, headers(("ETag" = String)))))]
pub async fn put(
    requester: Requester,
    Path((pool, name)): Path<(String, String)>,
    if_match: IfMatch,
    Body(QuotaPut { limit }): Body<QuotaPut>,
) -> Result<Response, Problem> {
    let (state, view) = set(&requester, (&pool, &name), if_match, limit).await?;
    Ok(tagged(StatusCode::OK, &state, &view))
}

/// Sets the limit of a tenant in a pool.
pub(in crate::api) async fn set(
    requester: &Requester,
    names: (&str, &str),
    if_match: IfMatch,
    limit: u64,
) -> Result<(State, QuotaView), Problem> {
    let (pool, tenant) = named(requester, names)?;
    let quota = Quota {
        pool,
        tenant,
        limit,
    };
    let request = Request::SetQuota {
        quota: quota.clone(),
        actor: requester.actor(),
    };
    let guard = guard(if_match, &quota);
    requester.submit_if(request, guard).await?;
    Ok(requester.ipam.read(|ledger| {
        let used = ledger.charged(pool, &quota.tenant);
        let state = State::of(&quota);
        (state, view(ledger, &QuotaUsage { quota, used }))
    }))
}

/// Takes a limit away: the tenant may have any number of what the pool gives.
#[utoipa::path(delete, path = "/api/v1/quotas/{pool}/{tenant}", tag = "quotas",
    params(("pool" = String, Path, description = "slashes as %2F"), ("tenant" = String, Path),
        ("If-Match" = Option<String>, Header)), responses((status = 204), (status = 409, body = Problem)))]
pub async fn delete(
    requester: Requester,
    Path((pool, name)): Path<(String, String)>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    let (id, tenant) = named(&requester, (&pool, &name))?;
    let found = requester.read(|visible| find(visible, id, &tenant));
    let quota = found.ok_or_else(|| unknown(&name, &pool))?.quota;
    let request = Request::DeleteQuota {
        pool: id,
        tenant,
        actor: requester.actor(),
    };
    let guard = guard(if_match, &quota);
    requester.submit_if(request, guard).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn find(visible: VisibleLedger<'_>, pool: PoolId, tenant: &Tenant) -> Option<QuotaUsage> {
    let usage = visible.ledger.quota(pool, tenant);
    usage.filter(|usage| visible.has_quota(&usage.quota))
}

fn unknown(tenant: &str, pool: &str) -> Problem {
    Problem::not_found("quota", format!("of tenant {tenant} in pool {pool}"))
}

fn guard(if_match: IfMatch, quota: &Quota) -> Guard {
    let (pool, tenant) = key(quota);
    let what = format!("the quota of tenant {}", tenant.0);
    if_match.guard(what, move |ledger| {
        let usage = ledger.quota(pool, &tenant);
        usage.map(|usage| State::of(&usage.quota))
    })
}

fn key(quota: &Quota) -> (PoolId, Tenant) {
    (quota.pool, quota.tenant.clone())
}

/// The pool and the tenant of these names.
pub(in crate::api) fn named(
    requester: &Requester,
    (pool, name): (&str, &str),
) -> Result<(PoolId, Tenant), Problem> {
    let tenant = tenant(name)?;
    let id = requester.read(|visible| visible.pool_id(pool));
    let id = id.map_err(|problem| problem.about("pool", pool))?;
    Ok((id, tenant))
}

/// A tenant that can have a quota.
fn tenant(name: &str) -> Result<Tenant, Problem> {
    if name.is_empty() {
        let allowed = "1 to 1024 bytes without control characters";
        return Err(Problem::invalid("tenant", name, allowed));
    }
    convert::text("tenant", name).map(Tenant)
}

pub(in crate::api) fn view(ledger: &Ledger, usage: &QuotaUsage) -> QuotaView {
    let Quota {
        pool,
        tenant,
        limit,
    } = &usage.quota;
    QuotaView {
        tenant: tenant.0.to_string(),
        pool: convert::pool_name(ledger, *pool),
        used: usage.used,
        limit: *limit,
    }
}
