//! The listeners: the Unix socket for this host's admins, TLS for everybody else, and further ports of the configuration.

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::net::UnixListener as StdUnixListener,
    path::Path,
    time::Duration,
};

use axum::{Router, serve::Listener};
use axum_server::{
    Handle,
    accept::NoDelayAcceptor,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use fipd_core::Timestamp;
use guard::Guard;
use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto::Builder,
};
use tokio_util::sync::CancellationToken;

use tls::TlsError;

mod guard;
pub mod tls;

use crate::{
    api::access::auth::{SocketPeer, SocketPolicy},
    liveness::{BEAT, Heartbeat},
    settings::TlsSettings,
    sockets::{self, Listening, SocketError},
};

/// How long open connections have to finish when the daemon stops.
const DRAIN: Duration = Duration::from_secs(2);
/// How long who has connected by then has to ask.
const TO_ASK: Duration = Duration::from_millis(300);
/// How many connections the port for everybody takes at once: far fewer than the descriptors of the unit, which backups and
/// clusters need as well; [`Most::within`] what others have. One address may have many, as behind a reverse proxy everybody comes from its own. Streams of events
/// are silent for as long as they like.
pub const MOST: Most = Most {
    all: 4_096,
    of_one: 1_024,
    idle: None,
};
/// The same for a port without login, where nothing is silent for longer than any handler takes.
pub const MOST_OPEN: Most = Most {
    all: 256,
    of_one: 256,
    idle: Some(Duration::from_secs(120)),
};
/// How often a silent client of HTTP/2 is asked whether it is there, and how long it may take to say so.
const ASKED: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));
/// How long a client may take to begin, and then to send the head of a request.
const HEAD_DEADLINE: Duration = Duration::from_secs(15);
const SOCKET_MODE: u32 = 0o660;
/// Connections that wait to be taken, as the standard library has it.
const BACKLOG: u32 = 128;

/// Why a listener could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(
        "listen {address}: {source}; choose another --listen or [[listener]] address (port 0 picks a free one)"
    )]
    Address {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the certificate or key for {address} is not usable: {source}")]
    Certificate {
        address: SocketAddr,
        source: io::Error,
    },
}

/// How many connections a port takes at once.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    pub all: usize,
    /// Of them from one [`network`].
    pub of_one: usize,
    /// How long nothing may move on one; `None`: for ever.
    pub idle: Option<Duration>,
}

impl Most {
    /// Of these as many as half of so many descriptors allow: clusters, backups and the store need others. One address may have
    /// the same share of them.
    #[must_use]
    pub fn within(self, descriptors: u64) -> Self {
        let half = usize::try_from(descriptors / 2).unwrap_or(usize::MAX);
        let all = self.all.min(half);
        Self {
            all,
            of_one: self.of_one * all / self.all.max(1),
            ..self
        }
    }
}

/// What counts as one address: of IPv6 its /64.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

/// The Unix socket for this host's admins.
pub struct Socket {
    listening: Listening,
    pub policy: SocketPolicy,
    /// Of the loop that accepts connections.
    pub heartbeat: Heartbeat,
}

