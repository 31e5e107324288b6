//! `cargo verify`: all suites, those that mostly wait beside each other, a time table, and one plain line at the end.

use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::stream::{FuturesUnordered, StreamExt as _};
use nix::sys::statvfs::statvfs;
use tokio::time;

use super::processors::ProcessorTimes;
use super::steps::Tally;
use super::suites::Suite;
use super::target_directory;
use crate::say::{progress, say};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Run only this suite, or `e2e` for all end-to-end suites; can be given several times
    #[arg(long, value_name = "SUITE")]
    only: Vec<String>,
    /// Print the names of the suites and do nothing
    #[arg(long)]
    list: bool,
}

/// How many suites run beside each other: they wait for API servers more than two cores are busy.
const AT_ONCE: usize = 6;
/// The most, where processors have nothing to do all the same.
const AT_MOST: usize = 9;
/// Between two looks at the processors: a suite that began is busy by the next one.
const LOOK: Duration = Duration::from_secs(10);
/// One more suite begins where more is idle, in percent.
const IDLE: u64 = 30;

const GB: u64 = 1_000_000_000;
/// What a run with nothing in the caches takes of the disk, in GB, with room for what the tests write.
const COLD: u64 = 30;

/// What became of one suite.
struct Row {
    name: String,
    tally: Tally,
    error: Option<String>,
    remark: Option<String>,
    took: Duration,
}

/// Runs the suites. All of them run even when one fails; the exit code says whether all were good.
pub async fn run(arguments: &Arguments) -> Result<ExitCode> {
    let suites = chosen(Suite::all()?, &arguments.only)?;
    if arguments.list {
        for suite in suites {
            say(suite.name());
        }
        return Ok(ExitCode::SUCCESS);
    }
    tell_of_space();
    let start = Instant::now();
    let (beside, alone): (Vec<_>, Vec<_>) = suites.into_iter().partition(Suite::runs_beside);
    let mut rows = Vec::new();
    run_all(&alone, 1..=1, &mut rows).await;
    if !rows.iter().any(Row::is_interrupted) {
        run_all(&beside, AT_ONCE..=AT_MOST, &mut rows).await;
    }
    report(&rows, start.elapsed());
    Ok(if rows.iter().all(Row::is_good) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Says what is free where it builds: a full disk shows as failures of whatever writes next.
fn tell_of_space() {
    let place = target_directory();
    let there = place.ancestors().find_map(|path| statvfs(path).ok());
    let free = there.map(|disk| disk.blocks_available() * disk.fragment_size() / GB);
    if let Some(free @ ..COLD) = free {
        progress(format_args!(
            "{free} GB are free at {}; on a machine that has built nothing yet, {COLD} GB are needed",
            place.display()
        ));
    }
}

/// Runs them, so many at a time, and begins no more of them once one is interrupted.
async fn run_all(suites: &[Suite], at_once: RangeInclusive<usize>, rows: &mut Vec<Row>) {
    let mut waiting = suites.iter();
    let mut running = FuturesUnordered::new();
    let mut times = ProcessorTimes::read();
    let mut look = time::interval_at(time::Instant::now() + LOOK, LOOK);
    loop {
        let free = at_once.start().saturating_sub(running.len());
        running.extend(waiting.by_ref().take(free).map(run_one));
        tokio::select! {
            done = running.next() => match done {
                Some(row) => {
                    if row.is_interrupted() {
                        waiting = [].iter();
                    }
                    rows.push(row);
                }
                None => return,
            },
            _ = look.tick() => {
                let before = std::mem::replace(&mut times, ProcessorTimes::read());
                if running.len() < *at_once.end() && times.idle_since(before) > IDLE {
                    running.extend(waiting.next().map(run_one));
                }
            }
        }
    }
}

async fn run_one(suite: &Suite) -> Row {
    say(format_args!("=== {}", suite.name()));
    let start = Instant::now();
    let result = suite.run().await;
    let (name, took) = (suite.name(), start.elapsed());
    match result {
        Ok((tally, remark)) => Row {
            name,
            tally,
            error: None,
            remark,
            took,
        },
        // What is not a test counts as one failure, so that the last line never looks good by mistake.
        Err(error) => Row {
            name,
            tally: Tally::new(0, 1),
            error: Some(format!("{error:#}")),
            remark: None,
            took,
        },
    }
}

fn chosen(all: Vec<Suite>, only: &[String]) -> Result<Vec<Suite>> {
    for wanted in only {
        if !all.iter().any(|suite| suite.is_meant_by(wanted)) {
            let names = all.iter().map(Suite::name).collect::<Vec<_>>().join(", ");
            bail!("no suite is called {wanted:?}; there are: {names}");
        }
    }
    let wanted = |suite: &Suite| only.is_empty() || only.iter().any(|name| suite.is_meant_by(name));
    Ok(all.into_iter().filter(wanted).collect())
}

impl Row {
    /// By Ctrl-C or by whoever ends the run.
    fn is_interrupted(&self) -> bool {
        let error = self.error.as_deref();
        matches!(error, Some("interrupted" | "terminated"))
    }

    fn is_good(&self) -> bool {
        self.error.is_none() && self.tally.failed == 0
    }

    fn line(&self) -> String {
        let verdict = if self.is_good() { "ok" } else { "FAILED" };
        let tests = match self.tally {
            Tally {
                passed: 0,
                failed: 0,
                ..
            } => String::new(),
            Tally { passed, failed, .. } => format!("{passed}/{}", passed + failed),
        };
        let remark = self.remark.as_deref().unwrap_or_default();
        let seconds = self.took.as_secs_f64();
        format!(
            "{:<24} {verdict:<7} {tests:>9} {seconds:>9.1} s  {remark}",
            self.name
        )
        .trim_end()
        .to_string()
    }
}

fn report(rows: &[Row], took: Duration) {
    say(format_args!(
        "\n{:<24} {:<7} {:>9} {:>11}",
        "suite", "result", "tests", "time"
    ));
    for row in rows {
        say(row.line());
    }
    say(format_args!(
        "{:<24} {:<7} {:>9} {:>9.1} s",
        "all",
        "",
        "",
        took.as_secs_f64()
    ));
    let bad = rows.iter().filter(|row| !row.is_good()).collect::<Vec<_>>();
    if !bad.is_empty() {
        say("\nfailed:");
    }
    for row in bad {
        let reason = row
            .error
            .clone()
            .unwrap_or_else(|| format!("{} tests", row.tally.failed));
        say(format_args!("  {}: {reason}", row.name));
        row.tally.failures.iter().for_each(say);
    }
    let mut sum = Tally::default();
    rows.iter().for_each(|row| sum.add(row.tally.clone()));
    say(format_args!("{} passed, {} failed", sum.passed, sum.failed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_suite_is_refused_with_the_names() {
        let refused = chosen(vec![Suite::Format, Suite::Unit], &["units".to_string()])
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("\"units\"") && refused.contains("format, unit"),
            "{refused}"
        );
    }

    #[test]
    fn rows_say_what_happened() {
        let took = Duration::from_millis(1_500);
        let tally = Tally::new(3, 1);
        let row = Row {
            name: "unit".into(),
            tally,
            error: None,
            remark: None,
            took,
        };
        assert_eq!(
            row.line(),
            format!("{:<24} FAILED        3/4       1.5 s", "unit")
        );
        let row = Row {
            tally: Tally::default(),
            remark: Some("half of it".into()),
            ..row
        };
        assert!(
            row.is_good() && row.line().ends_with("1.5 s  half of it"),
            "{}",
            row.line()
        );
    }
}
