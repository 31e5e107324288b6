//! `/api/v1/leases/{network}/{address}/labels`, and labels that a list of leases is filtered by.

use std::sync::Arc;

use axum::{extract::State as Shared, response::Response};
use fipd_core::{Answer, Label, LabelWanted, Labels, Ledger, Request};
use http::StatusCode;

use super::leases::{lease_text, state_of};
use crate::api::{
    access::auth::Caller,
    convert,
    etag::{IfMatch, State, tagged},
    extract::{Body, Path},
    problem::Problem,
    wire::{LabelRequest, LeaseView},
};
use crate::ipam::Ipam;

/// Changes labels of the lease of an address; asking again answers the same. They go when nobody holds it any more.
#[utoipa::path(patch, path = "/api/v1/leases/{network}/{address}/labels", tag = "leases",
    request_body = LabelRequest, params(("network" = String, Path), ("address" = String, Path),
        ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = LeaseView, headers(("ETag" = String))), (status = 404, body = Problem),
        (status = 412, body = Problem), (status = 422, body = Problem)))]
pub async fn label(
    Shared(ipam): Shared<Ipam>,
    caller: Caller,
    Path((network, address)): Path<(String, String)>,
    if_match: IfMatch,
    Body(body): Body<LabelRequest>,
) -> Result<Response, Problem> {
    let find = |ledger: &Ledger| caller.within(ledger).key(&network, &address);
    let key = ipam.read(find)?;
    let set = body.set.into_iter();
    let ask = Label {
        key,
        set: set.map(|(key, value)| (key.into(), value.into())).collect(),
        remove: body.remove.into_iter().map(Into::into).collect(),
        actor: Arc::clone(&caller.actor),
    };
    let guard = if_match.guard(lease_text(key), move |ledger| state_of(ledger, key));
    let answer = caller.submit_if(&ipam, Request::Label(ask), guard).await?;
    let Answer::Labelled { lease } = answer else {
        return Err(convert::unexpected(&answer));
    };
    let view = ipam.read(|ledger| convert::lease_view(ledger, &lease));
    Ok(tagged(StatusCode::OK, &State::of(&*lease), &view))
}

/// Filters such as `app` or `app=web`.
pub(in crate::api) fn wanted(
    texts: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<Vec<LabelWanted>, Problem> {
    let wanted = texts.into_iter().map(|text| {
        let text = text.as_ref();
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value.into())),
            None => (text, None),
        };
        if key.is_empty() {
            let allowed = "KEY or KEY=VALUE, such as app or app=web";
            return Err(Problem::invalid("label", text, allowed));
        }
        Ok((key.into(), value))
    });
    let wanted: Vec<LabelWanted> = wanted.collect::<Result<_, _>>()?;
    if wanted.len() > Labels::MAX {
        let allowed = format!("at most {}", Labels::MAX);
        return Err(Problem::invalid("label", wanted.len().to_string(), allowed));
    }
    Ok(wanted)
}
