//! `cargo torture`: what is too long for every change. Goes round and round until the time is up.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::steps::{Step, Tally};
use super::suites::{end_to_end, end_to_end_targets};
use crate::say::say;

/// How much more than in `verify` the tests are to do.
const MORE: [(&str, &str); 6] = [
    ("FIPD_KILL_ROUNDS", "100"),
    ("FIPD_SOAK_SECONDS", "600"),
    ("FIPD_FUZZ_SECONDS", "600"),
    // The version that `verify` does not take.
    ("FIPD_HELM", "4"),
    ("FIPD_WEEKS", "50"),
    ("PROPTEST_CASES", "20000"),
];

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How long to go on; a step that has begun is finished
    #[arg(long, value_name = "N", default_value_t = 60)]
    minutes: u64,
}

/// Runs the steps in turn, and stops at the first that fails: its output is what there is to look at.
pub async fn run(arguments: &Arguments) -> Result<ExitCode> {
    let end = Instant::now() + Duration::from_secs(arguments.minutes * 60);
    let mut targets = end_to_end_targets()?;
    // What kills fipd over and over is what this command is for, so it comes early.
    targets.sort_by_key(|target| !["kill", "rules_soak"].contains(&target.as_str()));
    let mut sum = Tally::default();
    let mut round = 0;
    'time: loop {
        round += 1;
        for target in std::iter::once(None).chain(targets.iter().map(Some)) {
            if Instant::now() >= end {
                break 'time;
            }
            let name = target.map_or("properties", String::as_str);
            say(format_args!("=== round {round}: {name}"));
            let tally = match target {
                None => properties().await?,
                Some(target) => {
                    let test = end_to_end(target, &MORE).await?;
                    test.with(ignored(target)).run().await?
                }
            };
            sum.add(tally);
            if tally.failed > 0 {
                break 'time;
            }
        }
    }
    say(format_args!("{} passed, {} failed", sum.passed, sum.failed));
    Ok(if sum.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Tests that are only for here: release builds of the packages.
fn ignored(target: &str) -> &'static [&'static str] {
    if target == "package" {
        &["--include-ignored"]
    } else {
        &[]
    }
}

/// The property tests with many more histories than in `verify`.
async fn properties() -> Result<Tally> {
    let tests = Step::cargo(&["test", "--package", "fipd-core", "--lib", "--tests"]);
    let more = |test: Step, (name, value): &(&str, &str)| test.env(name, *value);
    MORE.iter().fold(tests, more).run().await
}
