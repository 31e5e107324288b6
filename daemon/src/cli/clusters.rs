//! `fipd clusters`.

use clap::Subcommand;

use super::{
    Session,
    client::segment,
    exit::Failure,
    output::{Table, or_dash},
};
use crate::api::wire::{ClusterList, ClusterView, HeldBackView, Outcome, SkipAdoption};

#[derive(Debug, Subcommand)]
pub enum Clusters {
    /// All clusters with their health
    List,
    /// One cluster
    Show {
        /// Name or id
        name: String,
    },
    /// Free the orphaned leases of a cluster that is gone for good
    Forget { name: String },
    /// Let a network give addresses although a cluster was never listed
    SkipAdoption {
        name: String,
        /// The network that shall not wait
        #[arg(long, value_name = "NAME")]
        network: String,
    },
    /// Confirm that most of a cluster's addresses really went away at once; they are released once a fresh list
    /// agrees. A restart of fipd before that forgets it
    ConfirmRelease { name: String },
}

impl Clusters {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let path = |name: &str, verb: &str| format!("/api/v1/clusters/{}{verb}", segment(name));
        let client = &session.client;
        let outcome: Outcome = match self {
            Self::List => {
                let list: ClusterList = client.all("/api/v1/clusters", "clusters").await?;
                return session.output.show(&list, table);
            }
            Self::Show { name } => {
                let cluster: ClusterView = client.get(&path(&name, "")).await?;
                return session.output.show(&cluster, facts);
            }
            Self::Forget { name } => client.post(&path(&name, "/forget"), &()).await?,
            Self::SkipAdoption { name, network } => {
                let body = SkipAdoption { network };
                client.post(&path(&name, "/skip-adoption"), &body).await?
            }
            Self::ConfirmRelease { name } => {
                client.post(&path(&name, "/confirm-release"), &()).await?
            }
        };
        session.output.show(&outcome, |outcome| {
            Table::facts([("Done", outcome.message.clone())])
        })
    }
}

fn table(list: &ClusterList) -> Table {
    let mut table = Table::new(["NAME", "STATE", "SYSTEMS", "LEASES", "LAST ERROR"]);
    for cluster in &list.clusters {
        table.row([
            cluster.name.clone(),
            cluster.state.clone(),
            cluster.systems.join(","),
            cluster.leases.to_string(),
            or_dash(cluster.last_error.as_ref()),
        ]);
    }
    table
}

fn facts(cluster: &ClusterView) -> Table {
    Table::facts([
        ("Name", cluster.name.clone()),
        ("Id", or_dash(cluster.id.as_ref())),
        ("Server", or_dash(cluster.server.as_ref())),
        ("State", cluster.state.clone()),
        ("Since", cluster.since.clone()),
        ("Last error", or_dash(cluster.last_error.as_ref())),
        ("Systems", cluster.systems.join(", ")),
        (
            "Discovered",
            if cluster.discovered { "yes" } else { "no" }.to_owned(),
        ),
        ("Leases", cluster.leases.to_string()),
        (
            "Held back",
            cluster
                .held_back
                .as_ref()
                .map_or_else(|| "-".to_owned(), held_back),
        ),
    ])
}

fn held_back(held: &HeldBackView) -> String {
    format!(
        "{} leases of {} since {} (at most {} go by themselves)",
        held.leases, held.system, held.since, held.limit
    )
}
