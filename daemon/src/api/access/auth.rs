//! Who is asking: peers of the Unix socket, bearer tokens, sessions of the web UI.
//!
//! Authentication happens once, in [`authenticate`], before any handler; handlers only read the [`Caller`].

use std::{net::SocketAddr, sync::Arc};

use axum::{
    extract::{
        ConnectInfo, FromRequestParts, MatchedPath, Request, State, connect_info::Connected,
    },
    middleware::Next,
    response::{IntoResponse as _, Response},
    serve::IncomingStream,
};
use fipd_core::{Actor, Role, Scope, TokenId};
use http::{HeaderMap, Method, StatusCode, header, request::Parts};

use crate::api::{
    Api,
    access::{Access, AccessTable},
    listen::UntilStop,
    problem::{Code, Problem},
    rest::tokens,
    ui,
};

/// The authenticated asker of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// As the audit log names it: `socket:UID`, `token:NAME`, `user:NAME`.
    pub actor: Actor,
    pub role: Role,
    pub via: Via,
    /// All of the address book, but for some tokens.
    pub scope: Arc<Scope>,
}

/// How the caller was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    Socket,
    Token(TokenId),
    Session,
}

/// The process at the other end of the Unix socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketPeer {
    /// `None` where the kernel does not say.
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

/// Who may use the Unix socket: uid 0, the daemon's own uid, and members of the socket's group (whom the file's
/// mode lets through at all).
#[derive(Clone, Copy, Debug)]
pub struct SocketPolicy {
    pub own_uid: u32,
    pub socket_gid: u32,
}

impl Connected<IncomingStream<'_, UntilStop>> for SocketPeer {
    fn connect_info(stream: IncomingStream<'_, UntilStop>) -> Self {
        let cred = stream.io().peer_cred().ok();
        Self {
            uid: cred.map(|cred| cred.uid()),
            gid: cred.map(|cred| cred.gid()),
        }
    }
}

impl SocketPolicy {
    /// The caller behind a peer; `None` for strangers.
    pub fn caller(&self, peer: SocketPeer) -> Option<Caller> {
        let uid = peer.uid?;
        let known = uid == 0
            || uid == self.own_uid
            || peer.gid == Some(self.socket_gid)
            || member_of(uid, self.socket_gid);
        known.then(|| Caller {
            actor: format!("socket:{uid}").into(),
            role: Role::Admin,
            via: Via::Socket,
            scope: Arc::default(),
        })
    }
}

/// Whether the group database lists the user in the group.
fn member_of(uid: u32, gid: u32) -> bool {
    let user = nix::unistd::User::from_uid(uid.into());
    let group = nix::unistd::Group::from_gid(gid.into());
    match (user, group) {
        (Ok(Some(user)), Ok(Some(group))) => group.mem.contains(&user.name),
        (Ok(_), Ok(_)) | (Err(_), _) | (_, Err(_)) => false,
    }
}

/// State of the authenticating middleware.
#[derive(Clone)]
pub struct Guard {
    /// `None`: only peers of the socket are known.
    pub api: Option<Api>,
    pub table: Arc<AccessTable>,
    pub socket: SocketPolicy,
}

