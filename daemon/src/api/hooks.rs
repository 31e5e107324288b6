//! Where other programs ask before they go on: `/hooks/CLUSTER/...`, for CLUSTER as it is configured.
//!
//! There is no login: nothing is written or decided, and an answer says nothing but what is in the question and whether somebody
//! asked the same for long. Size, rate and time have limits.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Json,
    body::to_bytes,
    extract::{ConnectInfo, Path, Request, State},
    response::{IntoResponse as _, Response},
};

use super::{
    access::{Access, Routes},
    admission::Desk,
    problem::{Code, Problem},
};
use crate::system::RunningSystems;

/// The largest question: far more than a Cluster, and some 250 pools that an API server has converted.
const MOST: usize = 512 * 1024;

/// The calls, for any listener.
pub fn routes(routes: Routes) -> Routes {
    routes.post("/hooks/{cluster}/{*hook}", Access::Own, answer)
}

async fn answer(
    State(desk): State<Arc<Desk>>,
    State(running): State<RunningSystems>,
    Path((cluster, hook)): Path<(String, String)>,
    request: Request,
) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    if let Some(ConnectInfo(peer)) = peer
        && !desk.takes(peer.ip())
    {
        let problem = Problem::new(Code::Busy, "more questions than fipd answers; ask later");
        return problem.into_response();
    }
    let path = request.uri().path().to_owned();
    // One that is cut short or too large is answered as nonsense is.
    let body = to_bytes(request.into_body(), MOST)
        .await
        .unwrap_or_default();
    match running.hook(&cluster, &hook, &body) {
        Some(answer) => Json(answer).into_response(),
        None => Problem::not_found("such hook:", &path).into_response(),
    }
}
