//! `fipd clusters`.

use std::path::PathBuf;

use clap::Subcommand;
use http::Method;

use super::{
    CliSession,
    client::{answer, segment},
    exit::Failure,
    output::{Table, or_dash, yes_or_no},
    session::done,
};
use crate::api::{
    LEAVE_DEADLINE,
    wire::{
        ClusterAdd, ClusterList, ClusterView, DetachReport, HeldBackView, Join, Outcome,
        SightingsReport, SkipAdoption,
    },
};

#[derive(Debug, Subcommand)]
pub enum Clusters {
    /// All clusters with their health
    List,
    /// One cluster
    Show {
        /// Name or id
        name: String,
    },
    /// Take a cluster in by its kubeconfig, which the daemon keeps; again for another kubeconfig or other systems. One that
    /// was detached stays so until it is attached
    Add {
        name: String,
        /// A kubeconfig with everything in it: no programs and no names of files; "-" for standard input
        #[arg(long, value_name = "FILE")]
        kubeconfig: PathBuf,
        /// Systems to switch on, separated by commas
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        systems: Vec<String>,
        /// TOML with what may be said below [[cluster]] in the configuration, such as a table [claims] with pools
        #[arg(long, value_name = "FILE")]
        settings: Option<PathBuf>,
    },
    /// Take a cluster out that was added so; its leases are kept until it is forgotten. What fipd has put there stays, and a
    /// purge of the package warns of it: detach the cluster first
    Remove { name: String },
    /// Leave a cluster: switch its systems off for good and take away what fipd has put there; addresses are kept. Takes
    /// minutes where that is thousands of objects. Exit code 1 where something is left
    Detach {
        name: String,
        /// Only say what would be taken away
        #[arg(long)]
        dry_run: bool,
    },
    /// Switch the systems of a cluster on again that was left
    Attach { name: String },
    /// Free the orphaned leases of a cluster that is gone for good, and ask no more what of fipd's is left there
    Forget { name: String },
    /// Say that a cluster in state identity-conflict is the one that goes by another name: its etcd was restored, or it is
    /// reached by another kubeconfig
    Join {
        name: String,
        /// A name of the cluster that it is
        #[arg(long = "as", value_name = "OTHER")]
        other: String,
    },
    /// Say that a cluster in state identity-conflict is a clone: it becomes a cluster of its own, and is adopted as a new one
    NewIdentity { name: String },
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
    /// Keep the addresses of fipd's pools that Services of other load balancers show in a cluster and that are only reported:
    /// more than one cluster may hold, or what the first list after an upgrade has. `fipd clusters show` lists them
    ConfirmSightings { name: String },
}

impl Clusters {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        let path = |name: &str, verb: &str| format!("/api/v1/clusters/{}{verb}", segment(name));
        let client = &session.client;
        let outcome: Outcome = match self {
            Self::List => {
                return session
                    .show_list("/api/v1/clusters", "clusters", table)
                    .await;
            }
            Self::Show { name } => return session.show(&path(&name, ""), facts).await,
            Self::Add {
                name,
                kubeconfig,
                systems,
                settings,
            } => {
                let settings = settings.map(|path| read("--settings", &path));
                let body = ClusterAdd {
                    kubeconfig: read("--kubeconfig", &kubeconfig)?,
                    systems,
                    settings: settings.transpose()?.unwrap_or_default(),
                };
                client.write(Method::PUT, &path(&name, ""), &body).await?
            }
            Self::Remove { name } => {
                let path = path(&name, "");
                answer(&client.send(Method::DELETE, &path, None).await?)?
            }
            Self::Detach { name, dry_run } => return detach(session, &name, dry_run).await,
            Self::Attach { name } => client.post(&path(&name, "/attach"), &()).await?,
            Self::Forget { name } => client.post(&path(&name, "/forget"), &()).await?,
            Self::Join { name, other } => {
                client.post(&path(&name, "/join"), &Join { other }).await?
            }
            Self::NewIdentity { name } => client.post(&path(&name, "/new-identity"), &()).await?,
            Self::SkipAdoption { name, network } => {
                let body = SkipAdoption { network };
                client.post(&path(&name, "/skip-adoption"), &body).await?
            }
            Self::ConfirmRelease { name } => {
                client.post(&path(&name, "/confirm-release"), &()).await?
            }
            Self::ConfirmSightings { name } => {
                client.post(&path(&name, "/confirm-sightings"), &()).await?
            }
        };
        session.output.show(&outcome, done)
    }
}