/// Finds the caller, holds the request against the access table, and hands it on.
pub async fn authenticate(
    State(guard): State<Guard>,
    mut request: Request,
    next: Next,
) -> Response {
    let pattern = request
        .extensions()
        .get::<MatchedPath>()
        .map(|path| path.as_str().to_owned());
    let Some(pattern) = pattern else {
        return next.run(request).await;
    };
    let Some(access) = guard.table.get(request.method(), &pattern) else {
        let allow = [(header::ALLOW, guard.table.allowed(&pattern))];
        return (StatusCode::METHOD_NOT_ALLOWED, allow).into_response();
    };
    let caller = match find_caller(&guard, &request, access) {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    let refused = match (&caller, access) {
        (_, Access::Open | Access::Own) => None,
        // A page for people says which role it needs.
        (Some(caller), Access::Page(needed)) if caller.role < needed => {
            return match &guard.api {
                Some(api) => ui::forbidden(api, request, needed).await,
                None => StatusCode::FORBIDDEN.into_response(),
            };
        }
        (Some(caller), _) => caller.may(access).err(),
        (None, Access::Page(_)) => return ui::to_login(request),
        (None, Access::Api(_) | Access::Scoped(_) | Access::Pooled(_)) => {
            let detail = "send a bearer token (made by `fipd token create`) or use the Unix socket";
            Some(Problem::new(Code::Unauthenticated, detail))
        }
    };
    if let Some(problem) = refused {
        return problem.into_response();
    }
    if let Some(caller) = caller {
        request.extensions_mut().insert(caller);
    }
    next.run(request).await
}

/// A credential that is present and wrong is an error even where none is needed. Pages are for sessions alone, whatever else
/// comes along.
fn find_caller(
    guard: &Guard,
    request: &Request,
    access: Access,
) -> Result<Option<Caller>, Problem> {
    let sessions = guard.api.as_ref().map(|api| &api.sessions);
    let by_session = |headers| sessions.and_then(|sessions| sessions.caller(headers));
    if matches!(access, Access::Page(_)) {
        return Ok(by_session(request.headers()));
    }
    if let Some(ConnectInfo(peer)) = request.extensions().get::<ConnectInfo<SocketPeer>>() {
        return guard.socket.caller(*peer).map(Some).ok_or_else(|| {
            let detail =
                "only root, fipd's own user and members of the socket's group may use this socket";
            Problem::new(Code::Forbidden, detail)
        });
    }
    if let Some(api) = &guard.api
        && request.headers().contains_key(header::AUTHORIZATION)
    {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
        let peer = peer.map(|ConnectInfo(peer)| peer.ip().to_canonical());
        let text = bearer(request.headers());
        return tokens::caller(&api.ipam, &api.tokens_used, text.unwrap_or_default(), peer)
            .map(Some);
    }
    let safe = matches!(*request.method(), Method::GET | Method::HEAD);
    let cookie_counts = match access {
        Access::Open | Access::Own | Access::Page(_) => true,
        Access::Api(_) | Access::Scoped(_) | Access::Pooled(_) => safe,
    };
    Ok(if cookie_counts {
        by_session(request.headers())
    } else {
        None
    })
}

impl Caller {
    /// Whether what has this access is for the caller.
    pub fn may(&self, access: Access) -> Result<(), Problem> {
        let (needed, in_scope) = match access {
            Access::Open | Access::Own => return Ok(()),
            Access::Api(role) | Access::Page(role) => (role, self.scope.is_all()),
            Access::Scoped(role) => (role, true),
            Access::Pooled(role) => (role, self.scope.tenants.is_empty()),
        };
        let actor = &self.actor;
        if !in_scope {
            let detail = format!("{actor} has a scope that this is beyond");
            return Err(Problem::new(Code::Forbidden, detail));
        }
        if self.role < needed {
            let (needed, has) = (needed.as_str(), self.role.as_str());
            let detail = format!("this needs the role {needed}, {actor} has {has}");
            return Err(Problem::new(Code::Forbidden, detail));
        }
        Ok(())
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| Problem::new(Code::Unauthenticated, "sign in first"))
    }
}

#[cfg(test)]
mod tests {
    use axum::{Router, body::Body, middleware, routing::any};
    use tower::ServiceExt as _;

    use super::*;
    use crate::api::{access::Routes, sample::Site};

    #[tokio::test]
    async fn what_is_not_in_the_table_gets_to_no_handler() {
        let site = Site::new().await;
        let routes = Routes::<Api>::default().get("/known", Access::Open, async || "in");
        let guard = Guard {
            api: Some(site.api.clone()),
            table: Arc::new(routes.finish().1),
            socket: SocketPolicy {
                own_uid: 1,
                socket_gid: 1,
            },
        };
        let router: Router = Router::new()
            .route("/known", any(async || "in"))
            .route("/other", any(async || "in"))
            .layer(middleware::from_fn_with_state(guard, authenticate));
        let ask = async |method: &str, path: &str| {
            let request = http::Request::builder().method(method).uri(path);
            let request = request.body(Body::empty()).unwrap();
            router.clone().oneshot(request).await.unwrap()
        };
        for method in ["GET", "HEAD"] {
            assert_eq!(ask(method, "/known").await.status(), StatusCode::OK);
        }
        for (method, path, allow) in [
            ("POST", "/known", "GET,HEAD"),
            ("OPTIONS", "/known", "GET,HEAD"),
            ("BREW", "/known", "GET,HEAD"),
            ("GET", "/other", ""),
        ] {
            let answer = ask(method, path).await;
            let status = answer.status();
            assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
            assert_eq!(answer.headers()[header::ALLOW], allow, "{method} {path}");
        }
    }

    #[test]
    fn strangers_at_the_socket_are_nobody() {
        let policy = SocketPolicy {
            own_uid: 900,
            socket_gid: 900,
        };
        let caller = |uid, gid| {
            policy.caller(SocketPeer {
                uid: Some(uid),
                gid: Some(gid),
            })
        };
        assert_eq!(caller(0, 0).unwrap().actor.as_ref(), "socket:0");
        assert_eq!(caller(900, 5).unwrap().role, Role::Admin);
        assert!(caller(4_000_001, 900).is_some());
        assert!(caller(4_000_001, 4_000_001).is_none());
        assert!(
            policy
                .caller(SocketPeer {
                    uid: None,
                    gid: None
                })
                .is_none()
        );
    }

    #[test]
    fn bearer_tokens_are_taken_from_the_header() {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, "bearer fipd_1_x".parse().unwrap());
        assert_eq!(bearer(&headers), Some("fipd_1_x"));
        headers.insert(header::AUTHORIZATION, "Basic abc".parse().unwrap());
        assert_eq!(bearer(&headers), None);
    }
}
