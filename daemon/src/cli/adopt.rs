//! `fipd adopt`.

use clap::Subcommand;

use super::{Session, client::segment, exit::Failure, output::Table};
use crate::api::wire::AdoptReport;

#[derive(Debug, Subcommand)]
pub enum Adopt {
    /// Pools, quotas and addresses of rancher-fip, and what its original programs left
    RancherFip {
        /// Name of the Rancher cluster
        #[arg(long, value_name = "NAME")]
        cluster: String,
        /// Only say what is found and what would change
        #[arg(long)]
        dry_run: bool,
    },
    /// Rules of the daemon's host that ip-rule-operator made
    IpRule {
        /// Name of the cluster whose rules these are
        #[arg(long, value_name = "NAME")]
        cluster: String,
        /// Only say what is found and what would change
        #[arg(long)]
        dry_run: bool,
    },
}

impl Adopt {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let (system, cluster, dry_run) = match self {
            Self::RancherFip { cluster, dry_run } => ("rancher-fip", cluster, dry_run),
            Self::IpRule { cluster, dry_run } => ("ip-rule", cluster, dry_run),
        };
        let path = format!("/api/v1/clusters/{}/adopt/{system}", segment(&cluster));
        let report: AdoptReport = match dry_run {
            true => session.client.get(&path).await?,
            false => session.client.post(&path, &()).await?,
        };
        session.output.show(&report, table)?;
        let failed = report.changes.iter().any(|change| change.state == "failed");
        if failed && !dry_run {
            return Err(Failure::Failed(report.message));
        }
        Ok(())
    }
}

fn table(report: &AdoptReport) -> Table {
    let mut table = Table::new(["WHAT", "STATE", "NAME", "DETAIL"]);
    for (what, count) in &report.counts {
        table.row([
            "count".into(),
            String::new(),
            what.clone(),
            count.to_string(),
        ]);
    }
    for one in &report.findings {
        let state = if one.fine { "ok" } else { "look" };
        let (kind, name) = (one.kind.clone(), one.name.clone());
        table.row([kind, state.into(), name, one.detail.clone()]);
    }
    for what in &report.unseen {
        table.row(["unseen".into(), "look".into(), String::new(), what.clone()]);
    }
    for change in &report.changes {
        let does = match &change.error {
            Some(error) => format!("{}: {error}", change.does),
            None => change.does.clone(),
        };
        let by = format!("change by {}", change.by);
        table.row([by, change.state.clone(), change.name.clone(), does]);
    }
    for what in &report.blockers {
        table.row(["blocker".into(), "look".into(), String::new(), what.clone()]);
    }
    let result = report.message.clone();
    table.row([
        "result".into(),
        String::new(),
        report.cluster.clone(),
        result,
    ]);
    table
}
