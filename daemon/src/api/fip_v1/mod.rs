//! The REST API that the stock LB controller speaks, with and without the prefix `/v1`, and `GET /ipam` of the original
//! manager.
//!
//! ```text
//!  rate of the peer --> token --> body --> project, secret, cluster --> rate of the project --> decision
//!                                                  `-- no --> rate of guesses
//! ```
//!
//! HTTP is here; what is asked goes to [`FloatingIps`], which the daemon's wiring brings. The token is given to everybody
//! and grants nothing.

pub(crate) mod body;
pub(crate) mod jwt;
pub(super) mod limiter;
#[cfg(test)]
mod tests;
mod tokens;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json,
    body::to_bytes,
    extract::{ConnectInfo, Request, State},
    response::{IntoResponse as _, Response},
};
use fipd_core::{Actor, words};
use http::{HeaderMap, StatusCode, header};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    access::{Access, Routes},
    body::is_too_large,
};
use crate::{
    clock, config,
    fip_v1::{Asker, Denied, FloatingIps},
    ipam::Ipam,
    metrics::Metrics,
};
use body::{Fields, invalid};
use limiter::{Limiter, Rate, Whom};
pub use tokens::TokenError;
use tokens::Tokens;

/// For the whole of a call: the client gives up after 10 s.
const DEADLINE: Duration = Duration::from_secs(8);
/// The largest body.
const MOST: usize = 64 * 1024;
/// The longest name of a client.
const CLIENT: usize = 253;

/// What the API works with.
pub struct FipV1 {
    decides: Option<Box<dyn FloatingIps>>,
    tokens: Arc<Tokens>,
    limiter: Limiter,
    rate: Rate,
    peer_rate: Rate,
    guesses: Limiter,
}

words! {
    /// What is called.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    enum Call {
        Token = "auth/token",
        Request = "fip/request",
        Release = "fip/release",
        Delete = "fip/delete",
        List = "fip/list",
    }
}

/// Who asked for what, for the log.
#[derive(Default)]
struct Trail {
    client: String,
    project: String,
    service: String,
    address: String,
}

impl FipV1 {
    pub fn new(decides: Option<Box<dyn FloatingIps>>, ipam: Ipam, limits: config::FipV1) -> Self {
        Self {
            decides,
            tokens: Tokens::new(ipam),
            limiter: Limiter::default(),
            rate: Rate {
                per_second: limits.rate_limit_per_second.into(),
                burst: limits.rate_limit_burst.into(),
            },
            peer_rate: Rate {
                per_second: limits.peer_rate_limit_per_second.into(),
                burst: limits.peer_rate_limit_burst.into(),
            },
            guesses: Limiter::default(),
        }
    }

    fn decides(&self) -> Result<&dyn FloatingIps, Denied> {
        let nobody = || {
            let message = "floating IPs are not served here";
            Denied::new(StatusCode::SERVICE_UNAVAILABLE, message)
        };
        self.decides.as_deref().ok_or_else(nobody)
    }

    /// In how many management clusters nothing is decided here.
    pub fn not_leading(&self) -> usize {
        self.decides.as_ref().map_or(0, |one| one.not_leading())
    }

    /// Another key signs tokens from now on.
    ///
    /// # Errors
    /// It could not be made or written.
    pub async fn rotate_key(&self, actor: Actor) -> Result<u64, TokenError> {
        self.tokens.rotate(actor).await.map(|id| id.0)
    }
}

/// The calls, for any listener.
pub fn routes(mut routes: Routes) -> Routes {
    for prefix in ["", "/v1"] {
        let path = |call: Call| format!("{prefix}/{call}");
        let answer = |call: Call| {
            move |State(fip_v1): State<Arc<FipV1>>,
                  State(metrics): State<Metrics>,
                  request: Request| answer(fip_v1, metrics, call, request)
        };
        routes = routes
            .post(&path(Call::Token), Access::Own, answer(Call::Token))
            .post(&path(Call::Request), Access::Own, answer(Call::Request))
            .post(&path(Call::Release), Access::Own, answer(Call::Release))
            .delete(&path(Call::Delete), Access::Own, answer(Call::Delete))
            .post(&path(Call::List), Access::Own, answer(Call::List));
    }
    routes
}