impl Socket {
    /// The socket that systemd passed, else one bound at `path` with mode 0660.
    ///
    /// # Errors
    /// As [`Listening::open`].
    pub fn open(passed: Option<StdUnixListener>, path: &Path) -> Result<Self, SocketError> {
        let listening = Listening::open(passed, path, SOCKET_MODE)?;
        let policy = SocketPolicy {
            own_uid: nix::unistd::geteuid().as_raw(),
            socket_gid: listening.gid,
        };
        Ok(Self {
            listening,
            policy,
            heartbeat: Heartbeat::default(),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.listening.path
    }

    /// Serves until `stop`. Who connects later stays in the queue where the socket outlives the daemon; who was taken just
    /// before may still ask, as the server closes connections on which it has read nothing.
    pub async fn serve(self, router: Router, stop: CancellationToken) -> io::Result<()> {
        let (listener, file) = self.listening.into_parts();
        let service = router.into_make_service_with_connect_info::<SocketPeer>();
        let after = |pause| {
            let stop = stop.clone();
            async move {
                stop.cancelled().await;
                tokio::time::sleep(pause).await;
            }
        };
        let listener = UntilStop {
            listener,
            heartbeat: self.heartbeat,
            stop: stop.clone(),
        };
        let serving = axum::serve(listener, service).with_graceful_shutdown(after(TO_ASK));
        let result = tokio::select! {
            result = serving => result,
            () = after(DRAIN) => Ok(()),
        };
        sockets::remove(file).await;
        result
    }
}

/// The socket for admins, until the daemon stops: from then on nobody is taken.
pub struct UntilStop {
    listener: tokio::net::UnixListener,
    heartbeat: Heartbeat,
    stop: CancellationToken,
}

impl Listener for UntilStop {
    type Io = tokio::net::UnixStream;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            self.heartbeat.beat();
            tokio::select! {
                biased;
                () = self.stop.cancelled() => std::future::pending().await,
                taken = Listener::accept(&mut self.listener) => return taken,
                () = tokio::time::sleep(BEAT) => {}
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl TlsSettings {
    pub fn names(&self) -> BTreeSet<String> {
        let mut names = tls::names(self.listen, self.advertise.as_deref());
        for address in &self.also {
            names.extend(tls::names(*address, None));
        }
        names.extend(self.more.iter().cloned());
        names
    }

    fn identity(&self) -> Result<tls::Identity, TlsError> {
        match &self.files {
            Some((cert, key)) => tls::configured(cert, key),
            None => tls::own(&self.data_dir, &self.names(), jiff::Zoned::now().date()),
        }
    }

    /// The certificate as it is, made where there is none, and when it ends.
    pub async fn certificate(&self) -> Result<(RustlsConfig, Option<Timestamp>), ListenError> {
        let identity = self.identity()?;
        let ends = tls::ends(&identity.cert);
        Ok((served(self.listen, identity).await?, ends))
    }

    /// What of a configuration that was read again a running listener takes over: names, and other files for what comes from
    /// files. All who trust it were told of its CA and its names when it started, and hear of others at the next start: until
    /// then it has those as well.
    #[must_use]
    pub fn renewed_by(&self, fresh: Self) -> Self {
        Self {
            more: self.names().into_iter().chain(fresh.more).collect(),
            advertise: fresh.advertise,
            files: match &self.files {
                Some(files) => Some(fresh.files.unwrap_or_else(|| files.clone())),
                None => None,
            },
            ..self.clone()
        }
    }

    /// Reads or renews the certificate, gives it to the running listener and answers when it ends.
    pub async fn renew(&self, config: &RustlsConfig) -> Result<Option<Timestamp>, ListenError> {
        let identity = self.identity()?;
        let ends = tls::ends(&identity.cert);
        let reloaded = config.reload_from_pem(identity.cert, identity.key).await;
        reloaded.map_err(|source| ListenError::Certificate {
            address: self.listen,
            source,
        })?;
        Ok(ends)
    }
}

/// Whether chain and key of the configuration can be served.
///
/// # Errors
/// They cannot be read, or do not belong together.
pub async fn check_files(listen: SocketAddr, cert: &Path, key: &Path) -> Result<(), ListenError> {
    let identity = tls::configured(cert, key)?;
    served(listen, identity).await.map(drop)
}

async fn served(address: SocketAddr, identity: tls::Identity) -> Result<RustlsConfig, ListenError> {
    let config = RustlsConfig::from_pem(identity.cert, identity.key).await;
    config.map_err(|source| ListenError::Certificate { address, source })
}

/// A TCP port, bound and waiting.
pub struct Port {
    listener: std::net::TcpListener,
    pub address: SocketAddr,
    /// Of the loop that accepts connections; [`keep_asking`] makes it beat while nobody else connects.
    pub heartbeat: Heartbeat,
}

/// Connects to a port of this process each second, so that the loop that accepts connections beats. A port at an address that
/// cannot be reached from here (no interface has it yet) is not at fault.
pub async fn keep_asking(address: SocketAddr, heartbeat: Heartbeat, stop: CancellationToken) {
    let mut target = address;
    if address.ip().is_unspecified() {
        target.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    let asking = async {
        loop {
            let connecting = tokio::net::TcpStream::connect(target);
            if let Ok(Err(_)) = tokio::time::timeout(BEAT, connecting).await {
                heartbeat.beat();
            }
            tokio::time::sleep(BEAT).await;
        }
    };
    stop.run_until_cancelled(asking).await;
}

impl Port {
    pub fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Address { address, source };
        let listener = match std::net::TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                tracing::warn!(
                    %address,
                    "no interface of this host has the address; it is served once one has"
                );
                bind_ahead(address)
            }
            result => result,
        };
        let listener = listener.map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            heartbeat: Heartbeat::default(),
        })
    }

