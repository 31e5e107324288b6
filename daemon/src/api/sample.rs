//! A daemon without listeners and clusters: what requests are put to in tests and by fuzzing.

#![allow(clippy::unwrap_used, reason = "nothing runs on it but tests")]

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Body, extract::ConnectInfo};
use fipd_core::{PoolSpec, Role};
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use super::{
    Api, ApiParts,
    admission::Desk,
    fip_v1::FipV1,
    rest::attach::Detacher,
    router,
    ui::{Sessions, sessions},
};
use crate::{
    api::access::{
        accounts::Accounts,
        auth::{SocketPeer, SocketPolicy},
    },
    backups::{Backups, Schedule},
    clock,
    clusters::{self, Clusters},
    config::Systems,
    ipam::Ipam,
    metrics::Metrics,
    oidc::Oidc,
    rules::RuleBoard,
    system::{System, testing::means},
    systems::{self, Runner},
};

pub const PASSWORD: &str = "a long password";

/// Where they sign in from.
pub fn origin() -> sessions::Origin {
    sessions::Origin::new([127, 0, 0, 1].into(), &HeaderMap::new())
}

/// An address book with the pool `dmz`, and no clusters.
async fn book(
    (known, systems): (Systems, &'static [&'static dyn System]),
    dir: &Path,
    clock: clock::Clock,
    stop: &CancellationToken,
) -> (Ipam, Clusters, Runner) {
    let (ipam, _writer) = Ipam::start(dir, clock).unwrap();
    let options = clusters::ClustersOptions {
        config: crate::config::Config::without_file(known),
        data_dir: Some(dir.to_owned()),
        ..clusters::ClustersOptions::default()
    };
    let runner = Runner::of(systems, &means(&ipam));
    let running = Arc::new(runner.clone());
    let started = Clusters::start(options, ipam.clone(), running, stop.clone());
    let (clusters, _registry) = started.await.unwrap();
    let spec = PoolSpec::own("dmz", vec!["10.0.0.0/24".parse().unwrap()]);
    let create = fipd_core::Request::CreatePool {
        spec,
        actor: "test".into(),
    };
    ipam.submit(create).await.unwrap();
    (ipam, clusters, runner)
}

pub struct Site {
    pub(in crate::api) api: Api,
    pub(in crate::api) router: Router,
    /// Of [`Site::sign_in`]: the cookie, and the token of forms.
    session: Mutex<(HeaderMap, String)>,
    _dir: tempfile::TempDir,
}

impl Site {
    /// With a pool `dmz` and the accounts `viewer` and `operator`.
    pub async fn new() -> Self {
        Self::with(Oidc::default()).await
    }

    /// The same, where people sign in by a provider as well.
    pub async fn with(oidc: Oidc) -> Self {
        Self::at(oidc, Arc::new(clock::now)).await
    }

    /// The same, at the time of a clock.
    pub(in crate::api) async fn at(oidc: Oidc, clock: clock::Clock) -> Self {
        Self::of((*systems::SYSTEMS, systems::ALL), oidc, clock).await
    }

