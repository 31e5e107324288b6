//! `/api/v1/networks/{name}/separate/{other}`: two networks that nobody chose are two.

use fipd_core::Request;
use http::StatusCode;

use crate::api::{access::permit::Requester, extract::Path, problem::Problem};

/// Says that two networks are two: what pools of both may mean is given by both. Saying it again changes nothing.
#[utoipa::path(put, path = "/api/v1/networks/{name}/separate/{other}", tag = "networks",
    params(("name" = String, Path), ("other" = String, Path)), responses((status = 204)))]
pub async fn separate(
    requester: Requester,
    Path(networks): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    say(&requester, networks, true).await
}

/// Takes it back: what pools of both may mean is given by neither again, and leases stay.
#[utoipa::path(delete, path = "/api/v1/networks/{name}/separate/{other}", tag = "networks",
    params(("name" = String, Path), ("other" = String, Path)), responses((status = 204)))]
pub async fn withdraw(
    requester: Requester,
    Path(networks): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    say(&requester, networks, false).await
}

async fn say(
    requester: &Requester,
    (name, other): (String, String),
    apart: bool,
) -> Result<StatusCode, Problem> {
    let networks = requester.read(|visible| {
        Ok::<_, Problem>((visible.network(&name)?.id, visible.network(&other)?.id))
    })?;
    let request = Request::Separate {
        networks,
        apart,
        actor: requester.actor(),
    };
    requester.submit(request).await?;
    Ok(StatusCode::NO_CONTENT)
}
