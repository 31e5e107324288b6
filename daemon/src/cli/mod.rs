//! The command line: one file per group of commands.
//!
//! Every command but `serve`, `cni`, `crds`, `migrate`, `restore` and an offline `check` is a client of a running daemon and talks HTTP
//! over its Unix socket; none of them opens the store while a daemon has it.

mod adopt;
mod audit;
mod backup;
mod check;
mod client;
mod clock;
mod clusters;
mod cni;
mod compat;
mod crds;
#[cfg(test)]
mod documented_tests;
mod download;
mod exit;
mod hold;
mod lease;
mod man;
mod migrate;
mod network;
mod offline;
mod output;
mod password;
mod pool;
mod printed;
mod probe_helper;
mod quota;
mod reload;
mod restore;
mod rows;
mod rules;
mod serve;
mod session;
mod support_bundle;
pub(crate) mod system;
mod token;
mod user;
mod wants;
mod webhooks;

use std::{
    ffi::OsString,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use client::Client;
use exit::Failure;
use output::OutputArg;
use session::CliSession;

use crate::{
    config::{Systems, operation::SystemOperation},
    settings,
    system::System,
    systems::{self, SYSTEMS},
};

const ABOUT: &str = "One address book for a Rancher, Harvester or Cluster API site";

const LONG_ABOUT: &str = "\
fipd owns every address that a site hands out and never hands one out twice.

  fipd serve                     runs the daemon; without a configuration file it keeps an address book
                                 of its own, without any cluster
  fipd pool create vips --cidr 192.0.2.0/24
                                 makes a pool of addresses
  fipd lease allocate --pool vips --owner fipd/Host/lab/printer
                                 gives the lowest free address; asking again gives the same one
  fipd lease release --owner fipd/Host/lab/printer
                                 gives it back";

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 failed, 2 bad input, 3 not found, 4 pool exhausted. Errors are one line on stderr.

Commands talk to a running daemon over its Unix socket: --socket, else FIPD_SOCKET, else /run/fipd/fipd.sock,
else the socket of the user's own daemon.";

#[derive(Debug, Parser)]
#[command(name = "fipd", version, about = ABOUT, long_about = LONG_ABOUT, after_help = AFTER_HELP)]
#[command(propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
struct Global {
    /// Unix socket of the daemon
    #[arg(long, global = true, env = "FIPD_SOCKET", value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Form of the output
    #[arg(
        short,
        long,
        global = true,
        value_parser = OutputArg::form_parser(),
        default_value = "table",
        value_name = "FORM"
    )]
    output: OutputArg,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon
    #[command(long_about = serve::LONG_ABOUT)]
    Serve(Box<serve::Serve>),
    #[command(flatten)]
    Client(Box<ClientCommand>),
}

/// Commands that ask a running daemon, or need none.
#[derive(Debug, Subcommand)]
enum ClientCommand {
    /// Make, show and change pools of addresses
    #[command(subcommand)]
    Pool(pool::Pool),
    /// Give, show and take back addresses
    #[command(subcommand)]
    Lease(lease::Lease),
    /// Routing domains: inside one an address is given once
    #[command(subcommand)]
    Network(network::Network),
    /// How much of a pool a tenant may hold
    #[command(subcommand)]
    Quota(quota::Quota),
    /// Kubernetes clusters that the daemon serves
    #[command(subcommand)]
    Clusters(clusters::Clusters),
    /// Take a site over from the programs that fipd replaces
    Adopt(adopt::Adopt),
    /// Move a cluster from the kinds of an older program to those that fipd serves
    #[command(subcommand)]
    Migrate(migrate::Migrate),
    /// Policy-routing rules of the daemon's host
    #[command(subcommand)]
    Rules(rules::Rules),
    /// The CNI plugin of this host
    #[command(subcommand)]
    Cni(cni::Cni),
    /// Who did what, newest first
    Audit(audit::Audit),
    /// Have the daemon read its configuration, kubeconfigs and certificates again
    #[command(long_about = reload::LONG_ABOUT)]
    Reload(reload::Reload),
    /// Who is told of events by HTTP
    #[command(subcommand)]
    Webhooks(webhooks::Webhooks),
    /// Verify the address book, the store and the configuration
    #[command(long_about = check::LONG_ABOUT)]
    Check(check::Check),
    /// Write a copy of the store to a file while the daemon runs
    #[command(long_about = backup::LONG_ABOUT)]
    Backup(backup::Backup),
    /// Put a backup in the place of the store while no daemon runs
    #[command(long_about = restore::LONG_ABOUT)]
    Restore(restore::Restore),
    /// The store's file while no daemon runs
    #[command(subcommand)]
    Store(offline::Store),
    /// Which host the store belongs to
    #[command(subcommand)]
    Host(offline::Host),
    /// Free addresses that are held after a restore
    #[command(subcommand)]
    Hold(hold::Hold),
    /// The time of the address book and the host's clock
    #[command(subcommand)]
    Clock(clock::Clock),
    /// Write networks, separations, pools, quotas and leases from a file, all or none
    #[command(long_about = rows::IMPORT_LONG_ABOUT)]
    Import(rows::Import),
    /// Write out all leases, pools, networks, separations, quotas or the audit log
    Export(rows::Export),
    /// Bearer tokens for the REST API
    #[command(subcommand)]
    Token(token::Token),
    /// People who sign in to the pages
    #[command(subcommand)]
    User(user::User),
    /// Collect what somebody needs who is to help, without secrets, in one file
    SupportBundle(support_bundle::SupportBundle),
    /// The configuration file
    #[command(subcommand)]
    Config(printed::Config),
    /// Print fipd's CustomResourceDefinitions, or install them in a cluster
    Crds(crds::Crds),
    /// Print what the documentation has of the program itself
    #[command(hide = true)]
    Docs(printed::Docs),
    /// Print a script that completes fipd's command line in a shell
    Completions(printed::Completions),
    /// Check whether an address is in use, as fipd-probe@.service does it: the request is on the socket that is standard input
    #[command(hide = true)]
    ProbeHelper,
    /// Write the manual pages of all commands into a folder, for packages
    #[command(hide = true)]
    Man(man::Pages),
}

