//! What is done to the lease of an address: `/api/v1/leases/{network}/{address}/transfer`, `/labels` and `/probed`; and labels that
//! a list of leases is filtered by.

use std::sync::Arc;

use axum::{
    Json,
    response::{IntoResponse as _, Response},
};
use fipd_core::{
    Actor, Answer, Holder, Label, LabelWanted, Labels, Lease, LeaseKey, Ledger, ProbeVerdict,
    Probed, Refusal, Request, Tenant, Transfer,
};
use http::StatusCode;

use super::leases::{lease_text, state_of};
use crate::api::{
    access::permit::Requester,
    convert::{self, given},
    etag::{IfMatch, State, tagged},
    extract::{Body, Path},
    problem::Problem,
    wire::{LabelRequest, LeaseView, ProbedReport, TransferRequest},
};
use crate::ipam::{Ipam, IpamError};

/// Gives the lease of an address to another owner; it is never free in between. Asking again answers the same.
#[utoipa::path(post, path = "/api/v1/leases/{network}/{address}/transfer", tag = "leases", request_body = TransferRequest,
    params(("network" = String, Path), ("address" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = LeaseView, headers(("ETag" = String)))))]
pub async fn transfer(
    requester: Requester,
    Path((network, address)): Path<(String, String)>,
    if_match: IfMatch,
    Body(body): Body<TransferRequest>,
) -> Result<Response, Problem> {
    let lease = hand(&requester, (&network, &address), if_match, &body).await?;
    Ok(shown(&requester.ipam, &lease))
}

fn shown(ipam: &Ipam, lease: &Lease) -> Response {
    let view = ipam.read(|ledger| convert::lease_view(ledger, lease));
    tagged(StatusCode::OK, &State::of(lease), &view)
}

/// Transfers the lease of an address in a network.
pub(in crate::api) async fn hand(
    requester: &Requester,
    (network, address): (&str, &str),
    if_match: IfMatch,
    body: &TransferRequest,
) -> Result<Arc<Lease>, Problem> {
    let ask = requester.read(|visible| {
        let key = visible.key(network, address)?;
        to_transfer(visible.ledger, key, body, requester.actor())
    })?;
    let key = ask.key;
    let guard = if_match.guard(lease_text(key), move |ledger| state_of(ledger, key));
    let answer = requester.submit_if(Request::Transfer(ask), guard).await?;
    let Answer::Transferred { lease } = answer else {
        return Err(convert::unexpected(&answer));
    };
    Ok(lease)
}

fn to_transfer(
    ledger: &Ledger,
    key: LeaseKey,
    body: &TransferRequest,
    actor: Actor,
) -> Result<Transfer, Problem> {
    if body.reason.trim().is_empty() {
        let allowed = "a few words for the audit log";
        return Err(Problem::invalid("reason", &*body.reason, allowed));
    }
    let tenant = given(&body.tenant, |tenant| convert::text("tenant", tenant))?;
    let owner = |field: &str, text: &str| {
        convert::owner(ledger, text).map_err(|problem| problem.about(field, text))
    };
    let from = given(&body.from, |text| {
        let identity = owner("from", text)?;
        let instance = match body.from_instance.as_deref() {
            Some(instance) => convert::text("from_instance", instance)?,
            None => held_as(ledger, key, &identity),
        };
        Ok(Holder { identity, instance })
    })?;
    Ok(Transfer {
        key,
        from,
        to: Holder {
            identity: owner("to", &body.to)?,
            instance: convert::text("instance", &body.instance)?,
        },
        tenant: tenant.map(Tenant),
        force: body.force,
        actor,
        reason: convert::text("reason", &body.reason)?,
    })
}

/// The instance with which the identity holds the address; empty where it does not.
fn held_as(ledger: &Ledger, key: LeaseKey, identity: &fipd_core::Identity) -> fipd_core::Text {
    let members = ledger.lease(key.canonical());
    let mut members = members.into_iter().flat_map(|lease| &lease.members);
    members
        .find(|member| member.holder.identity == *identity)
        .map_or_else(|| "".into(), |member| Arc::clone(&member.holder.instance))
}

/// Changes labels of the lease of an address; asking again answers the same. They go when nobody holds it any more.
#[utoipa::path(patch, path = "/api/v1/leases/{network}/{address}/labels", tag = "leases", request_body = LabelRequest,
    params(("network" = String, Path), ("address" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = LeaseView, headers(("ETag" = String)))))]
