//! `fipd migrate`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Arg, ArgAction, Args, Subcommand, builder::BoolishValueParser};

use super::{
    CliSession,
    exit::Failure,
    output::{self, Format, OutputArg, Table},
    shown,
};
use crate::{
    clusters,
    controller::client::Remote,
    foreign_file,
    logging::{self, LogFormat},
    migrate::{
        self, Consent, FileObject, LONGEST_FILE, MigrateError, MigratedParts, MigrationOptions,
        MigrationReport, MigrationSession, ObjectOutcome, SavedParts, WorkloadKind,
    },
};

const DEFAULT_FILE: &str = "flat-network-backup-output.yaml";
const WORKLOADS: &str = "deployment,daemonset,statefulset,cronjob,job";
const VERSION: &str = concat!("fipd ", env!("CARGO_PKG_VERSION"), "\n");
/// How long the log may take to be written.
const FLUSH: Duration = Duration::from_secs(2);
/// The longest pause between two writes.
const LONGEST_INTERVAL: Duration = Duration::from_secs(3_600);

const LONG_ABOUT: &str = "\
Move a cluster from macvlan (macvlan.cluster.cattle.io) to flat-network (flatnetwork.pandaria.io): subnets, the templates
of workloads, and companion Services. No daemon is needed: the cluster is reached by a kubeconfig, as kubectl does it.

Each command can be interrupted and run again at any time; what is done is skipped. Its report names every object and what
became of it. Exit code 1: something failed and is in the report; 2: a flag or the file makes no sense.";

/// A flag that takes a value or none.
trait SwitchArg {
    /// It is `true` unless `=false` or the like follows it.
    fn switch(self) -> Self;
}

impl SwitchArg for Arg {
    fn switch(self) -> Self {
        self.action(ArgAction::Set)
            .value_parser(BoolishValueParser::new())
            .value_name("BOOL")
            .num_args(0..=1)
            .require_equals(true)
            .default_value("true")
            .default_missing_value("true")
    }
}

#[derive(Debug, Subcommand)]
pub enum Migrate {
    /// From macvlan to flat-network
    #[command(long_about = LONG_ABOUT)]
    FlatNetwork(MigrateFlatNetwork),
}

#[derive(Debug, Args)]
pub struct MigrateFlatNetwork {
    /// Kubeconfig of the cluster [default: ~/.kube/config]
    #[arg(long, global = true, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig instead of its current one
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// Pause between two writes
    #[arg(
        long,
        global = true,
        value_name = "DURATION",
        default_value = "500ms",
        value_parser = interval
    )]
    interval: Duration,
    /// Objects of a page of a list
    #[arg(
        long,
        global = true,
        value_name = "N",
        default_value_t = 30,
        value_parser = clap::value_parser!(u32).range(1..=500)
    )]
    list_limit: u32,
    /// Answer all questions with yes
    #[arg(long, global = true)]
    yes: bool,
    /// Log each step on stderr
    #[arg(long, global = true)]
    debug: bool,
    #[command(subcommand)]
    step: MigrateStep,
}

#[derive(Debug, Subcommand)]
enum MigrateStep {
    /// Save definitions, subnets and companion Services in a file
    Backup {
        /// Definitions and subnets of macvlan
        #[arg(long = "v1", switch())]
        v1: bool,
        /// Definitions, namespace and subnets of flat-network
        #[arg(long = "v2", switch())]
        v2: bool,
        /// Companion Services of macvlan
        #[arg(long = "v1-service", switch())]
        v1_service: bool,
        /// File to write, readable by its owner only
        #[arg(
            short,
            long,
            value_parser = OutputArg::file_parser(),
            default_value = DEFAULT_FILE,
            value_name = "FILE"
        )]
        output: OutputArg,
    },
    /// Make what a backup has where it is missing
    Restore {
        /// File of a backup
        #[arg(short, long, default_value = DEFAULT_FILE, value_name = "FILE")]
        file: PathBuf,
        /// Only print what would be made
        #[arg(long)]
        dry_run: bool,
    },
    /// Make subnets and companion Services of flat-network, and change the templates of workloads
    Migrate {
        /// Kinds of workloads
        #[arg(
            long,
            value_enum,
            value_delimiter = ',',
            default_value = WORKLOADS,
            value_name = "KINDS"
        )]
        workload: Vec<WorkloadKind>,
        /// Make companion Services, and rename the annotation of Ingresses
        #[arg(long = "migrate-service", switch())]
        migrate_service: bool,
        /// Only print what would change
        #[arg(long)]
        dry_run: bool,
    },
    /// Delete subnets and definitions of macvlan, once no pod has an address of it
    Clean {
        /// Only print what would be deleted
        #[arg(long)]
        dry_run: bool,
    },
    /// Print the version
    Version,
}

