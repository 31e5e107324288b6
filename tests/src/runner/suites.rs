//! The suites of `cargo verify`: their names, and how each is run.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::steps::{Step, Tally};
use super::{build_daemon, checkout, deny};
use crate::toolchain;

/// This crate.
const OWN_PACKAGE: &str = "fipd-tests";

/// Kill rounds of the crash suite in `verify`; `torture` does more.
const KILL_ROUNDS: [(&str, &str); 1] = [("FIPD_KILL_ROUNDS", "20")];

/// Files of `tests/e2e` that take longest, after [`Suite::Unit`]; they begin first, so that none of them is left alone at the end.
const LONG: [&str; 10] = [
    "browser",
    "package",
    "flat_network",
    "kube_fip_guests",
    "kill",
    "helm",
    "kube_fip",
    "proof",
    "capi_vip",
    "ip_rule",
];
/// Their machines are translated instruction by instruction: beside others they come to nothing.
const ALONE: [&str; 2] = ["cni_vm", "vrf"];

/// One row of the time table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Suite {
    /// rustfmt agrees.
    Format,
    /// clippy has nothing to say, in all targets and with what is only there for fuzzing.
    Clippy,
    /// Licences, bans, sources, advisories.
    Deny,
    /// The daemon, which the end-to-end suites use, and all tests are compiled.
    Build,
    /// The real components and the tools that make packages are in the cache, built when not.
    Components,
    /// Unit, property, crash and documentation tests of all crates.
    Unit,
    /// One file of `tests/e2e`.
    EndToEnd(String),
}

impl Suite {
    /// All suites in the order in which they begin: the quick ones first, then what takes longest.
    pub(super) fn all() -> Result<Vec<Self>> {
        let mut suites = vec![
            Self::Format,
            Self::Clippy,
            Self::Deny,
            Self::Build,
            Self::Components,
        ];
        let mut targets = end_to_end_targets()?;
        let long = |target: &String| LONG.iter().position(|one| one == target);
        targets.sort_by_key(|target| long(target).unwrap_or(LONG.len()));
        suites.push(Self::Unit);
        suites.extend(targets.into_iter().map(Self::EndToEnd));
        Ok(suites)
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Format => "format".to_string(),
            Self::Clippy => "clippy".to_string(),
            Self::Deny => "deny".to_string(),
            Self::Unit => "unit".to_string(),
            Self::Build => "build".to_string(),
            Self::Components => "components".to_string(),
            Self::EndToEnd(target) => format!("e2e-{target}"),
        }
    }

    /// Whether `--only wanted` means this suite: its name, or `e2e` for all of those.
    pub(super) fn is_meant_by(&self, wanted: &str) -> bool {
        let group = match self {
            Self::EndToEnd(_) => "e2e",
            Self::Format
            | Self::Clippy
            | Self::Deny
            | Self::Build
            | Self::Components
            | Self::Unit => "",
        };
        self.name() == wanted || (!group.is_empty() && group == wanted)
    }

    /// Whether it may run beside another such suite: it has ports and directories of its own, and mostly waits.
    pub(super) fn runs_beside(&self) -> bool {
        match self {
            Self::EndToEnd(target) => !ALONE.contains(&&**target),
            Self::Unit => true,
            Self::Format | Self::Clippy | Self::Deny | Self::Build | Self::Components => false,
        }
    }

    /// Runs it; the text is a remark for the table.
    pub(super) async fn run(&self) -> Result<(Tally, Option<String>)> {
        let tally = match self {
            Self::Format => Step::cargo(&["fmt", "--all", "--check"]).run().await?,
            Self::Clippy => {
                Step::cargo(&[
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--features",
                    "fipd/fuzz",
                    "--",
                    "--deny",
                    "warnings",
                ])
                .run()
                .await?
            }
            Self::Deny => return deny::run().await,
            Self::Unit => unit_tests().await?,
            Self::Build => {
                tokio::task::spawn_blocking(build_daemon).await??;
                let tests = Step::cargo(&["test", "--workspace", "--no-run"]);
                tests.run().await?
            }
            Self::Components => {
                tokio::task::spawn_blocking(prepare_all).await??;
                Tally::default()
            }
            Self::EndToEnd(target) => {
                let test = end_to_end(target, &KILL_ROUNDS).await?;
                test.beside_others().run().await?
            }
        };
        Ok((tally, None))
    }
}

