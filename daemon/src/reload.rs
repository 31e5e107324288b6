//! Reading the configuration again while the daemon runs: who asks, and how it stands.
//!
//! The work is done by who keeps the parts together; everybody else has this handle.

use fipd_core::Text;
use tokio::sync::{mpsc, oneshot, watch};

/// Questions that may wait.
const WAITING: usize = 16;

/// What reading the configuration again has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Parts of the file that are in force as they are now and were not before.
    pub applied: Vec<&'static str>,
    /// Parts that are in force as they were at the start.
    pub needs_restart: Vec<&'static str>,
}

/// How the configuration in force stands to the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadStatus {
    /// Why the file as it is now is not used.
    pub failed: Option<Text>,
    pub needs_restart: Vec<&'static str>,
}

/// Why it was not read again.
#[derive(Debug, thiserror::Error)]
pub enum NotReloaded {
    #[error("the configuration stays as it was: {0}")]
    Invalid(Text),
    #[error("fipd is stopping")]
    Stopping,
}

/// Who waits for the answer.
pub type Answer = oneshot::Sender<Result<Reloaded, NotReloaded>>;

/// Asks for it; cheap to clone.
#[derive(Clone, Debug)]
pub struct Reload {
    asks: mpsc::Sender<Answer>,
    standing: watch::Receiver<ReloadStatus>,
}

/// The other side.
#[derive(Debug)]
pub struct Desk {
    pub asks: mpsc::Receiver<Answer>,
    pub standing: watch::Sender<ReloadStatus>,
}

/// A handle and its other side.
pub fn pair() -> (Reload, Desk) {
    let (ask, asks) = mpsc::channel(WAITING);
    let (tell, standing) = watch::channel(ReloadStatus::default());
    let desk = Desk {
        asks,
        standing: tell,
    };
    (
        Reload {
            asks: ask,
            standing,
        },
        desk,
    )
}

impl Reload {
    /// Reads the configuration again, and waits until it is in force.
    ///
    /// # Errors
    /// The file has errors: nothing was changed.
    pub async fn now(&self) -> Result<Reloaded, NotReloaded> {
        let (tell, told) = oneshot::channel();
        let asked = self.asks.send(tell).await;
        asked.map_err(|_| NotReloaded::Stopping)?;
        told.await.unwrap_or(Err(NotReloaded::Stopping))
    }

    /// How it stands.
    pub fn standing(&self) -> ReloadStatus {
        self.standing.borrow().clone()
    }
}
