//! `fipd reload`.

use clap::Args;

use super::{CliSession, exit::Failure, output::Table};
use crate::api::wire::ReloadView;

pub(super) const LONG_ABOUT: &str = "\
Have the running daemon read its configuration, kubeconfigs and certificates again, and wait until configuration and
certificate are in force; clusters whose kubeconfig changed are connected meanwhile. No connection is dropped. A file with
errors changes nothing: exit code 2, and the line says where the error is. What cannot change while the daemon runs is named
and counts from the next start.";

#[derive(Debug, Args)]
pub struct Reload {}

impl Reload {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        let facts = |done: &ReloadView| {
            Table::facts([
                ("In force", done.applied.join(", ")),
                ("Needs a restart", done.needs_restart.join(", ")),
            ])
        };
        session.post_and_show("/api/v1/reload", &(), facts).await
    }
}
