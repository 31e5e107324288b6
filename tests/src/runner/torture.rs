//! `cargo torture`: what is too long for every change. Goes round and round until the time is up.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::checkout;
use super::steps::{Step, Tally};
use super::suites::{end_to_end, end_to_end_targets};
use crate::say::say;
use crate::{toolchain, versions};

/// How much more than in `verify` the tests are to do.
const MORE: [(&str, &str); 11] = [
    ("FIPD_KILL_ROUNDS", "100"),
    ("FIPD_FLIP_ROUNDS", "1000"),
    ("FIPD_CUT_ROUNDS", "60"),
    ("FIPD_FULL_ROUNDS", "60"),
    ("FIPD_RESTORE_ROUNDS", "60"),
    ("FIPD_SOAK_SECONDS", "600"),
    ("FIPD_CNI_CYCLES", "5000"),
    ("FIPD_FUZZ_SECONDS", "600"),
    // The version that `verify` does not take.
    ("FIPD_HELM", "4"),
    ("FIPD_WEEKS", "50"),
    ("PROPTEST_CASES", "20000"),
];

/// Suites that do much more here than in `verify`: kills over and over, changes for minutes, release packages.
const EARLY: [&str; 3] = ["kill", "rules_soak", "package"];
/// Three release builds, among others.
const PACKAGES_WITHIN: Duration = Duration::from_secs(3 * 3600);

/// For each target.
const FUZZ_TIME: &str = "-max_total_time=60";

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How long to go on; a step that has begun is finished
    #[arg(long, value_name = "N", default_value_t = 60)]
    minutes: u64,
    /// Only this part: `properties`, `store`, `daemon`, `load`, `pages`, `fuzz` or a file of tests/e2e; can be given several times
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
}

/// Runs the steps in turn, and stops at the first that fails: its output is what there is to look at.
pub async fn run(arguments: &Arguments) -> Result<ExitCode> {
    let end = Instant::now() + Duration::from_secs(arguments.minutes * 60);
    let mut targets = end_to_end_targets()?;
    // What is only done here comes early.
    let early = |target: &String| EARLY.iter().position(|one| one == target);
    targets.sort_by_key(|target| early(target).unwrap_or(EARLY.len()));
    let mut sum = Tally::default();
    let first = [
        Part::Properties,
        Part::Store,
        Part::Daemon,
        Part::Load,
        Part::Pages,
        Part::Fuzz,
    ]
    .into_iter();
    let all: Vec<_> = first
        .chain(targets.iter().map(|target| Part::EndToEnd(target)))
        .collect();
    let all = chosen(all, &arguments.only)?;
    // Begun so far, over all rounds.
    let mut begun = 0;
    for part in all.iter().cycle() {
        if Instant::now() >= end {
            break;
        }
        say(format_args!(
            "=== round {}: {part:?}",
            begun / all.len() + 1
        ));
        begun += 1;
        // What is not a test counts as one failure.
        let tally = part.run().await.unwrap_or_else(|error| {
            say(format_args!("{part:?}: {error:#}"));
            Tally::new(0, 1)
        });
        sum.add(tally);
        if sum.failed > 0 {
            break;
        }
    }
    let left: Vec<_> = all.iter().skip(begun).collect();
    if !left.is_empty() {
        say(format_args!("not come to: {left:?}"));
    }
    say(format_args!("{} passed, {} failed", sum.passed, sum.failed));
    Ok(if sum.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What a round consists of.
#[derive(Debug)]
enum Part<'a> {
    /// The property tests with many more histories than in `verify`.
    Properties,
    /// Flipped bits, power cuts and full disks, over and over.
    Store,
    /// The program as a process: restores that are killed, among others.
    Daemon,
    /// Many pages, streams and allocations at once, of a release build.
    Load,
    /// Tables of 100,000 rows and more, each within its budget.
    Pages,
    /// Each parser by `cargo fuzz`.
    Fuzz,
    /// One file of `tests/e2e`.
    EndToEnd(&'a str),
}

/// All of them, or those that are named.
fn chosen<'a>(mut all: Vec<Part<'a>>, only: &[String]) -> Result<Vec<Part<'a>>> {
    for wanted in only {
        if !all.iter().any(|part| part.name() == wanted) {
            let names: Vec<_> = all.iter().map(Part::name).collect();
            bail!("--only {wanted}: there are {}", names.join(", "));
        }
    }
    all.retain(|part| only.is_empty() || only.iter().any(|wanted| part.name() == wanted));
    Ok(all)
}

