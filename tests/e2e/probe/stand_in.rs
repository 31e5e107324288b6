//! In the place of fipd-probe.socket: a connection each for the helper, or for one that misbehaves.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use fipd_tests::process::spawn_bound;
use fipd_tests::testbed::fipd_binary;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// What becomes of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Behaviour {
    /// `fipd probe-helper` has it, as systemd would start it.
    Real,
    /// Nobody answers.
    Silent,
    /// This is answered, whatever was asked.
    Says(&'static [u8]),
}

pub struct StandIn {
    behaviour: Arc<Mutex<Behaviour>>,
    asked: Arc<Mutex<usize>>,
    task: JoinHandle<()>,
}

impl StandIn {
    /// Listens where a fipd with this socket of admins asks.
    pub async fn start(admins: &Path, behaviour: Behaviour) -> Self {
        let program = fipd_binary().await.unwrap();
        let listener = UnixListener::bind(admins.with_file_name("probe.sock")).unwrap();
        let behaviour = Arc::new(Mutex::new(behaviour));
        let asked = Arc::<Mutex<usize>>::default();
        let (mode, count) = (Arc::clone(&behaviour), Arc::clone(&asked));
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                *count.lock().unwrap() += 1;
                let behaviour = *mode.lock().unwrap();
                tokio::spawn(serve(behaviour, connection, program.clone()));
            }
        });
        Self {
            behaviour,
            asked,
            task,
        }
    }

    pub fn becomes(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    /// How often it was asked.
    pub fn asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(behaviour: Behaviour, mut connection: UnixStream, program: PathBuf) {
    match behaviour {
        Behaviour::Real => {
            let connection = connection.into_std().unwrap();
            connection.set_nonblocking(false).unwrap();
            let helper = move || {
                let socket = OwnedFd::from(connection);
                let mut command = Command::new(program);
                command
                    .arg("probe-helper")
                    .stdin(socket.try_clone().unwrap())
                    .stdout(socket)
                    .stderr(Stdio::inherit());
                spawn_bound(command).unwrap().wait().unwrap()
            };
            let ended = tokio::task::spawn_blocking(helper).await.unwrap();
            assert!(ended.success(), "{ended}");
        }
        Behaviour::Silent => {
            std::future::pending::<()>().await;
        }
        Behaviour::Says(bytes) => {
            // The question is read first: who asks is not to find the connection closed. Who asks may hang up.
            let mut question = [0; 4096];
            let _ = connection.read(&mut question).await;
            let _ = connection.write_all(bytes).await;
        }
    }
}
