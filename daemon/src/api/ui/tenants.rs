//! What tenants hold and may hold.

use std::collections::BTreeMap;

use axum::{extract::State, response::Response};
use fipd_core::{Ledger, PoolId, QuotaUnit, Role, Tenancy, Text};
use fipd_web_ui::{Form, Input, Nav, TenantRow, TenantsPage, count, links};
use http::StatusCode;

use super::{
    fields::{Fields, with_query},
    forms::{Words, blame, filled, optional},
    list::{Listing, Order},
    page::{Answered, page_as},
    session_extract::{Query, SubmittedForm, Visitor},
};
use crate::api::{
    convert,
    etag::IfMatch,
    extract::Path,
    problem::{Code, Problem},
    rest::quotas::{delete, named, set},
};
use crate::{guests::GuestBoard, ipam::Ipam};

/// Rows of one page.
const PAGE: usize = 100;
/// Steps of [`Ledger::SCAN`] rows that one page takes at the most.
pub const STEPS: usize = 200;
const ORDERS: &[[Order; 2]] = &[
    Order::up_first("tenant", "by tenant", "by tenant, from the end"),
    Order::up_first("pool", "by pool", "by pool, from the end"),
    Order::down_first("used", "most used first", "least used first"),
    Order::down_first("limit", "highest limit first", "lowest limit first"),
];

const FIELDS: [&str; 3] = ["tenant", "pool", "limit"];
const WORDS: Words = |field, value| match (field, value) {
    ("tenant", "") => Some("Say whose limit it is."),
    ("limit", _) => Some("Write a whole number, or nothing for no limit."),
    _ => None,
};

pub async fn list(
    State(guests): State<GuestBoard>,
    visitor: Visitor,
    Query(query): Query,
) -> Answered {
    let form = (visitor.session.role == Role::Admin).then(|| filled(&FIELDS, &query));
    Ok(show(&guests, &visitor, StatusCode::OK, &query, form).await)
}

/// Sets the limit, or shows the form again with what is wrong.
pub async fn submit(
    State(guests): State<GuestBoard>,
    SubmittedForm { visitor, fields }: SubmittedForm,
) -> Answered {
    let mut form = filled(&FIELDS, &fields);
    let (tenant, pool) = (form.value("tenant"), form.value("pool"));
    let (requester, any) = (visitor.requester(), IfMatch::default());
    let done = match limit(&form) {
        Ok(Some(limit)) => {
            let set = set(&requester, (pool, tenant), any, limit);
            let (limit, units) = (count(limit), units(&visitor, pool));
            let text = format!("{tenant} may hold {limit} {units} of {pool}.");
            set.await.map(|_| text)
        }
        Ok(None) => {
            let lift = delete(
                requester.clone(),
                Path((pool.to_owned(), tenant.to_owned())),
                any,
            );
            let units = units(&visitor, pool);
            let text = format!("{tenant} may hold any number of {units} of {pool}.");
            match lift.await {
                // There was none.
                Err(problem) if problem.code == Code::NotFound && problem.field.is_none() => {
                    Ok(text)
                }
                lifted => lifted.map(|_| text),
            }
        }
        Err(problem) => Err(problem),
    };
    match done {
        Ok(text) => Ok(visitor.done(&with_query(links::TENANTS, &[("filter", tenant)]), text)),
        Err(problem) => {
            // The limit is read before the names: what is wrong with them is said as well.
            if let Err(also) = named(&requester, (pool, tenant)) {
                blame(&mut form, &also, WORDS);
            }
            let status = blame(&mut form, &problem, WORDS);
            Ok(show(&guests, &visitor, status, &Fields::default(), Some(form)).await)
        }
    }
}

/// What limits of the pool count.
fn units(visitor: &Visitor, pool: &str) -> &'static str {
    let unit = |ledger: &Ledger| Some(ledger.find_pool(pool).ok()?.spec.quota_unit);
    match visitor.read(unit) {
        Some(QuotaUnit::Address) => "addresses",
        Some(QuotaUnit::Lease) | None => "leases",
    }
}

/// `None`: no limit.
fn limit(form: &Form) -> Result<Option<u64>, Problem> {
    let limit = optional(form.value("limit"));
    limit.map(|text| convert::parse("limit", &text)).transpose()
}

async fn show(
    guests: &GuestBoard,
    visitor: &Visitor,
    status: StatusCode,
    query: &Fields,
    form: Option<Form>,
) -> Response {
    let inputs = vec![
        Input::new("filter", "Tenant contains"),
        Input::new("of", "Pool contains"),
    ];
    let list = Listing::new(links::TENANTS, inputs, ORDERS.as_flattened(), query);
    let (mut found, cut) = found(&visitor.ipam, list.filter("filter"), STEPS).await;
    let names = visitor.read(|ledger| names(ledger, &found));
    let name = |one: &Tenancy| names.get(&one.pool).map_or("", |name| &**name);
    let pool = list.filter("of");
    found.retain(|one| name(one).contains(pool));
    let tenant = |one: &Tenancy| one.tenant.clone();
    let (found, pager) = match list.order.key {
        "pool" => list.page_by(found, PAGE, |one| (name(one), tenant(one))),
        "used" => list.page_by(found, PAGE, |one| one.used),
        // No limit is above every limit.
        "limit" => list.page_by(found, PAGE, |one| (one.limit.is_none(), one.limit)),
        _ => list.page_by(found, PAGE, |one| (tenant(one), name(one))),
    };
    let row = |one: &Tenancy| TenantRow {
        tenant: one.tenant.0.to_string(),
        name: guests.project_name(&one.tenant.0).unwrap_or_default(),
        pool: one.pool.0,
        pool_name: name(one).to_owned(),
        used: one.used,
        limit: one.limit,
    };
    let page = TenantsPage {
        shell: visitor.shell(Nav::Tenants),
        columns: vec![
            list.column("tenant", "Tenant"),
            list.column("pool", "Pool"),
            list.numbers("used", "Used"),
            list.column("limit", "Limit"),
        ],
        filters: list.filters,
        rows: found.iter().map(row).collect(),
        cut: cut.then_some((STEPS * Ledger::SCAN) as u64),
        pager,
        form,
    };
    page_as(status, &page)
}

/// Tenants with the text in their name, in each pool that they have something of, read step by step; and whether there
/// may be more of them, because enough was looked at.
pub async fn found(ipam: &Ipam, text: &str, steps: usize) -> (Vec<Tenancy>, bool) {
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
    use std::sync::Arc;

    use fipd_core::{Quota, Request, Tenant, testing};

    use super::*;

    #[tokio::test]
    async fn it_is_told_where_enough_was_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let (ipam, writer) = Ipam::start(dir.path(), Arc::new(crate::clock::now)).unwrap();
        let spec = testing::pool_spec("p", &["10.0.0.0/24"]);
        let create = testing::create_pool(spec);
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
        let (rows, cut) = found(&ipam, "", 1).await;
        assert_eq!((rows.len(), cut), (Ledger::SCAN, true));
        let (rows, cut) = found(&ipam, "", 2).await;
        assert_eq!((rows.len(), cut), (Ledger::SCAN + 1, false));
        let (rows, cut) = found(&ipam, "t-77", 2).await;
        assert_eq!((rows.len(), cut), (11, false));
        ipam.shutdown().await;
        writer.join();
    }
}