impl Part<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Properties => "properties",
            Self::Store => "store",
            Self::Daemon => "daemon",
            Self::Load => "load",
            Self::Pages => "pages",
            Self::Fuzz => "fuzz",
            Self::EndToEnd(target) => target,
        }
    }

    async fn run(&self) -> Result<Tally> {
        match self {
            Self::Properties => more(&["test", "--package", "fipd-core", "--lib", "--tests"]).await,
            Self::Store => more(&["test", "--package", "fipd-store"]).await,
            Self::Daemon => more(&["test", "--package", "fipd", "--test", "daemon"]).await,
            Self::Load => counted(Step::cargo(&["bench-peers", "load"])).await,
            Self::Pages => counted(Step::cargo(&["bench-peers", "page"])).await,
            Self::Fuzz => fuzz().await,
            Self::EndToEnd(target) => {
                let test = end_to_end(target, &MORE).await?;
                let test = match *target {
                    // Tests that are only for here: release builds.
                    "package" => test.with(&["--include-ignored"]).within(PACKAGES_WITHIN),
                    _ => test,
                };
                test.run().await
            }
        }
    }
}

/// A step that is one test itself.
async fn counted(step: Step) -> Result<Tally> {
    let done = step.run().await;
    let (passed, failed) = (u64::from(done.is_ok()), u64::from(done.is_err()));
    if let Err(error) = done {
        say(format_args!("{error:#}"));
    }
    Ok(Tally::new(passed, failed))
}

/// All targets of `tests/fuzz`, each for a while. Its corpus grows outside of the checkout.
async fn fuzz() -> Result<Tally> {
    let tool = tokio::task::spawn_blocking(toolchain::cargo_tool::cargo_fuzz).await??;
    let cache = toolchain::cache_dir("fuzz", versions::CARGO_FUZZ)?;
    let (cache, stored) = (cache.display(), "daemon/tests/fixtures/fuzz");
    let mut sum = Tally::default();
    for body in fuzz_targets()? {
        let grown = format!("{cache}/corpus/{body}");
        std::fs::create_dir_all(&grown)?;
        let (build, stored) = (format!("{cache}/target"), format!("{stored}/{body}"));
        // Without a sanitizer: there is next to no unsafe code to find anything in, and the allocator is fipd's own.
        let how = [
            "run",
            "--fuzz-dir",
            "tests/fuzz",
            "--sanitizer",
            "none",
            "--target-dir",
            &build,
            &body,
        ];
        let step = Step::new(&tool, &how).with(&[&grown, &stored, "--", FUZZ_TIME]);
        sum.add(counted(step.env("RUSTUP_TOOLCHAIN", "nightly")).await?);
    }
    Ok(sum)
}

fn fuzz_targets() -> Result<Vec<String>> {
    let folder = checkout().join("tests/fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        names.extend(
            path.file_stem()
                .map(|name| name.to_string_lossy().into_owned()),
        );
    }
    names.sort();
    Ok(names)
}

/// Tests that do much more than in `verify`.
async fn more(tests: &[&str]) -> Result<Tally> {
    let more = |test: Step, (name, value): &(&str, &str)| test.env(name, *value);
    MORE.iter().fold(Step::cargo(tests), more).run().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_that_are_named_are_chosen() {
        let all = || vec![Part::Properties, Part::Fuzz, Part::EndToEnd("kill")];
        let names = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
            let found = chosen(all(), &only)?;
            let names = found.iter().map(|part| part.name().to_owned());
            anyhow::Ok(names.collect::<Vec<_>>().join(" "))
        };
        assert_eq!(names(&[]).unwrap(), "properties fuzz kill");
        assert_eq!(names(&["kill", "fuzz"]).unwrap(), "fuzz kill");
        let wrong = names(&["kil"]).unwrap_err().to_string();
        assert!(
            wrong.contains("kil: there are properties, fuzz, kill"),
            "{wrong}"
        );
    }
}
