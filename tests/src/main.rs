//! `fipd-tests`: the project's commands behind the cargo aliases.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fipd_tests::runner::{bench_peers, demo, torture, verify};
use fipd_tests::say;

/// The project's own commands; run them as `cargo demo`, `cargo verify`, `cargo torture` and `cargo bench-peers`.
#[derive(Parser)]
#[command(name = "fipd-tests", bin_name = "cargo")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a small site on this machine and let fipd give a Service its address
    Demo(demo::Arguments),
    /// Everything that must hold before a change goes in
    Verify(verify::Arguments),
    /// The long versions: many kill rounds, many property cases, the e2e suites over and over
    Torture(torture::Arguments),
    /// Measure against peers and physical floors, and compare with the budgets
    BenchPeers(bench_peers::Arguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Demo(arguments) => demo::run(&arguments).await,
        Command::Verify(arguments) => verify::run(&arguments).await,
        Command::Torture(arguments) => torture::run(&arguments).await,
        Command::BenchPeers(arguments) => bench_peers::run(&arguments).await,
    };
    done.unwrap_or_else(|error| {
        say::progress(format_args!("failed: {error:#}"));
        ExitCode::FAILURE
    })
}