impl Migrate {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        let Self::FlatNetwork(command) = self;
        if command.debug {
            logging::start(LogFormat::Text, "fipd=debug").map_err(Failure::failed)?;
        }
        let done = command.run(session.output).await;
        logging::flush(FLUSH);
        done
    }
}

impl MigrateFlatNetwork {
    async fn run(&self, form: Format) -> Result<(), Failure> {
        let (run, ended) = match &self.step {
            MigrateStep::Version => return output::print(VERSION),
            MigrateStep::Backup {
                v1,
                v2,
                v1_service,
                output,
            } => {
                let file = output.file().unwrap_or(Path::new(DEFAULT_FILE));
                let parts = SavedParts {
                    v1: *v1,
                    v2: *v2,
                    v1_service: *v1_service,
                };
                let mut run = self.session("backup", false).await?;
                let ended = migrate::backup(&mut run, parts, file).await;
                (run, ended)
            }
            MigrateStep::Restore { file, dry_run } => {
                self.can_ask(*dry_run)?;
                let objects = objects(file).await?;
                let mut run = self.session("restore", *dry_run).await?;
                let ended = migrate::restore(&mut run, objects).await;
                (run, ended)
            }
            MigrateStep::Migrate {
                workload,
                migrate_service,
                dry_run,
            } => {
                self.can_ask(*dry_run)?;
                let parts = MigratedParts {
                    workloads: workload.clone(),
                    services: *migrate_service,
                };
                let mut run = self.session("migrate", *dry_run).await?;
                let ended = migrate::migrate(&mut run, &parts).await;
                (run, ended)
            }
            MigrateStep::Clean { dry_run } => {
                self.can_ask(*dry_run)?;
                let mut run = self.session("clean", *dry_run).await?;
                let ended = migrate::clean(&mut run).await;
                (run, ended)
            }
        };
        show(form, &run.report, ended)
    }

    /// Refuses where questions would be asked that nobody can answer.
    fn can_ask(&self, dry_run: bool) -> Result<(), Failure> {
        if self.yes || dry_run || migrate::somebody_is_there() {
            return Ok(());
        }
        Err(Failure::Input(
            "--yes: false is not allowed: standard input is no terminal, so nobody can agree to changes; add --yes, or --dry-run to see them first".to_owned(),
        ))
    }

    async fn session(
        &self,
        command: &'static str,
        dry_run: bool,
    ) -> Result<MigrationSession, Failure> {
        let refused = |why: String| {
            Failure::Input(format!(
                "--kubeconfig: {why}; name a kubeconfig of the cluster"
            ))
        };
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let home = home.unwrap_or_else(|| PathBuf::from("/"));
        let named = self.kubeconfig.clone();
        let named = named.filter(|path| !path.as_os_str().is_empty());
        let path = named.unwrap_or_else(|| home.join(".kube/config"));
        let client = clusters::client_of_file(&path, self.context.as_deref(), &home).await;
        let options = MigrationOptions {
            consent: match (dry_run, self.yes) {
                (true, _) => Consent::DryRun,
                (false, true) => Consent::Given,
                (false, false) => Consent::Ask,
            },
            interval: self.interval,
            page: self.list_limit,
        };
        let remote = Remote::new(client.map_err(refused)?);
        Ok(MigrationSession::new(command, remote, options))
    }
}

/// The objects of a backup.
async fn objects(file: &Path) -> Result<Vec<FileObject>, Failure> {
    let refused = |why: String| {
        Failure::Input(format!(
            "--file: \"{}\" is not allowed: {why}; name a file that fipd migrate flat-network backup has written",
            shown(file)
        ))
    };
    let text = foreign_file::read_text(file, LONGEST_FILE).await;
    let text = text.map_err(|error| refused(error.to_string()))?;
    let objects = migrate::read_file(&text).map_err(refused)?;
    match objects.is_empty() {
        true => Err(refused("it has no objects".to_owned())),
        false => Ok(objects),
    }
}

/// Prints the report, also of a command that ended early.
fn show(
    form: Format,
    report: &MigrationReport,
    ended: Result<(), MigrateError>,
) -> Result<(), Failure> {
    if ended.is_ok() || !report.objects.is_empty() {
        form.show(report, table)?;
    }
    ended.map_err(|error| match error {
        MigrateError::Input(why) => Failure::Input(why),
        MigrateError::Failed(why) => Failure::Failed(why),
    })?;
    match report.count(ObjectOutcome::Failed) {
        0 => Ok(()),
        failed => Err(Failure::Failed(format!(
            "{failed} of {} objects failed; correct what the report says of them, and run it again",
            report.objects.len()
        ))),
    }
}