    /// Serves until `stop`, by TLS where there is a certificate.
    pub async fn serve(
        self,
        tls: Option<RustlsConfig>,
        router: Router,
        most: Most,
        stop: CancellationToken,
    ) -> io::Result<()> {
        let handle = Handle::new();
        let stopping = {
            let handle = handle.clone();
            tokio::spawn(async move {
                stop.cancelled().await;
                handle.graceful_shutdown(Some(DRAIN));
            })
        };
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let server = axum_server::from_tcp(self.listener)?.handle(handle);
        let plain = NoDelayAcceptor::new();
        let result = match tls {
            Some(config) => {
                let secure = RustlsAcceptor::new(config).acceptor(plain);
                let mut server = server.acceptor(Guard::new(secure, most, self.heartbeat));
                patient(server.http_builder(), most.idle.is_none());
                server.serve(service).await
            }
            None => {
                let mut server = server.acceptor(Guard::new(plain, most, self.heartbeat));
                patient(server.http_builder(), most.idle.is_none());
                server.serve(service).await
            }
        };
        stopping.abort();
        result
    }
}

/// Binds an address that no interface has: the network need not be up before the daemon.
fn bind_ahead(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = if address.is_ipv4() {
        tokio::net::TcpSocket::new_v4()?
    } else {
        tokio::net::TcpSocket::new_v6()?
    };
    // IPv6 sockets follow the same option.
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::IpFreebind, &true)?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

/// But not with clients that never finish their request, or, where `streams` are open for long, with those that are gone.
fn patient(http: &mut Builder<TokioExecutor>, streams: bool) {
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE);
    if streams {
        let (every, within) = ASKED;
        http.http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(every)
            .keep_alive_timeout(within);
    }
}

#[cfg(test)]
mod tests {
    fn tls() -> TlsSettings {
        TlsSettings {
            data_dir: "/a".into(),
            listen: "127.0.0.1:1".parse().unwrap(),
            also: Vec::new(),
            more: BTreeSet::new(),
            advertise: None,
            files: None,
        }
    }

    #[test]
    fn a_running_listener_takes_over_names_and_keeps_its_ca() {
        let fresh = TlsSettings {
            data_dir: "/b".into(),
            listen: "127.0.0.1:2".parse().unwrap(),
            more: ["fipd.example.net".to_owned()].into(),
            advertise: Some("https://a".to_owned()),
            files: Some(("c".into(), "k".into())),
            ..tls()
        };
        let renewed = tls().renewed_by(fresh.clone());
        let more = tls().names().into_iter().chain(fresh.more.clone());
        let names = TlsSettings {
            more: more.collect(),
            advertise: fresh.advertise.clone(),
            ..tls()
        };
        assert_eq!(renewed, names);
        let before = TlsSettings {
            advertise: Some("https://before".to_owned()),
            ..tls()
        };
        let both = before.renewed_by(fresh).names();
        assert!(both.contains("before") && both.contains("a"), "{both:?}");
        let of_files = |name: &str| TlsSettings {
            files: Some((name.into(), "k".into())),
            ..tls()
        };
        assert_eq!(
            of_files("c").renewed_by(of_files("d")).files,
            of_files("d").files
        );
        assert_eq!(of_files("c").renewed_by(tls()).files, of_files("c").files);
    }

    use super::*;

    #[tokio::test]
    async fn who_was_taken_before_the_stop_is_answered_and_who_comes_later_waits() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fipd.sock");
        let bound = StdUnixListener::bind(&path).unwrap();
        // As systemd does: its queue is there when the daemon is not.
        let queue = bound.try_clone().unwrap();
        let socket = Socket::open(Some(bound), &path).unwrap();
        let router = Router::new().route("/", axum::routing::get(|| async { "here" }));
        let stop = CancellationToken::new();
        let serving = tokio::spawn(socket.serve(router, stop.clone()));

        let mut before = tokio::net::UnixStream::connect(&path).await.unwrap();
        // Taken by now, and nothing read.
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.cancel();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut later = tokio::net::UnixStream::connect(&path).await.unwrap();
        let ask = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        later.write_all(ask).await.unwrap();
        before.write_all(ask).await.unwrap();
        let mut answer = String::new();
        before.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("here"), "{answer:?}");
        serving.await.unwrap().unwrap();
        queue.set_nonblocking(true).unwrap();
        assert!(queue.accept().is_ok(), "who came later is in the queue");
    }

    #[tokio::test]
    async fn an_address_that_no_interface_has_yet_is_bound() {
        for address in ["192.0.2.1:0", "[2001:db8::1]:0"] {
            let port = Port::bind(address.parse().unwrap()).unwrap();
            assert_ne!(port.address.port(), 0, "{address}");
        }
    }
}
