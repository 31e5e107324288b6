//! `/api/v1/bulk`: many operations in one request. All are given to the writer at once and become durable together with few
//! writes to the disk; each is decided by itself.

use axum::Json;
use futures::future::join_all;
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;

use super::{lease_changes, leases, quotas};
use crate::api::{
    access::permit::Requester,
    convert,
    etag::IfMatch,
    extract::{Body, Path},
    problem::{Code, Problem},
    wire::{Bulk, BulkDone, BulkOperation, BulkResult},
};

const MOST: usize = 1_000;

/// Does many operations, each by itself: some may fail while others succeed. The answers come in the order of the operations.
/// Nothing is undone where one fails; asking again with all of them is free.
#[utoipa::path(post, path = "/api/v1/bulk", tag = "bulk", request_body = Bulk, responses((status = 200, body = BulkDone)))]
pub async fn bulk(requester: Requester, Body(body): Body<Bulk>) -> Result<Json<BulkDone>, Problem> {
    let count = body.operations.len();
    if !(1..=MOST).contains(&count) {
        let allowed = format!("1 to {MOST} operations");
        return Err(Problem::invalid("operations", count.to_string(), allowed));
    }
    let requester = &requester;
    let operations = body.operations.into_iter();
    let all = operations.map(|operation| async move {
        let (status, body, problem) = match perform(requester.clone(), operation).await {
            Ok((status, body)) => (status.as_u16(), body, None),
            Err(problem) => (problem.status, None, Some(problem)),
        };
        BulkResult {
            status,
            body,
            problem,
        }
    });
    let results = join_all(all).await;
    Ok(Json(BulkDone { results }))
}

type Done = Result<(StatusCode, Option<Value>), Problem>;

async fn perform(requester: Requester, operation: BulkOperation) -> Done {
    let all = IfMatch::default();
    match operation {
        BulkOperation::Allocate(body) => {
            let (status, Json(granted)) = leases::allocate(requester, Body(body)).await?;
            answer(status, &granted)
        }
        BulkOperation::Reserve(body) => {
            let (status, Json(granted)) = leases::reserve(requester, Body(body)).await?;
            answer(status, &granted)
        }
        BulkOperation::Release(body) => {
            let Json(released) = leases::release(requester, Body(body)).await?;
            answer(StatusCode::OK, &released)
        }
        BulkOperation::Transfer(body) => {
            let place = (&*body.network, &*body.address);
            let lease = lease_changes::hand(&requester, place, all, &body.transfer).await?;
            let view = requester
                .ipam
                .read(|ledger| convert::lease_view(ledger, &lease));
            answer(StatusCode::OK, &view)
        }
        BulkOperation::PutQuota(body) => {
            let of = (&*body.pool, &*body.tenant);
            let (_, view) = quotas::set(&requester, of, all, body.quota.limit).await?;
            answer(StatusCode::OK, &view)
        }
        BulkOperation::DeleteQuota(body) => {
            quotas::delete(requester, Path((body.pool, body.tenant)), all).await?;
            Ok((StatusCode::NO_CONTENT, None))
        }
    }
}

fn answer(status: StatusCode, body: &impl Serialize) -> Done {
    let body = serde_json::to_value(body);
    let body = body.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    Ok((status, Some(body)))
}
