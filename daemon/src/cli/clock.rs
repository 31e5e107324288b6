//! `fipd clock`.

use clap::Subcommand;

use super::{
    CliSession,
    exit::Failure,
    offline::ReasonArgs,
    output::{Table, or_dash},
};
use crate::{
    api::wire::ClockView,
    clock::{HostClock as _, KernelClock, rfc3339},
    store::{ResetClock, ResetError},
};

#[derive(Debug, Subcommand)]
pub enum Clock {
    /// The time of the address book, the host's clock, and whether the kernel says that it is synchronised
    Show,
    /// Let a forward jump of the host's clock count that the kernel does not confirm
    Accept,
    /// Take the time of the address book back to the host's clock, while the daemon is stopped
    ///
    /// For a store whose time is ahead because the clock was wrong when it began or was accepted. Quarantines and
    /// reservations keep the time that they have left. Entries of the audit log from the time ahead move back with it,
    /// which the entry of the reset records.
    Reset(ReasonArgs),
}

/// What was done.
#[derive(serde::Serialize)]
struct Reset {
    before: String,
    after: String,
    audit_entries: u64,
}

impl Clock {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        match self {
            Self::Show => session.show("/api/v1/clock", facts).await,
            Self::Accept => {
                session
                    .post_and_show("/api/v1/clock/accept", &(), facts)
                    .await
            }
            Self::Reset(answered) => reset(answered, session),
        }
    }
}

fn facts(time: &ClockView) -> Table {
    Table::facts([
        ("Address book", time.book.clone()),
        ("Host", time.wall.clone()),
        ("Held back", format!("{} s", time.held_back_seconds)),
        ("Ahead", format!("{} s", time.ahead_seconds)),
        ("Kernel", time.kernel.clone()),
        ("Reason", or_dash(time.reason.as_ref())),
    ])
}

fn reset(answered: ReasonArgs, session: &CliSession) -> Result<(), Failure> {
    let (reason, offline) = answered.open("why the host's clock is right")?;
    let reset = ResetClock {
        store: &offline.store,
        options: offline.settings.store_options(),
        reason,
        actor: offline.actor,
        reading: KernelClock::new(offline.settings.config.clock.trust).read(),
    };
    let done = reset.run().map_err(|error| match error {
        ResetError::NotAhead { .. } | ResetError::OtherHost => Failure::Input(error.to_string()),
        ResetError::Open(_) | ResetError::Store(_) | ResetError::Io { .. } => {
            Failure::failed(error)
        }
    })?;
    let done = Reset {
        before: rfc3339(done.from),
        after: rfc3339(done.to),
        audit_entries: done.entries,
    };
    session.output.show(&done, |done| {
        Table::facts([
            ("Address book before", done.before.clone()),
            ("Address book now", done.after.clone()),
            ("Audit entries moved", done.audit_entries.to_string()),
        ])
    })
}