/// Has the components in the cache, and the tools that would otherwise be compiled beside tests with deadlines.
fn prepare_all() -> Result<()> {
    toolchain::prepare()?;
    toolchain::cargo_tool::packagers()?;
    Ok(())
}

/// The tests that need nothing but a compiler: those in the sources of all crates, the files in `tests` of the other crates,
/// and the examples in the documentation. Everything is built as the whole workspace, so that dependencies are compiled
/// with one set of features, once.
async fn unit_tests() -> Result<Tally> {
    let mut arguments = ["test", "--workspace", "--no-fail-fast", "--lib", "--bins"]
        .map(String::from)
        .to_vec();
    for target in test_targets(|package| package != OWN_PACKAGE)? {
        arguments.extend(["--test".to_string(), target]);
    }
    let arguments = arguments.iter().map(String::as_str).collect::<Vec<_>>();
    let mut tally = Step::cargo(&arguments).beside_others().run().await?;
    let examples = Step::cargo(&["test", "--workspace", "--no-fail-fast", "--doc"]);
    tally.add(examples.beside_others().run().await?);
    Ok(tally)
}

/// Files of `tests/e2e` of which three tests run at once: they mostly wait for minutes to pass that fipd must let pass, or share
/// their servers and a fipd.
const SIDE_BY_SIDE: [&str; 7] = [
    "capi_claims",
    "capi_core",
    "capi_pools",
    "capi_vip",
    "clusters",
    "cni",
    "service_lb",
];

/// One file of `tests/e2e` against the daemon as it is built here, mostly one test at a time: each starts several
/// API servers, and their start is what two cores are busy with. `more` is set in its environment.
pub(super) async fn end_to_end(target: &str, more: &[(&str, &str)]) -> Result<Step> {
    let daemon = tokio::task::spawn_blocking(move || {
        toolchain::prepare()?;
        build_daemon()
    })
    .await??;
    let threads = if SIDE_BY_SIDE.contains(&target) {
        "--test-threads=3"
    } else {
        "--test-threads=1"
    };
    let test = Step::cargo(&["test", "--workspace", "--test", target, "--", threads]);
    let test = test.env("FIPD_BIN", daemon);
    let more = more.iter();
    Ok(more.fold(test, |test, (name, value)| test.env(name, *value)))
}

/// The names of the files in `tests/e2e`, as this crate's manifest has them.
pub(super) fn end_to_end_targets() -> Result<Vec<String>> {
    test_targets(|package| package == OWN_PACKAGE)
}

/// The names of the `[[test]]` targets of some packages, sorted.
fn test_targets(wanted: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let mut metadata = Command::new("cargo");
    metadata
        .current_dir(checkout())
        .args(["metadata", "--no-deps", "--format-version=1"]);
    let output = metadata.output().context("start cargo metadata")?;
    if !output.status.success() {
        bail!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let packages = metadata
        .packages
        .into_iter()
        .filter(|package| wanted(&package.name));
    let targets = packages.flat_map(|package| package.targets);
    let tests = targets.filter(|target| target.kind.iter().any(|kind| kind == "test"));
    let mut names = tests.map(|target| target.name).collect::<Vec<_>>();
    names.sort();
    Ok(names)
}

/// The part of cargo's description of the workspace that matters here.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_e2e_is_a_suite() {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(checkout().join("tests/e2e")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path.file_stem().unwrap().to_string_lossy().into_owned());
            }
        }
        files.sort();
        assert_eq!(
            end_to_end_targets().unwrap(),
            files,
            "tests/Cargo.toml needs a [[test]] for each, by the file's name"
        );
    }

    #[test]
    fn a_name_runs_one_file() {
        let names = test_targets(|_| true).unwrap();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
        assert_eq!(twice, None, "cargo test --test would run both");
    }

    #[test]
    fn only_takes_a_name_or_the_group() {
        let suite = Suite::EndToEnd("browser".to_string());
        assert!(suite.is_meant_by("e2e-browser") && suite.is_meant_by("e2e"));
        assert!(
            !suite.is_meant_by("browser")
                && !Suite::Unit.is_meant_by("")
                && Suite::Unit.is_meant_by("unit")
        );
    }
}