async fn detach(session: &CliSession, name: &str, dry_run: bool) -> Result<(), Failure> {
    let path = format!("/api/v1/clusters/{}/detach", segment(name));
    let client = session.client.within(LEAVE_DEADLINE);
    let report: DetachReport = match dry_run {
        true => client.get(&path).await?,
        false => client.post(&path, &()).await?,
    };
    session.output.show(&report, steps)?;
    match report.clean || dry_run {
        true => Ok(()),
        false => Err(Failure::Failed(report.message)),
    }
}

fn steps(report: &DetachReport) -> Table {
    let mut table = Table::new(["STATE", "OBJECT", "WHAT"]);
    for step in &report.steps {
        let does = match &step.error {
            Some(error) => format!("{}: {error}", step.does),
            None => step.does.clone(),
        };
        table.row([step.state.clone(), step.object.clone(), does]);
    }
    for what in &report.left {
        table.row(["left".into(), String::new(), what.clone()]);
    }
    let result = report.message.clone();
    table.row(["result".into(), report.cluster.clone(), result]);
    table
}

/// The text of a file that an option names.
fn read(option: &str, path: &std::path::Path) -> Result<String, Failure> {
    let text = match path.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin()),
        false => std::fs::read_to_string(path),
    };
    text.map_err(|error| Failure::Input(format!("{option} {}: {error}", path.display())))
}

fn table(list: &ClusterList) -> Table {
    let row = |cluster: &ClusterView| {
        [
            cluster.name.clone(),
            cluster.state.clone(),
            cluster.systems.join(","),
            cluster.leases.to_string(),
            or_dash(cluster.last_error.as_ref()),
        ]
    };
    let heads = ["NAME", "STATE", "SYSTEMS", "LEASES", "LAST ERROR"];
    Table::of(heads, list.clusters.iter().map(row))
}

fn facts(cluster: &ClusterView) -> Table {
    let mut table = Table::facts([
        ("Name", cluster.name.clone()),
        ("Id", or_dash(cluster.id.as_ref())),
        ("Server", or_dash(cluster.server.as_ref())),
        ("State", cluster.state.clone()),
        ("Since", cluster.since.clone()),
        ("Last error", or_dash(cluster.last_error.as_ref())),
        ("Systems", cluster.systems.join(", ")),
        ("Discovered", yes_or_no(cluster.discovered)),
        ("Known from", cluster.found.clone()),
        ("Detached", yes_or_no(cluster.detached)),
        ("Leases", cluster.leases.to_string()),
        ("Held back", all_held_back(&cluster.held_back)),
        (
            "Sightings",
            cluster
                .sightings
                .as_ref()
                .map_or_else(String::new, sightings),
        ),
    ]);
    for (part, why) in &cluster.troubles {
        table.row([format!("Trouble ({part}):"), why.clone()]);
    }
    table
}

/// What Services of other load balancers use, and what waits for an admin.
fn sightings(report: &SightingsReport) -> String {
    let mut text = format!(
        "{} held, {} contended, {} only reported",
        report.held, report.contended, report.reported
    );
    if let Some(end) = &report.preview_until {
        text.push_str(&format!(" (a preview until {end})"));
    }
    for one in &report.examples {
        text.push_str(&format!(
            "; {} of pool {} by Service {}",
            one.address, one.pool, one.service
        ));
    }
    text
}

/// Every system: one word confirms all of them.
fn all_held_back(all: &[HeldBackView]) -> String {
    if all.is_empty() {
        return "-".to_owned();
    }
    let all: Vec<_> = all.iter().map(held_back).collect();
    all.join("; ")
}

fn held_back(held: &HeldBackView) -> String {
    format!(
        "{} leases of {} since {} (at most {} go by themselves)",
        held.leases, held.system, held.since, held.limit
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_foreign_services_use_is_shown_with_what_waits() {
        let report = SightingsReport {
            held: 16,
            contended: 1,
            reported: 240,
            examples: vec![crate::api::wire::SightedAddress {
                address: "10.60.0.16".to_owned(),
                pool: "net".to_owned(),
                service: "ns/web".to_owned(),
            }],
            preview_until: Some("2026-01-02T00:00:00Z".to_owned()),
        };
        let text = "16 held, 1 contended, 240 only reported (a preview until 2026-01-02T00:00:00Z); 10.60.0.16 of pool net by Service ns/web";
        assert_eq!(sightings(&report), text);
    }

    #[test]
    fn all_that_one_word_confirms_is_shown() {
        assert_eq!(all_held_back(&[]), "-");
        let held = |system: &str, leases| HeldBackView {
            system: system.to_owned(),
            leases,
            limit: 5,
            since: "2026-01-01T00:00:00Z".to_owned(),
        };
        let text = all_held_back(&[held("claims", 7), held("sixth", 12)]);
        assert!(text.starts_with("7 leases of claims"), "{text}");
        assert!(text.contains("; 12 leases of sixth"), "{text}");
    }
}
