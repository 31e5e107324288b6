//! `fipd store`.

use clap::Subcommand;

use super::{
    Session,
    exit::Failure,
    offline::ReasonArgs,
    output::{Table, or_dash},
    shown,
};
use crate::{
    clock,
    store::{Create, CreateError, HostId},
};

#[derive(Debug, Subcommand)]
pub enum Store {
    /// Make an empty store where the old one is lost, while the daemon is stopped
    ///
    /// fipd refuses to start with an empty address book in a directory that was used: it would give addresses twice. Restore
    /// the newest backup instead if there is one. The new store begins a new epoch: every network waits until its clusters
    /// are adopted again, and free addresses are given to nobody new until fipd has run for 24 hours (`fipd hold lift`).
    Create(ReasonArgs),
}

/// What was made.
#[derive(serde::Serialize)]
struct Created {
    store: String,
    epoch: u64,
    held_until: Option<String>,
}

impl Store {
    pub(super) fn run(self, session: &Session) -> Result<(), Failure> {
        let Self::Create(answered) = self;
        let (reason, offline) = answered.open("why an empty address book is right")?;
        let create = Create {
            store: &offline.store,
            reason,
            actor: offline.actor,
            now: clock::now(),
            host: HostId::of_this_host(),
        };
        let epoch = create.run().map_err(|error| match error {
            CreateError::Exists(_) => Failure::Input(error.to_string()),
            CreateError::Open(_) | CreateError::Io { .. } => Failure::failed(error),
        })?;
        let created = Created {
            store: shown(&offline.store),
            epoch: epoch.number,
            held_until: epoch.hold.map(|hold| clock::rfc3339(hold.until)),
        };
        session.output.show(&created, |created| {
            Table::facts([
                ("Store", created.store.clone()),
                ("Epoch", created.epoch.to_string()),
                ("Held until about", or_dash(created.held_until.as_ref())),
            ])
        })
    }
}
