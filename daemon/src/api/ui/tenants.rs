//! What tenants hold and may hold.

use std::{collections::BTreeMap, sync::Arc};

use axum::{extract::State, response::Response};
use fipd_core::{Ledger, PoolId, Quota, Request, Role, Tenancy, Tenant, Text};
use fipd_web_ui::{Field, Input, Nav, QuotaForm, TenantRow, TenantsPage, count, links};
use http::StatusCode;

use super::{
    fields::{Fields, with_query},
    list::{Listing, Order},
    page::{Answered, go_to, page_as},
};
use crate::api::ui::session_extract::{Posted, Query, Visitor};
use crate::{
    api::{Api, convert, problem::Problem},
    ipam::Ipam,
};

/// Rows of one page.
const PAGE: usize = 100;
/// Steps of [`Ledger::SCAN`] rows that one page takes at the most.
const STEPS: usize = 200;
const ORDERS: &[Order] = &[
    Order::up("tenant", "by tenant"),
    Order::down("tenant", "by tenant, from the end"),
    Order::up("pool", "by pool"),
    Order::down("pool", "by pool, from the end"),
    Order::down("used", "most used first"),
    Order::up("used", "least used first"),
    Order::down("limit", "highest limit first"),
    Order::up("limit", "lowest limit first"),
];

pub async fn list(State(api): State<Arc<Api>>, visitor: Visitor, Query(query): Query) -> Answered {
    let form = (visitor.session.role == Role::Admin).then(|| filled(&query));
    Ok(show(&api, &visitor, StatusCode::OK, &query, form).await)
}

/// Sets the limit, or shows the form again with what is wrong.
pub async fn submit(State(api): State<Arc<Api>>, posted: Posted) -> Answered {
    let Posted { visitor, fields } = posted;
    let mut form = filled(&fields);
    let Some((pool, tenant, limit)) = api.ipam.read(|ledger| parse(ledger, &mut form)) else {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Ok(show(&api, &visitor, status, &Fields::default(), Some(form)).await);
    };
    let name = tenant.0.to_string();
    let actor = visitor.actor();
    let (request, done) = match limit {
        Some(limit) => {
            let text = format!(
                "{name} may hold {} addresses of {}.",
                count(limit.into()),
                form.pool.value
            );
            let quota = Quota {
                pool,
                tenant,
                limit,
            };
            (Request::SetQuota { quota, actor }, text)
        }
        None => {
            let text = format!(
                "{name} may hold any number of addresses of {}.",
                form.pool.value
            );
            let request = Request::DeleteQuota {
                pool,
                tenant,
                actor,
            };
            (request, text)
        }
    };
    if let Err(error) = api.ipam.submit(request).await {
        let problem = Problem::from(error);
        let status = problem.status_code();
        form.error = Some(problem.detail.into_string());
        return Ok(show(&api, &visitor, status, &Fields::default(), Some(form)).await);
    }
    visitor.tell(true, done, None);
    Ok(go_to(&with_query(links::TENANTS, &[("filter", &name)])))
}

fn filled(fields: &Fields) -> QuotaForm {
    let field = |name| Field {
        value: fields.get(name).to_owned(),
        error: None,
    };
    QuotaForm {
        tenant: field("tenant"),
        pool: field("pool"),
        limit: field("limit"),
        error: None,
    }
}

/// Pool, tenant and limit; `None` with the mistakes noted beside the fields.
fn parse(ledger: &Ledger, form: &mut QuotaForm) -> Option<(PoolId, Tenant, Option<u64>)> {
    let tenant = if form.tenant.value.is_empty() {
        form.tenant.error = Some("Say whose limit it is.".to_owned());
        None
    } else {
        let text = convert::text("tenant", &form.tenant.value);
        text.map_err(|problem| form.tenant.error = Some(problem.detail.into_string()))
            .ok()
    };
    let pool = ledger.find_pool(&form.pool.value);
    let pool = pool.map_err(|error| form.pool.error = Some(error.to_string()));
    let limit = match form.limit.value.as_str() {
        "" => Ok(None),
        text => text.parse().map(Some),
    };
    let limit = limit.map_err(|_| {
        let wrong = "Write a whole number, or nothing for no limit.";
        form.limit.error = Some(wrong.to_owned());
    });
    Some((pool.ok()?.id, Tenant(tenant?), limit.ok()?))
}

