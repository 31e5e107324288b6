//! One engine for each network namespace and protocol tag: two would take each other's rules for leftovers.
//!
//! The lock is an abstract socket, which ends with its process. Its name says the namespace, too, for one who reads
//! `/proc/net/unix`; the kernel keeps such names apart by namespace itself.

use std::{
    io,
    os::{
        linux::{fs::MetadataExt as _, net::SocketAddrExt as _},
        unix::net,
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    task::JoinHandle,
};

/// For one on the same host.
const DEADLINE: Duration = Duration::from_secs(1);
/// Longest name that is read.
const NAME: u64 = 200;

#[derive(Debug, thiserror::Error)]
pub(super) enum LockError {
    #[error(
        "another engine programs the rules of protocol {protocol} in this network namespace: {holder}. Stop it, or give \
         this one another rule-protocol in [host]"
    )]
    Held { protocol: u8, holder: String },
    #[error("the lock of the rules cannot be taken: {0}")]
    Io(#[from] io::Error),
}

/// Held until it is dropped.
pub(super) struct Lock {
    answers: JoinHandle<()>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.answers.abort();
    }
}

impl Lock {
    pub async fn take(protocol: u8) -> Result<Self, LockError> {
        let namespace = std::fs::metadata("/proc/thread-self/ns/net")?.st_ino();
        let name = format!("fipd-host-{namespace}-{protocol}");
        let address = net::SocketAddr::from_abstract_name(name)?;
        let listener = match net::UnixListener::bind_addr(&address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let holder = ask(&address).await;
                let holder = holder.unwrap_or_else(|error| format!("it does not answer ({error})"));
                return Err(LockError::Held { protocol, holder });
            }
            listener => listener?,
        };
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let answers = tokio::spawn(answer(listener, identity()));
        Ok(Self { answers })
    }
}

fn identity() -> String {
    let program = std::env::current_exe();
    let program = program.map_or("fipd".to_owned(), |path| path.display().to_string());
    format!("{program}, process {}", std::process::id())
}

/// Tells everybody who asks who holds it.
async fn answer(listener: UnixListener, identity: String) {
    loop {
        let Ok((mut asker, _)) = listener.accept().await else {
            // No more descriptors, for a while.
            tokio::time::sleep(DEADLINE).await;
            continue;
        };
        let write = asker.write_all(identity.as_bytes());
        // One that does not read has no answer.
        let _ = tokio::time::timeout(DEADLINE, write).await;
    }
}

async fn ask(address: &net::SocketAddr) -> io::Result<String> {
    let stream = net::UnixStream::connect_addr(address)?;
    stream.set_nonblocking(true)?;
    let stream = UnixStream::from_std(stream)?;
    let mut name = String::new();
    let mut limited = stream.take(NAME);
    let read = limited.read_to_string(&mut name);
    tokio::time::timeout(DEADLINE, read).await??;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_second_is_told_who_the_first_is() {
        // A tag that no other test has.
        let first = Lock::take(251).await.unwrap();
        let second = Lock::take(251).await.map(|_| ());
        let told = second.unwrap_err().to_string();
        let own = format!("process {}", std::process::id());
        assert!(told.contains(&own), "{told}");
        Lock::take(252).await.unwrap();
        drop(first);
        let again = async {
            while Lock::take(251).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, again).await.unwrap();
    }
}
