//! `/api/v1/leases/{network}/{address}/probed`.

use axum::{
    Json,
    extract::State as Shared,
    response::{IntoResponse as _, Response},
};
use fipd_core::{Answer, LeaseKey, Ledger, ProbeVerdict, Probed, Refusal, Request};
use http::StatusCode;

use crate::api::{
    access::auth::Caller,
    convert,
    extract::{Body, Path},
    problem::Problem,
    wire::{LeaseView, ProbedReport},
};
use crate::ipam::{Ipam, IpamError};

/// Reports what the check of an address with state `probing` has come to. Reporting the same again changes nothing. An address
/// that nobody answered for and that another was found using all the same is refused (409) and becomes that other's. Answers
/// the lease of the address as it is then; nothing (204) where it has left the scope of who asks, as an address that is taken
/// is no tenant's.
#[utoipa::path(post, path = "/api/v1/leases/{network}/{address}/probed", tag = "leases",
    request_body = ProbedReport, params(("network" = String, Path), ("address" = String, Path)),
    responses((status = 200, body = LeaseView), (status = 204), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
pub async fn probed(
    Shared(ipam): Shared<Ipam>,
    caller: Caller,
    Path((network, address)): Path<(String, String)>,
    Body(body): Body<ProbedReport>,
) -> Result<Response, Problem> {
    let report = ipam.read(|ledger| {
        let key = caller.within(ledger).key(&network, &address)?;
        report(ledger, key, &body, &caller)
    })?;
    let (key, free) = (report.key.canonical(), report.verdict == ProbeVerdict::Free);
    let answer = caller.submit(&ipam, Request::Probed(report)).await?;
    if free && matches!(answer, Answer::Released { .. }) {
        let why = "another was found using it and has it now; ask for an address again".to_owned();
        let address = key.address;
        return Err(IpamError::from(Refusal::NotProbed { address, why }).into());
    }
    let view = ipam.read(|ledger| {
        let lease = caller.within(ledger).lease(key)?;
        Some(convert::lease_view(ledger, lease))
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
    caller: &Caller,
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
        actor: caller.actor.clone(),
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
            let answer = probed(Shared(site.api.ipam.clone()), root(), path, Body(report)).await;
            assert_eq!(
                answer.err().map(|problem| problem.code),
                Some(Code::Conflict)
            );
        }
    }
}
