//! Unix sockets that the daemon listens on: passed by systemd by name, or bound here.
//!
//! The file of a passed socket belongs to systemd: clients wait in its queue while the daemon is down, so it is never
//! removed here.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use listenfd::ListenFd;

/// `FileDescriptorName=` of the socket for admins.
pub const ADMIN: &str = "admin";
/// That of the socket for CNI plugins.
pub const CNI: &str = "cni";
/// How long the removal of a file is waited for.
const REMOVAL: Duration = Duration::from_millis(250);

/// Why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("socket {path}: another fipd is listening there; stop it, or choose another --socket", path = .0.display())]
    InUse(PathBuf),
    #[error("socket {path}: {source}", path = .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the socket named {name:?} that systemd passed is not usable: {source}")]
    Passed { name: String, source: io::Error },
    #[error("systemd passed {sockets} sockets and {names} names (FileDescriptorName=)")]
    Names { sockets: usize, names: usize },
}

/// What systemd passed, by name.
#[derive(Debug, Default)]
pub struct Passed(BTreeMap<String, UnixListener>);

impl Passed {
    /// Takes them; nothing where the daemon was started otherwise. To be called once, before there is a second thread.
    ///
    /// # Errors
    /// Something else than a Unix socket was passed, or a name is missing.
    pub fn receive() -> Result<Self, SocketError> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut sockets = ListenFd::from_env();
        let names: Vec<&str> = names.split(':').filter(|name| !name.is_empty()).collect();
        if sockets.len() == 0 {
            return Ok(Self::default());
        }
        if sockets.len() != names.len() {
            return Err(SocketError::Names {
                sockets: sockets.len(),
                names: names.len(),
            });
        }
        let mut passed = BTreeMap::new();
        for (index, name) in names.into_iter().enumerate() {
            let failed = |source| SocketError::Passed {
                name: name.to_owned(),
                source,
            };
            if let Some(socket) = sockets.take_unix_listener(index).map_err(failed)? {
                passed.insert(name.to_owned(), socket);
            }
        }
        Ok(Self(passed))
    }

    /// The one of this name.
    pub fn take(&mut self, name: &str) -> Option<UnixListener> {
        self.0.remove(name)
    }

    /// Names nobody took.
    pub fn left(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

/// A socket that is listened on.
#[derive(Debug)]
pub struct Listening {
    pub listener: tokio::net::UnixListener,
    pub path: PathBuf,
    /// Group of the file.
    pub gid: u32,
    file: Option<SocketFile>,
}

/// Removes the socket's file, unless another process has put its own there.
#[derive(Debug)]
pub struct SocketFile {
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

impl Listening {
    /// The passed socket, else one bound at `path` with this mode.
    ///
    /// # Errors
    /// Another process listens there, or what the system says.
    pub fn open(passed: Option<UnixListener>, path: &Path, mode: u32) -> Result<Self, SocketError> {
        match passed {
            Some(socket) => Self::passed(socket),
            None => Self::bind(path, mode),
        }
    }

    fn passed(socket: UnixListener) -> Result<Self, SocketError> {
        let address = socket.local_addr().ok();
        let path = address.and_then(|address| address.as_pathname().map(Path::to_owned));
        let path = path.unwrap_or_else(|| PathBuf::from("(passed)"));
        let failed = |source| SocketError::Io {
            path: path.clone(),
            source,
        };
        let gid = match std::fs::metadata(&path) {
            Ok(file) => file.gid(),
            Err(error) => {
                tracing::warn!(
                    path = %path.display(), %error,
                    "nobody finds the socket that systemd has passed; to have its file made anew: systemctl stop fipd.socket fipd-cni.socket fipd.service; systemctl start fipd.socket fipd-cni.socket fipd.service"
                );
                nix::unistd::getegid().as_raw()
            }
        };
        Ok(Self {
            listener: listener(socket).map_err(failed)?,
            gid,
            path,
            file: None,
        })
    }

    /// A file that nobody listens on is replaced.
    fn bind(path: &Path, mode: u32) -> Result<Self, SocketError> {
        let failed = |source| SocketError::Io {
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
            Ok(_) => return Err(SocketError::InUse(path.to_owned())),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                let there = std::fs::symlink_metadata(path).map_err(failed)?;
                if !there.file_type().is_socket() {
                    let why = "a file that is no socket is there, which stays; choose another path";
                    return Err(failed(io::Error::new(ErrorKind::AlreadyExists, why)));
                }
                std::fs::remove_file(path).map_err(failed)?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let socket = UnixListener::bind(path).map_err(failed)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
        let meta = std::fs::metadata(path).map_err(failed)?;
        Ok(Self {
            listener: listener(socket).map_err(failed)?,
            path: path.to_owned(),
            gid: meta.gid(),
            file: Some(SocketFile {
                path: path.to_owned(),
                inode: meta.ino(),
            }),
        })
    }

    /// The socket, and its file if that is to go with it.
    pub fn into_parts(self) -> (tokio::net::UnixListener, Option<SocketFile>) {
        (self.listener, self.file)
    }
}

fn listener(socket: UnixListener) -> io::Result<tokio::net::UnixListener> {
    socket.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(socket)
}

/// Takes the file away, but does not wait for a disk that hangs.
pub async fn remove(file: Option<SocketFile>) {
    // Not here: a disk that hangs must not keep a thread that serves.
    let removed = tokio::task::spawn_blocking(|| drop(file));
    if tokio::time::timeout(REMOVAL, removed).await.is_err() {
        tracing::warn!("the disk does not answer; the socket file may be left behind");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run").join("fipd.sock");
        let first = Listening::open(None, &path, 0o660).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o660
        );
        assert!(matches!(
            Listening::open(None, &path, 0o660),
            Err(SocketError::InUse(_))
        ));
        drop(first);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        assert!(Listening::open(None, &path, 0o660).is_ok());
        let file = dir.path().join("fipd.toml");
        std::fs::write(&file, "kept").unwrap();
        let error = Listening::open(None, &file, 0o660).unwrap_err().to_string();
        assert!(error.contains("no socket"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    }

    #[tokio::test]
    async fn the_file_of_a_passed_socket_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fipd.sock");
        let passed = UnixListener::bind(&path).unwrap();
        let elsewhere = dir.path().join("elsewhere");
        let listening = Listening::open(Some(passed), &elsewhere, 0o660).unwrap();
        assert_eq!(listening.path, path);
        let (listener, file) = listening.into_parts();
        remove(file).await;
        drop(listener);
        assert!(path.exists() && !elsewhere.exists());
    }
}
