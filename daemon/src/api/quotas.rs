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

/// Pages of the ledger one request looks at before it answers with what it has.
const SCANS: usize = 50;

/// Quotas with their use, in order of pool number and tenant.
#[utoipa::path(get, path = "/api/v1/quotas", tag = "quotas", params(QuotaQuery),
    responses((status = 200, body = QuotaPage), (status = 404, body = Problem), (status = 422, body = Problem)))]
pub async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<QuotaQuery>,
) -> Result<Json<QuotaPage>, Problem> {
    let limit = query.limit.unwrap_or(100);
    if !(1..=Ledger::SCAN).contains(&limit) {
        return Err(Problem::invalid("limit", limit.to_string(), "1 to 1000"));
    }
    let mut after = query.cursor.as_deref().map(cursor).transpose()?;
    let tenant = query.tenant.as_deref().map(tenant).transpose()?;
    let pool = query.pool.as_deref().map(|name| {
        let find = |ledger: &Ledger| caller.within(ledger).pool_id(name);
        api.ipam.read(find)
    });
    let pool = pool.transpose()?;
    let mut quotas: Vec<QuotaView> = Vec::new();
    for _ in 0..SCANS {
        let wanted = limit - quotas.len();
        after = api.ipam.read(|ledger| {
            let found = ledger.quotas(tenant.as_ref(), pool, after, wanted);
            let reach = caller.within(ledger);
            let mine = found.iter().filter(|usage| reach.has_quota(&usage.quota));
            quotas.extend(mine.map(|usage| view(ledger, usage)));
            let last = found.last().filter(|_| found.len() == wanted);
            last.map(|usage| (usage.quota.pool, usage.quota.tenant.clone()))
        });
        if after.is_none() || quotas.len() >= limit {
            break;
        }
    }
    let next = after.map(|(pool, tenant)| cursor_text(pool, &tenant));
    Ok(Json(QuotaPage { quotas, next }))
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
    let pool = pool_id(&api, &caller, &pool)?;
    let quota = Quota {
        pool,
        tenant,
        limit,
    };
    let request = Request::SetQuota {
        quota: quota.clone(),
        actor: caller.actor.clone(),
    };
    api.submit(&caller, request).await?;
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
    let id = pool_id(&api, &caller, &pool)?;
    let known = api.ipam.read(|ledger| {
        let usage = ledger.quota(id, &tenant);
        usage.is_some_and(|usage| caller.within(ledger).has_quota(&usage.quota))
    });
    if !known {
        let of = format!("of tenant {name} in pool {pool}");
        return Err(Problem::not_found("quota", of));
    }
    let request = Request::DeleteQuota {
        pool: id,
        tenant,
        actor: caller.actor.clone(),
    };
    api.submit(&caller, request).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn pool_id(api: &Api, caller: &Caller, name: &str) -> Result<PoolId, Problem> {
    api.ipam.read(|ledger| caller.within(ledger).pool_id(name))
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
fn cursor_text(pool: PoolId, tenant: &Tenant) -> String {
    format!("{}_{}", pool.0, tenant.0)
}

fn cursor(text: &str) -> Result<(PoolId, Tenant), Problem> {
    let key = text.split_once('_').and_then(|(pool, tenant)| {
        let pool = PoolId(pool.parse().ok()?);
        Some((pool, Tenant(tenant.into())))
    });
    key.ok_or_else(|| Problem::invalid("cursor", text, "the `next` of an earlier page"))
}
