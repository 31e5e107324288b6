//! The listeners: the Unix socket for this host's admins, TLS for everybody else, and further ports of the configuration.

use std::{
    collections::BTreeSet,
    io::{self, ErrorKind},
    net::SocketAddr,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use axum::Router;
use axum_server::{
    Handle,
    accept::NoDelayAcceptor,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use guard::Guard;
use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

mod guard;

use super::{
    auth::{SocketPeer, SocketPolicy},
    tls::{self, TlsError},
};

/// How long open connections have to finish when the daemon stops.
const DRAIN: Duration = Duration::from_secs(2);
/// How many connections a port without login takes at once.
pub const MOST_OPEN: usize = 256;
/// And the port of the API, whose clients are known.
pub const MOST: usize = tokio::sync::Semaphore::MAX_PERMITS;
/// How long a client may take to begin, and then to send the head of a request.
const HEAD_DEADLINE: Duration = Duration::from_secs(15);
/// How long the removal of the socket's file is waited for.
const REMOVAL: Duration = Duration::from_millis(250);
const SOCKET_MODE: u32 = 0o660;

/// Why a listener could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("socket {path}: another fipd is listening there; stop it, or choose another --socket", path = .0.display())]
    SocketInUse(PathBuf),
    #[error("socket {path}: {source}", path = .path.display())]
    Socket { path: PathBuf, source: io::Error },
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

/// The Unix socket, bound and waiting. The file is removed when this is dropped.
pub struct Socket {
    listener: UnixListener,
    pub policy: SocketPolicy,
    file: SocketFile,
}

/// Removes the socket's file, unless another process has put its own there.
struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if std::fs::metadata(&self.path).is_ok_and(|meta| meta.ino() == self.inode) {
            // A file left behind is replaced at the next start.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Socket {
    /// Binds the socket with mode 0660. A file that nobody listens on is replaced.
    pub fn bind(path: &Path) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Socket {
            path: path.to_owned(),
            source,
        };
        if let Some(parent) = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => return Err(ListenError::SocketInUse(path.to_owned())),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(failed)?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))
            .map_err(failed)?;
        let meta = std::fs::metadata(path).map_err(failed)?;
        let policy = SocketPolicy {
            own_uid: nix::unistd::geteuid().as_raw(),
            socket_gid: meta.gid(),
        };
        let file = SocketFile {
            path: path.to_owned(),
            inode: meta.ino(),
        };
        Ok(Self {
            listener,
            policy,
            file,
        })
    }

    /// Serves until `stop`.
    pub async fn serve(self, router: Router, stop: CancellationToken) -> io::Result<()> {
        let Self {
            listener,
            file,
            policy: _,
        } = self;
        let service = router.into_make_service_with_connect_info::<SocketPeer>();
        let deadline = stop.clone();
        let serving = axum::serve(listener, service).with_graceful_shutdown(stop.cancelled_owned());
        let result = tokio::select! {
            result = serving => result,
            () = async { deadline.cancelled().await; tokio::time::sleep(DRAIN).await } => Ok(()),
        };
        // Not here: a disk that hangs must not keep a thread that serves.
        let removed = tokio::task::spawn_blocking(|| drop(file));
        if tokio::time::timeout(REMOVAL, removed).await.is_err() {
            tracing::warn!("the disk does not answer; the socket file may be left behind");
        }
        result
    }
}

/// What the certificate of the TLS listener follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    pub data_dir: PathBuf,
    pub listen: SocketAddr,
    /// Addresses of further listeners.
    pub also: Vec<SocketAddr>,
    /// Further names by which clients reach it.
    pub more: BTreeSet<String>,
    pub advertise: Option<String>,
    /// Chain and key of the configuration; an own certificate without.
    pub files: Option<(PathBuf, PathBuf)>,
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

    /// The certificate as it is, made where there is none.
    pub async fn certificate(&self) -> Result<RustlsConfig, ListenError> {
        let identity = self.identity()?;
        RustlsConfig::from_pem(identity.cert, identity.key)
            .await
            .map_err(|source| ListenError::Certificate {
                address: self.listen,
                source,
            })
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

    /// Reads or renews the certificate and gives it to the running listener.
    pub async fn renew(&self, config: &RustlsConfig) -> Result<(), ListenError> {
        let identity = self.identity()?;
        config
            .reload_from_pem(identity.cert, identity.key)
            .await
            .map_err(|source| ListenError::Certificate {
                address: self.listen,
                source,
            })
    }
}

/// A TCP port, bound and waiting.
pub struct Port {
    listener: std::net::TcpListener,
    pub address: SocketAddr,
}

impl Port {
    pub fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Address { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Serves at most `most` connections at once until `stop`, by TLS where there is a certificate.
    pub async fn serve(
        self,
        tls: Option<RustlsConfig>,
        router: Router,
        most: usize,
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
                let mut server = server.acceptor(Guard::new(secure, most));
                patient(server.http_builder());
                server.serve(service).await
            }
            None => {
                let mut server = server.acceptor(Guard::new(plain, most));
                patient(server.http_builder());
                server.serve(service).await
            }
        };
        stopping.abort();
        result
    }
}

/// But not with clients that never finish their request.
fn patient(http: &mut Builder<TokioExecutor>) {
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE);
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
    async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run").join("fipd.sock");
        let first = Socket::bind(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            SOCKET_MODE
        );
        assert!(matches!(
            Socket::bind(&path),
            Err(ListenError::SocketInUse(_))
        ));
        drop(first);
        assert!(!path.exists());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        assert!(Socket::bind(&path).is_ok());
    }
}
