//! `/api/v1/quotas`.

use std::sync::Arc;

use axum::{Json, extract::State};
use fipd_core::{Ledger, PoolId, Quota, QuotaUsage, Request, Tenant};
use http::StatusCode;

use super::{
    Api,
    auth::Caller,
    convert,
    extract::{Body, Path, Query},
    problem::Problem,
    wire::{QuotaPage, QuotaPut, QuotaQuery, QuotaView},
};

/// Quotas with their use, in order of pool number and tenant.
#[utoipa::path(get, path = "/api/v1/quotas", tag = "quotas", params(QuotaQuery),
    responses((status = 200, body = QuotaPage), (status = 404, body = Problem), (status = 422, body = Problem)))]
pub async fn list(
    State(api): State<Arc<Api>>,
    Query(query): Query<QuotaQuery>,
) -> Result<Json<QuotaPage>, Problem> {
    let limit = query.limit.unwrap_or(100);
    if !(1..=Ledger::SCAN).contains(&limit) {
        return Err(Problem::invalid("limit", limit.to_string(), "1 to 1000"));
    }
    let after = query.cursor.as_deref().map(cursor).transpose()?;
    let tenant = query.tenant.as_deref().map(tenant).transpose()?;
    api.ipam.read(|ledger| {
        let pool = query.pool.as_deref().map(|name| ledger.find_pool(name));
        let pool = pool.transpose()?.map(|pool| pool.id);
        let found = ledger.quotas(tenant.as_ref(), pool, after, limit);
        let last = found.last().filter(|_| found.len() == limit);
        Ok(Json(QuotaPage {
            next: last.map(|usage| cursor_text(&usage.quota)),
            quotas: found.iter().map(|usage| view(ledger, usage)).collect(),
        }))
    })
}

/// Limits what a tenant may have of a pool. What it holds already stays, also above the limit.
#[utoipa::path(put, path = "/api/v1/quotas/{pool}/{tenant}", tag = "quotas", request_body = QuotaPut,
    params(("pool" = String, Path, description = "slashes as %2F"), ("tenant" = String, Path)),
    responses((status = 200, body = QuotaView), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
pub async fn put(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path((pool, name)): Path<(String, String)>,
    Body(QuotaPut { limit }): Body<QuotaPut>,
) -> Result<Json<QuotaView>, Problem> {
    let tenant = tenant(&name)?;
    let pool = pool_id(&api, &pool)?;
    let quota = Quota {
        pool,
        tenant,
        limit,
    };
    let actor = caller.actor;
    let request = Request::SetQuota {
        quota: quota.clone(),
        actor,
    };
    api.ipam.submit(request).await?;
    Ok(Json(api.ipam.read(|ledger| {
        let used = ledger.charged(pool, &quota.tenant);
        view(ledger, &QuotaUsage { quota, used })
    })))
}

/// Takes a limit away: the tenant may have any number of the pool's addresses.
#[utoipa::path(delete, path = "/api/v1/quotas/{pool}/{tenant}", tag = "quotas",
    params(("pool" = String, Path, description = "slashes as %2F"), ("tenant" = String, Path)),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
pub async fn delete(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path((pool, name)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let tenant = tenant(&name)?;
    let id = pool_id(&api, &pool)?;
    if api.ipam.read(|ledger| ledger.quota(id, &tenant).is_none()) {
        let of = format!("of tenant {name} in pool {pool}");
        return Err(Problem::not_found("quota", of));
    }
    let request = Request::DeleteQuota {
        pool: id,
        tenant,
        actor: caller.actor,
    };
    api.ipam.submit(request).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn pool_id(api: &Api, name: &str) -> Result<PoolId, Problem> {
    api.ipam.read(|ledger| Ok(ledger.find_pool(name)?.id))
}

/// A tenant that can have a quota.
fn tenant(name: &str) -> Result<Tenant, Problem> {
    if name.is_empty() {
        let allowed = "1 to 1024 bytes without control characters";
        return Err(Problem::invalid("tenant", name, allowed));
    }
    convert::text("tenant", name).map(Tenant)
}

pub(super) fn view(ledger: &Ledger, usage: &QuotaUsage) -> QuotaView {
    let Quota {
        pool,
        tenant,
        limit,
    } = &usage.quota;
    let known = ledger.pool(*pool);
    QuotaView {
        tenant: tenant.0.to_string(),
        pool: known.map_or_else(
            || format!("#{}", pool.0),
            |known| known.spec.name.to_string(),
        ),
        used: usage.used,
        limit: *limit,
    }
}

/// A cursor: the key of the last quota of a page.
fn cursor_text(quota: &Quota) -> String {
    format!("{}_{}", quota.pool.0, quota.tenant.0)
}

fn cursor(text: &str) -> Result<(PoolId, Tenant), Problem> {
    let key = text.split_once('_').and_then(|(pool, tenant)| {
        let pool = PoolId(pool.parse().ok()?);
        Some((pool, Tenant(tenant.into())))
    });
    key.ok_or_else(|| Problem::invalid("cursor", text, "the `next` of an earlier page"))
}