/// The command line with what systems add.
fn command() -> clap::Command {
    command_of(*SYSTEMS, systems::ALL)
}

/// The same with what these add.
pub(crate) fn command_of(known: Systems, all: &[&dyn System]) -> clap::Command {
    let command = Cli::command()
        .mut_subcommand("serve", compat::with_flags)
        .mut_subcommand("adopt", |adopt| adopt::with_systems(adopt, all));
    system::with_commands(command, known)
}

/// What the command line asks for.
enum Parsed {
    Own(Cli),
    /// An operation of a system, and the path of its route.
    OfSystem(Global, &'static SystemOperation, String),
}

fn parsed(arguments: impl Iterator<Item = OsString>) -> Result<Parsed, clap::Error> {
    let matches = command().try_get_matches_from(compat::double_dashes(arguments))?;
    if let Some((operation, path)) = system::asked(&matches, *SYSTEMS) {
        let global = Global::from_arg_matches(&matches)?;
        return Ok(Parsed::OfSystem(global, operation, path));
    }
    let mut cli = Cli::from_arg_matches(&matches)?;
    if let (Command::Serve(serve), Some(given)) =
        (&mut cli.command, matches.subcommand_matches("serve"))
    {
        serve.take_compat(compat::values(given));
    }
    Ok(Parsed::Own(cli))
}

/// Runs the process's command line.
pub fn main() -> ExitCode {
    let parsed = match parsed(std::env::args_os()) {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error),
    };
    match run(parsed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&failure.to_string());
            failure.exit_code()
        }
    }
}

/// Help and version go to stdout as they are; a wrong command line becomes one line.
fn usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    let kind = error.kind();
    if matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let shown = output::print(&error.render().to_string());
        return if shown.is_ok() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    if kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // Nothing was asked for: the help is the error message.
        let _ = write!(std::io::stderr(), "{}", error.render());
    } else {
        complain(&exit::usage_line(error));
    }
    ExitCode::from(2)
}

fn complain(line: &str) {
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    // There is nobody left to tell when stderr is closed.
    let _ = writeln!(std::io::stderr(), "fipd: {line}");
}

fn run(parsed: Parsed) -> Result<(), Failure> {
    match parsed {
        Parsed::OfSystem(global, operation, path) => as_client(&global, async |session, _| {
            system::run(session, operation, &path).await
        }),
        Parsed::Own(Cli { global, command }) => match command {
            Command::Serve(serve) => serve.run(global.socket),
            Command::Client(command) => as_client(&global, async |session, socket| {
                command.run(session, socket).await
            }),
        },
    }
}