pub async fn label(
    requester: Requester,
    Path((network, address)): Path<(String, String)>,
    if_match: IfMatch,
    Body(body): Body<LabelRequest>,
) -> Result<Response, Problem> {
    let key = requester.read(|visible| visible.key(&network, &address))?;
    let set = body.set.into_iter();
    let ask = Label {
        key,
        set: set.map(|(key, value)| (key.into(), value.into())).collect(),
        remove: body.remove.into_iter().map(Into::into).collect(),
        actor: requester.actor(),
    };
    let guard = if_match.guard(lease_text(key), move |ledger| state_of(ledger, key));
    let answer = requester.submit_if(Request::Label(ask), guard).await?;
    let Answer::Labelled { lease } = answer else {
        return Err(convert::unexpected(&answer));
    };
    Ok(shown(&requester.ipam, &lease))
}

/// Filters such as `app` or `app=web`.
pub(in crate::api) fn wanted_labels(
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

/// Reports what the check of an address with state `probing` has come to. Reporting the same again changes nothing. An address
/// that nobody answered for and that another was found using all the same is refused (409) and becomes that other's. Answers
/// the lease of the address as it is then; nothing (204) where it has left the scope of who asks, as an address that is taken
/// is no tenant's.
#[utoipa::path(post, path = "/api/v1/leases/{network}/{address}/probed", tag = "leases", request_body = ProbedReport,
    params(("network" = String, Path), ("address" = String, Path)),
    responses((status = 200, body = LeaseView), (status = 204)))]
pub async fn probed(
    requester: Requester,
    Path((network, address)): Path<(String, String)>,
    Body(body): Body<ProbedReport>,
) -> Result<Response, Problem> {
    let report = requester.read(|visible| {
        let key = visible.key(&network, &address)?;
        report(visible.ledger, key, &body, requester.actor())
    })?;
    let (key, free) = (report.key.canonical(), report.verdict == ProbeVerdict::Free);
    let answer = requester.submit(Request::Probed(report)).await?;
    if free && matches!(answer, Answer::Released { .. }) {
        let why = "another was found using it and has it now; ask for an address again".to_owned();
        let address = key.address;
        return Err(IpamError::from(Refusal::NotProbed { address, why }).into());
    }
    let view = requester.read(|visible| {
        let lease = visible.lease(key)?;
        Some(convert::lease_view(visible.ledger, lease))
    });
    Ok(match view {
        Some(view) => Json(view).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

fn report(
    ledger: &Ledger,
    key: LeaseKey,
    body: &ProbedReport,
    actor: Actor,
) -> Result<Probed, Problem> {
    let verdict = match (body.verdict.as_str(), body.by.as_deref()) {
        ("taken", by) => ProbeVerdict::Taken {
            by: convert::text("by", by.unwrap_or_default())?,
        },
        ("free", None) => ProbeVerdict::Free,
        ("free", Some(by)) => {
            let allowed = "nothing where the address is free";
            return Err(Problem::invalid("by", by, allowed));
        }
        (other, _) => return Err(Problem::invalid("verdict", other, "free or taken")),
    };
    Ok(Probed {
        key,
        identity: convert::owner(ledger, &body.owner)?,
        verdict,
        actor,
    })
}

#[cfg(test)]
mod tests {
    use fipd_core::{Adopt, Allocate, Holder, NetworkId, PoolId, Timestamp, testing};

    use super::*;
    use crate::api::{problem::Code, rest::export::tests::root, ui::tests::Site};

    fn holder(name: &str) -> Holder {
        testing::holder(format!("fipd/Host/lab/{name}"), "")
    }

    #[tokio::test]
    async fn nobody_is_told_that_an_address_is_free_which_another_was_found_using() {
        let site = Site::new().await;
        let address = "10.0.0.9".parse().unwrap();
        let asked = site.api.ipam.submit(Request::Allocate(Allocate {
            probe: true,
            ..testing::allocate(holder("a"), [testing::want(PoolId(1), Some(address))])
        }));
        asked.await.unwrap();
        let network = NetworkId::DEFAULT;
        let found = site.api.ipam.submit(Request::Adopt(Adopt {
            length: None,
            key: LeaseKey { network, address },
            holder: holder("b"),
            tenant: None,
            since: Timestamp(1),
            actor: "test".into(),
        }));
        found.await.unwrap();
        for _ in 0..2 {
            let report = ProbedReport {
                owner: "fipd/Host/lab/a".to_owned(),
                verdict: "free".to_owned(),
                by: None,
            };
            let path = Path(("default".to_owned(), address.to_string()));
            let answer = probed(root(&site), path, Body(report)).await;
            assert_eq!(
                answer.err().map(|problem| problem.code),
                Some(Code::Conflict)
            );
        }
    }
}