async fn show(
    api: &Api,
    visitor: &Visitor,
    status: StatusCode,
    query: &Fields,
    form: Option<QuotaForm>,
) -> Response {
    let inputs = vec![
        Input::new("filter", "Tenant contains"),
        Input::new("of", "Pool contains"),
    ];
    let list = Listing::new(links::TENANTS, inputs, ORDERS, query);
    let (mut found, cut) = found(&api.ipam, list.filter("filter")).await;
    let names = api.ipam.read(|ledger| names(ledger, &found));
    let name = |one: &Tenancy| names.get(&one.pool).map_or("", |name| &**name);
    let pool = list.filter("of");
    found.retain(|one| name(one).contains(pool));
    let tenant = |one: &Tenancy| one.tenant.clone();
    let (found, pager) = match list.order.key {
        "pool" => list.page_by(found, |one| (name(one), tenant(one)), PAGE, query),
        "used" => list.page_by(found, |one| one.used, PAGE, query),
        // No limit is above every limit.
        "limit" => list.page_by(found, |one| (one.limit.is_none(), one.limit), PAGE, query),
        _ => list.page_by(found, |one| (tenant(one), name(one)), PAGE, query),
    };
    let rows = found.iter().map(|one| TenantRow {
        tenant: one.tenant.0.to_string(),
        name: api.guests.project_name(&one.tenant.0).unwrap_or_default(),
        pool: one.pool.0,
        pool_name: name(one).to_owned(),
        used: one.used,
        limit: one.limit,
    });
    let rows = rows.collect();
    let page = TenantsPage {
        shell: visitor.shell(Nav::Tenants),
        columns: vec![
            list.column("tenant", "Tenant"),
            list.column("pool", "Pool"),
            list.numbers("used", "Used"),
            list.column("limit", "Limit"),
        ],
        filters: list.filters,
        rows,
        cut: cut.then_some((STEPS * Ledger::SCAN) as u64),
        pager,
        form,
    };
    page_as(status, &page)
}

/// Tenants with the text in their name, in each pool that they have something of, read step by step; and whether there
/// may be more of them, because enough was looked at.
pub async fn found(ipam: &Ipam, text: &str) -> (Vec<Tenancy>, bool) {
    walk(ipam, text, STEPS).await
}

async fn walk(ipam: &Ipam, text: &str, steps: usize) -> (Vec<Tenancy>, bool) {
    let (mut wanted, mut after) = (Vec::new(), None);
    for _ in 0..steps {
        let found = ipam.read(|ledger| ledger.tenancies(None, after.take(), Ledger::SCAN));
        let more = found.len() == Ledger::SCAN;
        after = found.last().map(|last| (last.pool, last.tenant.clone()));
        wanted.extend(found.into_iter().filter(|one| one.tenant.0.contains(text)));
        if !more {
            return (wanted, false);
        }
        tokio::task::yield_now().await;
    }
    (wanted, true)
}

/// The names of the pools.
fn names(ledger: &Ledger, found: &[Tenancy]) -> BTreeMap<PoolId, Text> {
    let runs = found.chunk_by(|left, right| left.pool == right.pool);
    let pools = runs.filter_map(|run| ledger.pool(run.first()?.pool));
    pools
        .map(|pool| (pool.id, Text::clone(&pool.spec.name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use fipd_core::PoolSpec;

    use super::*;

    #[tokio::test]
    async fn it_is_told_where_enough_was_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let (ipam, writer) = Ipam::start(dir.path(), Arc::new(crate::clock::now)).unwrap();
        let spec = PoolSpec::own("p", vec!["10.0.0.0/24".parse().unwrap()]);
        let actor = "test".into();
        let create = Request::CreatePool { spec, actor };
        ipam.submit(create).await.unwrap();
        let limit = |number: usize| {
            let quota = Quota {
                pool: PoolId(1),
                tenant: Tenant(format!("t-{number}").as_str().into()),
                limit: 1,
            };
            let actor = "test".into();
            ipam.submit(Request::SetQuota { quota, actor })
        };
        let set = futures::future::join_all((0..=Ledger::SCAN).map(limit));
        assert!(set.await.iter().all(Result::is_ok));
        let (rows, cut) = walk(&ipam, "", 1).await;
        assert_eq!((rows.len(), cut), (Ledger::SCAN, true));
        let (rows, cut) = walk(&ipam, "", 2).await;
        assert_eq!((rows.len(), cut), (Ledger::SCAN + 1, false));
        let (rows, cut) = walk(&ipam, "t-77", 2).await;
        assert_eq!((rows.len(), cut), (11, false));
        ipam.shutdown().await;
        writer.join();
    }
}
