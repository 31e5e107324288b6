//! Checks of addresses by this host, some at a time.

use std::{net::IpAddr, path::Path, sync::Arc, time::Duration};

use fipd_core::ProbeVerdict;
use tokio::sync::Semaphore;

use super::{AddressUse, LocalLink, ProbeError, client::probe};

/// What RFC 5227 takes at most, and the start of a helper.
const DEADLINE: Duration = Duration::from_secs(8);
/// Checks at the same time; fipd-probe.socket takes 64 connections.
const AT_ONCE: usize = 48;
/// The socket of the helper, beside that of admins.
const SOCKET: &str = "probe.sock";

/// Asks the helper, whoever in the daemon needs it.
#[derive(Clone, Debug)]
pub struct Prober {
    socket: Arc<Path>,
    turns: Arc<Semaphore>,
}

impl Prober {
    /// With the helper's socket beside this one.
    pub fn beside(socket: &Path) -> Self {
        Self {
            socket: socket.with_file_name(SOCKET).into(),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Whether who asks now waits for others.
    pub fn is_busy(&self) -> bool {
        self.turns.available_permits() == 0
    }

    /// Whether somebody else uses the address, which takes some seconds.
    ///
    /// # Errors
    /// That is not known.
    pub async fn check(
        &self,
        link: &LocalLink,
        address: IpAddr,
    ) -> Result<ProbeVerdict, ProbeError> {
        let interface = match link {
            LocalLink::Network(interface) => interface,
            // The kernel does not answer the host's own probes.
            LocalLink::Own(interface) => {
                let by = format!("interface {interface} of this host").into();
                return Ok(ProbeVerdict::Taken { by });
            }
        };
        // Nobody closes it.
        let _turn = self.turns.acquire().await;
        match probe(&self.socket, interface, address, DEADLINE).await? {
            AddressUse::Free => Ok(ProbeVerdict::Free),
            AddressUse::InUse { mac } => Ok(ProbeVerdict::Taken {
                by: mac.to_string().into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_this_host_has_itself_is_taken_and_the_helper_not_asked() {
        let prober = Prober::beside(Path::new("/nonexistent/fipd.sock"));
        assert_eq!(&*prober.socket, Path::new("/nonexistent/probe.sock"));
        let address = "10.0.0.5".parse().unwrap();
        let own = LocalLink::Own("eth0".to_owned());
        let taken = prober.check(&own, address).await.unwrap();
        let by = "interface eth0 of this host".into();
        assert_eq!(taken, ProbeVerdict::Taken { by });
        let network = LocalLink::Network("eth0".to_owned());
        let error = prober
            .check(&network, address)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("is it enabled?"), "{error}");
        assert!(!prober.is_busy());
    }
}