/// Runs a command that is no daemon.
fn as_client(
    global: &Global,
    command: impl AsyncFnOnce(&CliSession, &Path) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let socket = global.socket.clone();
    let socket = socket.unwrap_or_else(settings::client_socket);
    let session = CliSession {
        client: Client::new(&socket),
        output: global.output.form(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    runtime.block_on(command(&session, &socket))
}

impl ClientCommand {
    async fn run(self, session: &CliSession, socket: &Path) -> Result<(), Failure> {
        match self {
            Self::Pool(command) => command.run(session).await,
            Self::Lease(command) => command.run(session).await,
            Self::Network(command) => command.run(session).await,
            Self::Quota(command) => command.run(session).await,
            Self::Clusters(command) => command.run(session).await,
            Self::Adopt(command) => command.run(session).await,
            Self::Migrate(command) => command.run(session).await,
            Self::Rules(command) => command.run(session).await,
            Self::Cni(command) => command.run(session).await,
            Self::Audit(command) => command.run(session).await,
            Self::Reload(command) => command.run(session).await,
            Self::Webhooks(command) => command.run(session).await,
            Self::Check(command) => command.run(session, socket).await,
            Self::Backup(command) => command.run(session).await,
            Self::Restore(command) => command.run(session),
            Self::Store(command) => command.run(session),
            Self::Host(command) => command.run(session),
            Self::Hold(command) => command.run(session).await,
            Self::Clock(command) => command.run(session).await,
            Self::Import(command) => command.run(session).await,
            Self::Export(command) => command.run(session).await,
            Self::Token(command) => command.run(session).await,
            Self::User(command) => command.run(session).await,
            Self::SupportBundle(command) => command.run(session).await,
            Self::Config(command) => command.run(),
            Self::Crds(command) => command.run(session).await,
            Self::Docs(command) => command.run(),
            Self::Completions(command) => command.run(),
            Self::ProbeHelper => probe_helper::run().await,
            Self::Man(command) => command.run(),
        }
    }
}

/// A path on the command line that must be given as UTF-8 to be shown.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::{output::Format, *};

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        match parsed(line.split_whitespace().map(Into::into))? {
            Parsed::Own(cli) => Ok(cli),
            Parsed::OfSystem(..) => panic!("{line}: a command of a system"),
        }
    }

    #[test]
    fn commands_of_systems_are_asked_at_their_routes() {
        let path = |line: &str| match parsed(line.split_whitespace().map(Into::into)).unwrap() {
            Parsed::OfSystem(global, _, path) => (path, global.output.form()),
            Parsed::Own(cli) => panic!("{cli:?}"),
        };
        let (rotate, output) = path("fipd rancher-fip rotate-secret p/1 -o json");
        assert_eq!(rotate, "/api/v1/projects/p%2F1/rotate-secret");
        assert_eq!(output, Format::Json);
        let guests = "/api/v1/guests?system=rancher-fip";
        assert_eq!(path("fipd rancher-fip guests").0, guests);
        let missing = parse("fipd rancher-fip rotate-secret").unwrap_err();
        assert!(exit::usage_line(&missing).contains("<project>"));
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn help_of_a_command_says_all_that_is_to_be_said() {
        for (command, word) in [
            ("serve", "initial-admin"),
            ("restore", "adopted"),
            ("check", "offline"),
        ] {
            let help = parse(&format!("fipd {command} --help")).unwrap_err();
            let help = help.to_string();
            let about = help.split("Usage:").next().unwrap_or_default();
            assert!(about.contains(word) && about.lines().count() > 3, "{help}");
        }
    }

    #[test]
    fn global_options_may_come_last() {
        let cli = parse("fipd pool list -o json --socket /tmp/x").unwrap();
        assert_eq!(cli.global.output.form(), Format::Json);
        assert_eq!(cli.global.socket.as_deref(), Some(Path::new("/tmp/x")));
    }

    #[test]
    fn where_the_output_is_a_file_the_form_is_given_before() {
        for (line, form) in [
            ("backup -o b.yaml", Format::Table),
            ("backup --output=json", Format::Table),
            ("clean -o json", Format::Json),
        ] {
            let cli = parse(&format!("fipd migrate flat-network {line}")).unwrap();
            assert_eq!(cli.global.output.form(), form, "{line}");
        }
        let cli = parse("fipd -o json migrate flat-network backup").unwrap();
        assert_eq!(cli.global.output.form(), Format::Json);
    }

    #[test]
    fn wrong_command_lines_become_one_line() {
        for (line, expected) in [
            (
                "fipd pool create",
                "the following required arguments were not provided",
            ),
            (
                "fipd lease allocate --pool p --owner a/b/c/d --count x",
                "'x' for '--count",
            ),
            (
                "fipd pool list -o xml",
                "possible values: table, json, yaml",
            ),
            ("fipd pool create p --cidr 10.0.0.0/99", "--cidr"),
            ("fipd nonsense", "nonsense"),
            (
                "fipd migrate flat-network migrate --workload deployment,pod",
                "deployment, daemonset, statefulset, cronjob, job",
            ),
            ("fipd migrate flat-network clean --interval soon", "500ms"),
            ("fipd migrate flat-network clean --list-limit 0", "1..=500"),
            ("fipd migrate flat-network backup --v1=maybe", "'maybe'"),
            ("fipd cni install --pool lan4", "--network"),
            ("fipd cni status --bin-dir", "--bin-dir"),
            (
                "fipd adopt claims --cluster east",
                "possible values: rancher-fip, ip-rule",
            ),
        ] {
            let text = exit::usage_line(&parse(line).unwrap_err());
            assert!(text.contains(expected), "{line}: {text}");
            assert!(!text.contains('\n'));
        }
    }
}
