//! Where the daemon is asked: its sockets, its ports, and what tells tools of them.

use std::{iter, path::Path, sync::Arc};

use axum_server::tls_rustls::RustlsConfig;
use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::{AppError, Tasks, certificate::Certificate, listen_file::ListenFile, tell_ready};
use crate::{
    api::{
        self, Api,
        listen::{self, ListenError, Port, Socket},
    },
    cni::{self, CniOptions},
    config::Listener,
    descriptors,
    liveness::Liveness,
    settings::Settings,
    sockets::{self, Listening, Passed, SocketError},
};

/// Who may ask as a CNI plugin.
const ROOT: u32 = 0;

/// All of them, bound.
pub struct Listeners {
    socket: Socket,
    port: Port,
    extra: Vec<(Port, Listener)>,
    pub certificate: Arc<Certificate>,
    /// Of the port.
    pub url: String,
    /// `None`: it could not be written.
    listen_file: Option<ListenFile>,
}

impl Listeners {
    /// Plugins are answered from here on, others are not yet.
    pub async fn open(
        tasks: &mut Tasks,
        settings: &Settings,
        (passed, plugins): (Passed, CniOptions),
        stop: &CancellationToken,
    ) -> Result<Self, AppError> {
        let socket = open_sockets(tasks, settings, (passed, plugins), stop)?;
        let port = Port::bind(settings.tls().listen)?;
        let extra = bind_extra(&settings.config.listeners)?;
        let certificate = Certificate::start(settings).await?;
        let url = format!("https://{}", port.address);
        let listen_file = ListenFile::write(&settings.data_dir, &url).inspect_err(
            |error| tracing::warn!(%error, url, "tools do not find the listener by themselves"),
        );
        Ok(Self {
            socket,
            port,
            extra,
            certificate,
            url,
            listen_file: listen_file.ok(),
        })
    }

    /// The loops that accept connections.
    pub fn liveness(&self) -> Liveness {
        let extra = self.extra.iter().map(|(port, _)| port);
        let ports = iter::once(&self.port).chain(extra).map(|port| {
            let name = format!("the loop that accepts connections at {}", port.address);
            (name.into(), port.heartbeat.clone())
        });
        let socket = "the loop that accepts connections at the socket".into();
        let socket = (socket, self.socket.heartbeat.clone());
        Liveness::new(ports.chain([socket]).collect())
    }

    /// Serves there and tells that fipd is ready. The listen file is to be dropped when that ends.
    pub fn serve(
        self,
        tasks: &mut Tasks,
        settings: &Settings,
        api: Api,
        stop: &CancellationToken,
    ) -> Option<ListenFile> {
        let extra = self.extra.iter().map(|(port, _)| port);
        for port in iter::once(&self.port).chain(extra) {
            let asking = listen::keep_asking(port.address, port.heartbeat.clone(), stop.clone());
            tasks.spawn(asking.map(|_| Ok(())));
        }
        let served = self.certificate.served();
        serve_open(tasks, self.extra, &api, &served, stop);
        let on_socket = self.socket.path().to_owned();
        serve_users(tasks, (self.socket, self.port), api, served, stop);
        tasks.spawn(self.certificate.keep(stop.clone()));
        tell_ready(settings, &on_socket, &self.url);
        self.listen_file
    }
}

/// The socket for admins; plugins are answered from here on.
pub fn open_sockets(
    tasks: &mut Tasks,
    settings: &Settings,
    (mut passed, options): (Passed, CniOptions),
    stop: &CancellationToken,
) -> Result<Socket, SocketError> {
    let (admins, plugins) = (passed.take(sockets::ADMIN), passed.take(sockets::CNI));
    // Where systemd has the sockets, fipd may bind none beside them: one that is masked is not wanted.
    let path = settings.cni_socket.as_deref();
    let path = path.filter(|_| admins.is_none() || settings.overrides.cni_socket.is_some());
    if plugins.is_some() || path.is_some() {
        let socket = Listening::open(plugins, path.unwrap_or(Path::new("")), cni::MODE)?;
        let serving = cni::serve(socket, ROOT, options, stop.clone());
        tasks.spawn(serving.map(Ok));
    } else if admins.is_some() {
        tracing::warn!("systemd has no socket for CNI plugins: they get no answer");
    }
    let socket = Socket::open(admins, &settings.socket)?;
    serve_log_level(tasks, settings, stop);
    for name in passed.left() {
        tracing::warn!(name, "systemd passed a socket that fipd has no use for");
    }
    Ok(socket)
}

/// The socket that reads and changes the level of the log, where there is to be one. Nothing else waits for it.
fn serve_log_level(tasks: &mut Tasks, settings: &Settings, stop: &CancellationToken) {
    let Some(path) = &settings.config.log_socket else {
        return;
    };
    match Socket::open(None, path) {
        Ok(socket) => {
            let serving = socket.serve(api::log_level::router(), stop.clone());
            tasks.spawn(async { serving.await.map_err(|error| error.to_string()) });
        }
        Err(error) => tracing::warn!(
            "log-socket: {error}; the level is not changed there until fipd starts with a path that works"
        ),
    }
}

fn bind_extra(listeners: &[Listener]) -> Result<Vec<(Port, Listener)>, ListenError> {
    let bind = |listener: &Listener| Ok((Port::bind(listener.address)?, listener.clone()));
    listeners.iter().map(bind).collect()
}

/// What the socket and the TLS port serve to those who sign in or are who they are.
fn serve_users(
    tasks: &mut Tasks,
    (socket, port): (Socket, Port),
    api: Api,
    certificate: RustlsConfig,
    stop: &CancellationToken,
) {
    let router = api::router(api, socket.policy);
    let serving = socket.serve(router.clone(), stop.clone());
    tasks.spawn(async { serving.await.map_err(|error| error.to_string()) });
    let router = api::strict_transport(router);
    let most = listen::MOST.within(descriptors::limit());
    let serving = port.serve(Some(certificate), router, most, stop.clone());
    tasks.spawn(async { serving.await.map_err(|error| error.to_string()) });
}

/// What further ports serve without login.
fn serve_open(
    tasks: &mut Tasks,
    ports: Vec<(Port, Listener)>,
    api: &Api,
    certificate: &RustlsConfig,
    stop: &CancellationToken,
) {
    // The port with login has half of the descriptors, these have a quarter of them together.
    let most = listen::MOST_OPEN.within(descriptors::limit() / 2 / ports.len().max(1) as u64);
    for (port, listener) in ports {
        let mut router = api::open_router(api.clone(), &listener.serve);
        if listener.tls {
            router = api::strict_transport(router);
        }
        let tls = listener.tls.then(|| certificate.clone());
        tracing::info!(address = %port.address, tls = listener.tls, serve = ?listener.serve, "listens here as well, without login");
        let serving = port.serve(tls, router, most, stop.clone());
        tasks.spawn(async { serving.await.map_err(|error| error.to_string()) });
    }
}
