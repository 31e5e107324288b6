//! `fipd adopt`.

use clap::{Args, Command, builder::PossibleValue};

use super::{CliSession, client::segment, exit::Failure, output::Table};
use crate::{api::wire::AdoptReport, system::System};

#[derive(Debug, Args)]
pub struct Adopt {
    /// What is taken over
    system: String,
    /// Name of the cluster in the configuration
    #[arg(long, value_name = "NAME")]
    cluster: String,
    /// Only say what is found and what would change
    #[arg(long)]
    dry_run: bool,
}

/// The command for those of these systems whose originals leave something to take over.
pub(super) fn with_systems(command: Command, all: &[&dyn System]) -> Command {
    let value = |system: &&dyn System| {
        let what = system.adopts()?;
        Some(PossibleValue::new(system.config().name).help(what))
    };
    let values: Vec<_> = all.iter().filter_map(value).collect();
    command.mut_arg("system", |argument| argument.value_parser(values))
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
