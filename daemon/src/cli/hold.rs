//! `fipd hold`.

use clap::Subcommand;

use super::{
    CliSession,
    exit::Failure,
    output::{Table, or_dash, yes_or_no},
};
use crate::api::wire::{LiftHold, RestoreHoldView};

#[derive(Debug, Subcommand)]
pub enum Hold {
    /// Whether free addresses are held, and until when
    Show,
    /// Give free addresses again before the hold has ended
    Lift {
        /// Why free addresses are certainly free; for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

impl Hold {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        let lift = "/api/v1/restore-hold/lift";
        match self {
            Self::Show => session.show("/api/v1/restore-hold", facts).await,
            Self::Lift { reason } => {
                session
                    .post_and_show(lift, &LiftHold { reason }, facts)
                    .await
            }
        }
    }
}

fn facts(hold: &RestoreHoldView) -> Table {
    Table::facts([
        ("Held", yes_or_no(hold.held)),
        ("Networks", networks(hold)),
        ("Until about", or_dash(hold.until.as_ref())),
        ("Restored", or_dash(hold.restored.as_ref())),
        ("Epoch", hold.epoch.to_string()),
    ])
}

fn networks(hold: &RestoreHoldView) -> String {
    match hold.networks.as_slice() {
        [] if hold.held => "all".to_owned(),
        [] => "-".to_owned(),
        names => names.join(", "),
    }
}