fn table(report: &MigrationReport) -> Table {
    let mut table = Table::new(["KIND", "NAME", "RESULT", "DETAIL"]);
    for object in &report.objects {
        let mut row = |result: &str, detail: &str| {
            let (kind, name) = (object.kind.as_str(), object.name.as_str());
            table.row([kind, name, result, detail].map(str::to_owned));
        };
        row(object.outcome.name(), &object.detail);
        object.changes.iter().for_each(|one| row("change", one));
        object.notes.iter().for_each(|one| row("look", one));
    }
    let what = match report.dry_run {
        true => "dry run",
        false => "result",
    };
    let summary = report.summary();
    table.row([what, report.command, "", summary.as_str()].map(str::to_owned));
    table
}

/// Reads a duration as Go writes it, such as `500ms` or `1m30s`.
fn interval(text: &str) -> Result<Duration, String> {
    let refused = || "a duration such as 500ms, 2s or 1m30s is allowed, at most 1h".to_owned();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut seconds) = (text, 0.0);
    while !rest.is_empty() || text.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let unit = rest.find(|c: char| !is_number(c)).ok_or_else(refused)?;
        let (number, after) = rest.split_at(unit);
        let (unit, next) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        let number: f64 = number.parse().map_err(|_| refused())?;
        seconds += number
            * match unit {
                "ns" => 1e-9,
                "us" | "µs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3_600.0,
                _ => return Err(refused()),
            };
        rest = next;
    }
    let interval = Duration::try_from_secs_f64(seconds).ok();
    let interval = interval.filter(|interval| *interval <= LONGEST_INTERVAL);
    interval.ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        migrate: Migrate,
    }

    fn parse(line: &str) -> MigrateFlatNetwork {
        let words = ["fipd", "flat-network"].into_iter();
        let line = Line::try_parse_from(words.chain(line.split_whitespace()));
        let Migrate::FlatNetwork(command) = line.unwrap().migrate;
        command
    }

    #[test]
    fn flags_have_the_defaults_of_the_original() {
        let command = parse("migrate");
        assert_eq!(command.interval, Duration::from_millis(500));
        assert_eq!(command.list_limit, 30);
        assert!(!command.yes && !command.debug);
        let MigrateStep::Migrate {
            workload,
            migrate_service: true,
            dry_run: false,
        } = &command.step
        else {
            panic!("{command:?}");
        };
        assert_eq!(workload.len(), 5);
        let command = parse("backup");
        assert!(
            matches!(&command.step, MigrateStep::Backup { v1: true, v2: true, v1_service: true, output }
                if output.file() == Some(Path::new(DEFAULT_FILE))),
            "{command:?}"
        );
    }

    #[test]
    fn switches_take_a_value_and_global_flags_come_anywhere() {
        let command = parse("--yes backup --v1=false --v2 --v1-service=0 --list-limit 7");
        assert!(
            matches!(
                &command.step,
                MigrateStep::Backup {
                    v1: false,
                    v2: true,
                    v1_service: false,
                    ..
                }
            ),
            "{command:?}"
        );
        assert!(command.yes);
        assert_eq!(command.list_limit, 7);
        let command = parse("migrate --workload job,cronjob --migrate-service=false --debug");
        let MigrateStep::Migrate {
            workload,
            migrate_service: false,
            ..
        } = &command.step
        else {
            panic!("{command:?}");
        };
        assert_eq!(*workload, [WorkloadKind::Job, WorkloadKind::CronJob]);
        assert!(command.debug);
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("500ms", 500),
            ("1.5s", 1_500),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(interval(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "", "500", "ms", "-1s", "1h1s", "1 s", "1d", ".s", "1.2.3s", "€",
        ] {
            assert!(interval(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_failure_in_the_report_is_one_of_the_command() {
        let mut report = MigrationReport::new("migrate", false);
        report.objects.push(migrate::MigratedObject {
            kind: "Deployment".to_owned(),
            name: "shop/web".to_owned(),
            outcome: ObjectOutcome::Failed,
            detail: "out of luck".to_owned(),
            changes: vec!["a becomes b".to_owned()],
            notes: vec!["look here".to_owned()],
        });
        let failure = show(Format::Table, &report, Ok(())).unwrap_err();
        assert_eq!(failure.code(), 1);
        let input = Err(MigrateError::Input("--file".to_owned()));
        assert_eq!(show(Format::Json, &report, input).unwrap_err().code(), 2);
    }
}