/// `GET /ipam`, which tells every used address to whoever asks.
pub fn ipam(routes: Routes) -> Routes {
    routes.get("/ipam", Access::Open, figures)
}

async fn figures(State(fip_v1): State<Arc<FipV1>>) -> Response {
    match fip_v1.decides().and_then(|one| one.figures()) {
        Ok(figures) => Json(figures).into_response(),
        Err(denied) => refused(denied),
    }
}

/// Answers a call, counts it and leaves a trace of it, also when the client has gone.
async fn answer(fip_v1: Arc<FipV1>, metrics: Metrics, call: Call, request: Request) -> Response {
    let answered = tokio::spawn(async move { traced(&fip_v1, &metrics, call, request).await });
    answered.await.unwrap_or_else(|error| {
        tracing::error!(%error, call = call.as_str(), "a call of an LB controller was not answered");
        refused(Denied::late())
    })
}

async fn traced(fip_v1: &FipV1, metrics: &Metrics, call: Call, request: Request) -> Response {
    let began = Instant::now();
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let peer = peer.map(|ConnectInfo(peer)| peer.ip().to_canonical());
    let mut trail = Trail::default();
    let said = fip_v1.in_time(call, peer, request, &mut trail).await;
    let code = match &said {
        Ok(_) => StatusCode::OK,
        Err(denied) => denied.code,
    };
    metrics.fip_v1(call.as_str(), code, began.elapsed());
    let why = said.as_ref().err().map(|denied| &*denied.message);
    tracing::info!(
        call = call.as_str(),
        code = code.as_u16(),
        why,
        peer = peer.map(tracing::field::display),
        client = trail.client,
        project = trail.project,
        service = trail.service,
        address = trail.address,
        "an LB controller asked"
    );
    match said {
        Ok(body) => Json(body).into_response(),
        Err(denied) => refused(denied),
    }
}

fn refused(Denied { code, message }: Denied) -> Response {
    let body = json!({ "code": code.as_u16(), "message": message });
    (code, Json(body)).into_response()
}

impl FipV1 {
    /// What was done by the deadline stays done, and is found when the client asks again.
    async fn in_time(
        &self,
        call: Call,
        peer: Option<IpAddr>,
        request: Request,
        trail: &mut Trail,
    ) -> Result<Value, Denied> {
        let said = self.say(call, peer, request, trail);
        let said = tokio::time::timeout(DEADLINE, said).await;
        said.unwrap_or_else(|_| Err(Denied::late()))
    }

    async fn say(
        &self,
        call: Call,
        peer: Option<IpAddr>,
        request: Request,
        trail: &mut Trail,
    ) -> Result<Value, Denied> {
        let whom = peer.map(Whom::peer);
        if let Some(whom) = &whom {
            self.within(whom.clone(), self.peer_rate)?;
        }
        if call == Call::Token {
            let fields = read(request).await?;
            return self.token(&fields, trail).await;
        }
        trail.client = self.client(request.headers())?;
        let fields = read(request).await?;
        trail.project = fields.text("project").to_owned();
        trail.address = fields.text("ipaddr").to_owned();
        trail.service = format!(
            "{}/{}",
            fields.text("servicenamespace"),
            fields.text("servicename")
        );
        let claim = fields.claim(trail.client.clone(), call != Call::Delete);
        let authorized = self.decides()?.authorize(&claim);
        let asker = self.guesses.watch(peer, &claim, authorized).await?;
        if let Some(whom) = &whom {
            // The project is charged, however many of its clusters are behind one address.
            self.limiter.give_back(whom, self.peer_rate, Instant::now());
        }
        self.within(Whom::Project(asker.project.clone()), self.rate)?;
        self.decide(call, asker, &fields, trail).await
    }

