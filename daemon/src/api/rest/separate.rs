//! `/api/v1/networks/{name}/separate/{other}`: two networks that nobody chose are two.

use axum::extract::State as Shared;
use fipd_core::Request;
use http::StatusCode;

use crate::api::{access::auth::Caller, extract::Path, problem::Problem};
use crate::ipam::Ipam;

/// Says that two networks are two: what pools of both may mean is given by both. Saying it again changes nothing.
#[utoipa::path(put, path = "/api/v1/networks/{name}/separate/{other}", tag = "networks",
    params(("name" = String, Path), ("other" = String, Path)),
    responses((status = 204), (status = 404, body = Problem), (status = 422, body = Problem)))]
pub async fn separate(
    Shared(ipam): Shared<Ipam>,
    caller: Caller,
    Path(networks): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    say(&ipam, &caller, networks, true).await
}

/// Takes it back: what pools of both may mean is given by neither again, and leases stay.
#[utoipa::path(delete, path = "/api/v1/networks/{name}/separate/{other}", tag = "networks",
    params(("name" = String, Path), ("other" = String, Path)),
    responses((status = 204), (status = 404, body = Problem), (status = 422, body = Problem)))]
pub async fn withdraw(
    Shared(ipam): Shared<Ipam>,
    caller: Caller,
    Path(networks): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    say(&ipam, &caller, networks, false).await
}

async fn say(
    ipam: &Ipam,
    caller: &Caller,
    (name, other): (String, String),
    apart: bool,
) -> Result<StatusCode, Problem> {
    let networks = ipam.read(|ledger| {
        let reach = caller.within(ledger);
        Ok::<_, Problem>((reach.network(&name)?.id, reach.network(&other)?.id))
    })?;
    let request = Request::Separate {
        networks,
        apart,
        actor: caller.actor.clone(),
    };
    caller.submit(ipam, request).await?;
    Ok(StatusCode::NO_CONTENT)
}
