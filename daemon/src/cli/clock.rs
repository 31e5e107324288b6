//! `fipd clock`.

use clap::Subcommand;

use super::{
    Session,
    exit::Failure,
    output::{Table, or_dash},
};
use crate::api::wire::ClockView;

#[derive(Debug, Subcommand)]
pub enum Clock {
    /// The time of the address book, the host's clock, and whether the kernel says that it is synchronised
    Show,
    /// Let a forward jump of the host's clock count that the kernel does not confirm
    Accept,
}

impl Clock {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let time: ClockView = match self {
            Self::Show => session.client.get("/api/v1/clock").await?,
            Self::Accept => session.client.post("/api/v1/clock/accept", &()).await?,
        };
        session.output.show(&time, |time| {
            Table::facts([
                ("Address book", time.book.clone()),
                ("Host", time.wall.clone()),
                ("Held back", format!("{} s", time.held_back_seconds)),
                ("Ahead", format!("{} s", time.ahead_seconds)),
                ("Kernel", time.kernel.clone()),
                ("Reason", or_dash(time.reason.as_ref())),
            ])
        })
    }
}