    async fn token(&self, fields: &Fields, trail: &mut Trail) -> Result<Value, Denied> {
        let client = fields.text("clientid");
        if client.is_empty() {
            let message = "clientID is required";
            return Err(Denied::new(StatusCode::BAD_REQUEST, message));
        }
        if client.len() > CLIENT {
            let why = format!(": clientID is longer than {CLIENT} bytes");
            return Err(invalid(&why));
        }
        trail.client = client.to_owned();
        let issued = self.tokens.issue(client).await.map_err(|error| {
            tracing::error!(%error, "no token could be given to an LB controller");
            let message = "Failed to generate token";
            Denied::new(StatusCode::INTERNAL_SERVER_ERROR, message)
        });
        let (token, end) = issued?;
        Ok(json!({ "token": token, "expires_at": clock::rfc3339(end) }))
    }

    /// To whom the token was given.
    fn client(&self, headers: &HeaderMap) -> Result<String, Denied> {
        let denied = |message| Denied::new(StatusCode::UNAUTHORIZED, message);
        let value = headers
            .get(header::AUTHORIZATION)
            .ok_or_else(|| denied("Authorization header is required"))?;
        let token = value.to_str().ok().and_then(|text| text.split_once(' '));
        match token {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => self
                .tokens
                .client(token.trim())
                .ok_or_else(|| denied("Invalid token")),
            Some(_) | None => Err(denied("Authorization header must be Bearer <token>")),
        }
    }

    async fn decide(
        &self,
        call: Call,
        asker: Asker,
        fields: &Fields,
        trail: &mut Trail,
    ) -> Result<Value, Denied> {
        let decides = self.decides()?;
        match call {
            Call::Request => {
                let given = decides.request(asker, fields.wish()?).await?;
                trail.address = given.address.to_string();
                let mut answer = json!({
                    "status": "approved", "ipaddr": trail.address, "subnet": given.subnet,
                    "clientsecret": fields.secret(),
                });
                for key in [
                    "cluster",
                    "project",
                    "floatingippool",
                    "servicenamespace",
                    "servicename",
                ] {
                    answer[key] = json!(fields.text(key));
                }
                if let Some(group) = given.group {
                    answer["floatingipgroup"] = json!(group);
                }
                if let Some(key) = given.shared_key {
                    answer["sharedkey"] = json!(key);
                }
                Ok(answer)
            }
            Call::Release => {
                decides.release(asker, fields.fip_release()?).await?;
                Ok(done("released", "Floating IP released successfully"))
            }
            Call::Delete => {
                decides.delete(asker, fields.deleted()?).await?;
                Ok(done("deleted", "Floating IP deleted successfully"))
            }
            Call::List => {
                let mut answer = json!({
                    "clientsecret": fields.secret(), "cluster": asker.cluster,
                    "project": asker.project,
                });
                // An empty list of Go is `null`.
                let rows = decides.list(asker).await?;
                answer["floatingips"] = json!(Some(rows).filter(|rows| !rows.is_empty()));
                Ok(answer)
            }
            Call::Token => self.token(fields, trail).await,
        }
    }

    fn within(&self, whom: Whom, rate: Rate) -> Result<(), Denied> {
        if self.limiter.take(whom, rate, Instant::now()) {
            Ok(())
        } else {
            Err(too_many())
        }
    }
}

fn too_many() -> Denied {
    let code = StatusCode::TOO_MANY_REQUESTS;
    Denied::new(code, "rate limit exceeded")
}

fn done(status: &str, message: &str) -> Value {
    json!({ "status": status, "message": message })
}

async fn read(request: Request) -> Result<Fields, Denied> {
    let body = to_bytes(request.into_body(), MOST).await;
    let body = body.map_err(|error| match is_too_large(&error) {
        true => Denied::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the request is larger than {MOST} bytes"),
        ),
        false => invalid(""),
    });
    Fields::read(&body?)
}
