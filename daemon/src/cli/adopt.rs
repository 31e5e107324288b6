//! `fipd adopt`.

use clap::{Args, builder::PossibleValue};

use super::{CliSession, client::segment, exit::Failure, output::Table};
use crate::{api::wire::AdoptReport, system::System, systems};

#[derive(Debug, Args)]
pub struct Adopt {
    /// What is taken over
    #[arg(value_parser = adopting())]
    system: String,
    /// Name of the cluster in the configuration
    #[arg(long, value_name = "NAME")]
    cluster: String,
    /// Only say what is found and what would change
    #[arg(long)]
    dry_run: bool,
}

/// The systems whose originals leave something to take over.
fn adopting() -> Vec<PossibleValue> {
    let systems = systems::ALL.iter();
    let value = |system: &&dyn System| {
        let what = system.adopts()?;
        Some(PossibleValue::new(system.config().name).help(what))
    };
    systems.filter_map(value).collect()
}

impl Adopt {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        let cluster = segment(&self.cluster);
        let path = format!("/api/v1/clusters/{cluster}/adopt/{}", self.system);
        let report: AdoptReport = match self.dry_run {
            true => session.client.get(&path).await?,
            false => session.client.post(&path, &()).await?,
        };
        session.output.show(&report, table)?;
        let failed = report.changes.iter().any(|change| change.state == "failed");
        if failed && !self.dry_run {
            return Err(Failure::Failed(report.message));
        }
        Ok(())
    }
}

fn table(report: &AdoptReport) -> Table {
    let mut table = Table::new(["WHAT", "STATE", "NAME", "DETAIL"]);
    let mut row = |what: &str, state: &str, name: &str, detail: &str| {
        table.row([what, state, name, detail].map(str::to_owned));
    };
    for (what, count) in &report.counts {
        row("count", "", what, &count.to_string());
    }
    for one in &report.findings {
        let state = if one.fine { "ok" } else { "look" };
        row(&one.kind, state, &one.name, &one.detail);
    }
    for what in &report.unseen {
        row("unseen", "look", "", what);
    }
    for change in &report.changes {
        let does = match &change.error {
            Some(error) => format!("{}: {error}", change.does),
            None => change.does.clone(),
        };
        let by = format!("change by {}", change.by);
        row(&by, &change.state, &change.name, &does);
    }
    for what in &report.blockers {
        row("blocker", "look", "", what);
    }
    row("result", "", &report.cluster, &report.message);
    table
}
