//! `fipd rancher-fip`.

use clap::Subcommand;

use super::{Session, client::segment, exit::Failure, output::Table};
use crate::api::wire::{GuestList, GuestView, Outcome};

#[derive(Debug, Subcommand)]
pub enum RancherFip {
    /// Clusters that Rancher manages and fipd looks after, and how they are doing
    Guests,
    /// Give a project a new secret: its guests get it at once, the one before is accepted for an hour more
    RotateSecret {
        /// Rancher's id of the project, p-...
        project: String,
    },
    /// Let another key sign the tokens of LB controllers: those that are out count until they end
    RotateKey,
}

impl RancherFip {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::Guests => {
                let list: GuestList = session.client.all("/api/v1/guests", "guests").await?;
                session.output.show(&list, table)
            }
            Self::RotateSecret { project } => {
                let path = format!("/api/v1/projects/{}/rotate-secret", segment(&project));
                show(session, session.client.post(&path, &()).await?)
            }
            Self::RotateKey => {
                let path = "/api/v1/fip-v1/rotate-key";
                show(session, session.client.post(path, &()).await?)
            }
        }
    }
}

fn show(session: &Session, outcome: Outcome) -> Result<(), Failure> {
    session.output.show(&outcome, |outcome| {
        Table::facts([("Done", outcome.message.clone())])
    })
}

fn table(list: &GuestList) -> Table {
    let mut table = Table::new([
        "ID", "NAME", "PHASE", "REASON", "PROJECTS", "LB", "SINCE", "MESSAGE",
    ]);
    for guest in &list.guests {
        let GuestView { id, phase, .. } = guest;
        let projects: Vec<&str> = guest.projects.keys().map(String::as_str).collect();
        table.row([
            id.clone(),
            guest.display_name.clone(),
            phase.clone(),
            guest.reason.clone(),
            projects.join(","),
            guest.load_balancer.clone(),
            guest.since.clone(),
            guest.message.clone(),
        ]);
    }
    table
}