    /// The same with these systems.
    pub(crate) async fn of(
        (known, systems): (Systems, &'static [&'static dyn System]),
        oidc: Oidc,
        clock: clock::Clock,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let (ipam, clusters, runner) = book((known, systems), dir.path(), clock, &stop).await;
        let accounts = Accounts::start(ipam.clone(), dir.path()).await.unwrap();
        let schedule = Schedule::new(&crate::config::Backup::default(), dir.path());
        let backups = Backups::new(ipam.clone(), schedule);
        let rules = RuleBoard::default();
        let detacher = Detacher::new(clusters.clone(), Default::default(), systems, "fipd".into());
        let api = Api::from(ApiParts {
            detacher,
            metrics: Metrics::new(
                ipam.clone(),
                clusters.clone(),
                (backups.clone(), Default::default()),
                Default::default(),
                &runner.originals(),
                None,
                rules.clone(),
            ),
            guests: Default::default(),
            helm: None,
            backups,
            reload: crate::reload::pair().0,
            admission: Arc::new(Desk::new(runner.admission())),
            fip_v1: Arc::new(FipV1::new(
                runner.floating_ips(),
                ipam.clone(),
                crate::config::FipV1::default(),
            )),
            takeovers: runner.takeovers(),
            running: runner.running(),
            known,
            rules,
            webhooks: Default::default(),
            oidc,
            flow: Default::default(),
            nodes: Default::default(),
            settings: Default::default(),
            certificate: tokio::sync::watch::channel(None).1,
            sessions: Arc::new(Sessions::new(ipam.clone())),
            ipam,
            clusters,
            accounts,
            streams: Default::default(),
            tokens_used: Arc::default(),
            data_dir: dir.path().to_owned(),
            checking: Arc::new(tokio::sync::Semaphore::new(1)),
            liveness: crate::liveness::Liveness::default(),
            stop,
        });
        let router = router(
            api.clone(),
            SocketPolicy {
                own_uid: 1,
                socket_gid: 1,
            },
        );
        let site = Self {
            api,
            router,
            session: Mutex::default(),
            _dir: dir,
        };
        site.account("viewer", Role::Viewer, PASSWORD).await;
        site.account("operator", Role::Operator, PASSWORD).await;
        site
    }

    /// Opens a session of an admin's, for [`Site::ask`]; its token for forms is [`Site::csrf`].
    pub async fn sign_in(&self) {
        self.account("root", Role::Admin, PASSWORD).await;
        let account = self.api.accounts.login("root", PASSWORD).await.unwrap();
        let cookie = self.api.sessions.open(&account, origin()).unwrap();
        let cookie = cookie.split(';').next().unwrap();
        let headers = |text: &str| -> HeaderMap {
            HeaderMap::from_iter([(header::COOKIE, text.parse().unwrap())])
        };
        let csrf = self.api.sessions.find(&headers(cookie)).unwrap().csrf;
        // The form of the login has a cookie of its own.
        let both = format!("{cookie}; __Host-fipd-login={csrf}");
        *self.session.lock().unwrap() = (headers(&both), csrf);
    }

    pub fn csrf(&self) -> String {
        self.session.lock().unwrap().1.clone()
    }

    /// With the session where it is a page, else as an admin on the socket, unless the request says whose it is. The answer's
    /// body is read where the request is refused: others may be streams.
    pub async fn ask(&self, request: Request<Body>) -> (StatusCode, String) {
        let answer = self
            .router
            .clone()
            .call(self.signed(request))
            .await
            .unwrap();
        let (parts, body) = answer.into_parts();
        if !parts.status.is_success() {
            body.collect().await.unwrap();
        }
        let media = parts.headers.get(header::CONTENT_TYPE);
        let media = media.map_or("", |media| media.to_str().unwrap());
        (parts.status, media.to_owned())
    }

    /// The same of a listener that serves this.
    #[cfg(test)]
    pub(crate) async fn open(
        &self,
        serve: crate::config::Serve,
        path: &str,
    ) -> (StatusCode, String) {
        let router = super::open_router(self.api.clone(), &[serve].into());
        let request = Request::get(path).body(Body::empty());
        Self::answer(router, request.unwrap()).await
    }

    /// The status and the body of the answer.
    #[cfg(test)]
    pub(crate) async fn body(&self, request: Request<Body>) -> (StatusCode, String) {
        Self::answer(self.router.clone(), self.signed(request)).await
    }

    #[cfg(test)]
    async fn answer(mut router: Router, request: Request<Body>) -> (StatusCode, String) {
        let answer = router.call(request).await.unwrap();
        let (status, body) = (answer.status(), answer.into_body());
        let body = body.collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    fn signed(&self, mut request: Request<Body>) -> Request<Body> {
        if request.uri().path().starts_with("/ui/") {
            let (headers, _) = self.session.lock().unwrap().clone();
            // Behind the request's own, of which the first of a name counts.
            for (name, value) in &headers {
                request.headers_mut().append(name, value.clone());
            }
        } else if !request.headers().contains_key(header::AUTHORIZATION) {
            let peer = SocketPeer {
                uid: Some(0),
                gid: Some(0),
            };
            request.extensions_mut().insert(ConnectInfo(peer));
        }
        request
    }

    pub(in crate::api) async fn account(&self, name: &str, role: Role, password: &str) {
        self.api
            .accounts
            .create(name, role, password.to_owned(), "test".into())
            .await
            .unwrap();
    }
}
