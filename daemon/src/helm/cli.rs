//! The CLI of this host: found, of a version that is known, and called about one release.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::{
    command::{self, Operation, Setting},
    error::HelmError,
    files::{ReleaseTarget, RunDirectory, Workplace},
    plan::Patience,
    process::{self, RunError, Surroundings},
    progress::Counters,
    release::{Chart, ChartVersion, Reference, Release},
    state::{CliVersion, Observed, Unreadable, revision_to_restore},
};
use crate::{child, config};

/// How long what changes nothing may take.
const LOOK: Duration = Duration::from_secs(60);
/// How long the originals' own operations take at most.
const ORIGINALS: Duration = Duration::from_secs(600);
/// How much earlier than its deadline an operation gives up by itself.
const HEAD_START: Duration = Duration::from_secs(10);

/// The CLI and what it is called with.
#[derive(Debug)]
pub(super) struct Cli {
    config: config::Helm,
    workplace: Workplace,
    known: Mutex<Option<KnownVersion>>,
    /// Releases that an operation of fipd was cut off on: there is nobody to wait for.
    cut_off: Mutex<BTreeSet<ReleaseTarget>>,
    pub counters: Counters,
    stop: CancellationToken,
}

/// A version that was asked for, as long as the file stays the same.
#[derive(Clone, Debug)]
struct KnownVersion {
    program: PathBuf,
    changed: Option<SystemTime>,
    version: CliVersion,
}

/// One release of one cluster, and the way there.
#[derive(Clone, Copy)]
pub(super) struct HelmCall<'a> {
    pub target: &'a ReleaseTarget,
    pub kubeconfig: &'a str,
    pub system: Option<&'static str>,
}

/// `helm show chart`
#[derive(Deserialize)]
struct ShownChart {
    version: String,
}

impl Cli {
    /// `cut_off` are the releases that the daemon before this one was changing when it was killed.
    pub fn new(
        config: config::Helm,
        workplace: Workplace,
        cut_off: Vec<ReleaseTarget>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            config,
            workplace,
            known: Mutex::default(),
            cut_off: Mutex::new(cut_off.into_iter().collect()),
            counters: Counters::default(),
            stop,
        }
    }

    /// How long an operation on the release may be pending.
    pub fn patience(&self, target: &ReleaseTarget) -> Patience {
        let own = self.config.timeout.0 + HEAD_START;
        Patience {
            own,
            others: own.max(ORIGINALS + HEAD_START),
            interrupted: self.cut_off.lock().contains(target),
        }
    }

    /// Nothing of fipd is pending on the release.
    pub fn settled(&self, target: &ReleaseTarget) {
        self.cut_off.lock().remove(target);
    }

    /// What is there; `None`: no such release.
    pub async fn observe(&self, call: HelmCall<'_>) -> Result<Option<Observed>, HelmError> {
        let status = match self.about(Operation::Status, call).await {
            Ok(status) => status,
            Err(HelmError::Failed { said, .. }) if said.contains("release: not found") => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let metadata = self.about(Operation::Metadata, call).await?;
        let owned = self.about(Operation::Owned, call).await?;
        let seen = Observed::parse(&call.target.name, &status, &metadata, &owned)?;
        Ok(Some(seen))
    }

    /// Takes a dead operation back.
    pub async fn restore(&self, call: HelmCall<'_>) -> Result<(), HelmError> {
        let history = self.about(Operation::History, call).await?;
        let to = revision_to_restore(&history)?;
        self.about(Operation::Rollback { to }, call).await.map(drop)
    }

    pub async fn uninstall(&self, call: HelmCall<'_>) -> Result<(), HelmError> {
        self.about(Operation::Uninstall, call).await.map(drop)
    }

    /// Installs or upgrades.
    pub async fn bring(
        &self,
        operation: Operation,
        release: &Release,
        call: HelmCall<'_>,
    ) -> Result<(), HelmError> {
        if let Reference::Local(path) = &release.chart.reference {
            self.check_local(path, &release.chart).await?;
        }
        let values = release.values.to_json();
        let arguments = |setting: Setting<'_>| command::bring(operation, release, setting);
        let said = self.call(operation, call, Some(&values), arguments);
        said.await.map(drop)
    }

    /// Whether the chart is to be had in its version.
    pub async fn check(&self, chart: &Chart) -> Result<(), HelmError> {
        if let Reference::Local(path) = &chart.reference {
            return self.check_local(path, chart).await;
        }
        self.show(chart).await.map(drop)
    }

    async fn about(&self, operation: Operation, call: HelmCall<'_>) -> Result<String, HelmError> {
        let (namespace, name) = (&call.target.namespace, &call.target.name);
        let arguments = |setting: Setting<'_>| command::about(operation, namespace, name, setting);
        self.call(operation, call, None, arguments).await
    }

    async fn show(&self, chart: &Chart) -> Result<String, HelmError> {
        let (program, _) = self.program().await?;
        let arguments = command::show(chart);
        self.run(Operation::Show, program, arguments, None).await
    }

    /// One run about a release, with a directory for its kubeconfig and for `values`.
    async fn call(
        &self,
        operation: Operation,
        call: HelmCall<'_>,
        values: Option<&str>,
        arguments: impl FnOnce(Setting<'_>) -> Vec<OsString>,
    ) -> Result<String, HelmError> {
        let begun = self.workplace.begin(call.target, operation.changes());
        let directory = begun.map_err(|error| HelmError::file(self.workplace.home(), &error))?;
        let written = directory.write_kubeconfig(call.kubeconfig);
        written.map_err(|error| HelmError::file(directory.kubeconfig(), &error))?;
        if let Some(values) = values {
            let written = directory.write_values(values);
            written.map_err(|error| HelmError::file(directory.values(), &error))?;
        }
        let (program, version) = self.program().await?;
        let deadline = self.config.timeout.0;
        let arguments = arguments(Setting {
            version,
            system: call.system,
            wait: self.config.wait,
            timeout: deadline.saturating_sub(HEAD_START).max(deadline / 2),
            kubeconfig: &directory.kubeconfig(),
            values: &directory.values(),
        });
        let about = Some((call.target, &directory));
        self.run(operation, program, arguments, about).await
    }

    /// Helm takes the chart of a file as it is, whatever version was asked for; the release would never be at it.
    async fn check_local(&self, path: &Path, chart: &Chart) -> Result<(), HelmError> {
        let found = self.shown_version(chart).await?;
        if chart.version.is_newest() || ChartVersion::parse(&found).as_ref() == Ok(&chart.version) {
            return Ok(());
        }
        Err(HelmError::OtherVersion {
            path: path.to_owned(),
            wanted: chart.version.to_string(),
            found,
        })
    }

    /// The newest version of a chart.
    pub async fn newest(&self, chart: &Chart) -> Result<ChartVersion, HelmError> {
        let newest = Chart {
            version: ChartVersion::newest(),
            ..chart.clone()
        };
        let shown = self.shown_version(&newest).await?;
        let unreadable = |why| Unreadable {
            command: "show chart",
            what: format!("version {shown:?} {why}"),
        };
        Ok(ChartVersion::parse(&shown).map_err(unreadable)?)
    }

    async fn shown_version(&self, chart: &Chart) -> Result<String, HelmError> {
        let shown = self.show(chart).await?;
        let found: ShownChart = serde_saphyr::from_str(&shown).map_err(|_| Unreadable {
            command: "show chart",
            what: "no version".to_owned(),
        })?;
        Ok(found.version)
    }

    async fn run(
        &self,
        operation: Operation,
        program: PathBuf,
        arguments: Vec<OsString>,
        about: Option<(&ReleaseTarget, &RunDirectory)>,
    ) -> Result<String, HelmError> {
        let whole = self.config.timeout.0;
        let deadline = if operation.changes() {
            whole
        } else {
            whole.min(LOOK)
        };
        let begun = Instant::now();
        let surroundings = self.surroundings(program.clone());
        let (target, directory) = about.unzip();
        let changed = target.filter(|_| operation.changes());
        // Before it: whoever waits for it may drop it.
        self.cut_off.lock().extend(changed.cloned());
        let ended = process::run(&surroundings, arguments, directory, deadline, &self.stop).await;
        if let Some(target) = changed
            && !matches!(ended, Err(RunError::Deadline | RunError::Stopped))
        {
            self.settled(target);
        }
        let result = ended.map_err(|error| explained(error, operation.name(), &program, deadline));
        // That there is no such release is an answer.
        let absent = matches!(&result, Err(HelmError::Failed { said, .. }) if said.contains("release: not found"));
        let word = result
            .as_ref()
            .err()
            .filter(|_| !absent)
            .map_or("success", HelmError::result);
        self.counters.count(operation.name(), word, begun.elapsed());
        result
    }

    fn surroundings(&self, program: PathBuf) -> Surroundings {
        Surroundings {
            program,
            home: self.workplace.home(),
            ca_file: self.config.ca_file.clone(),
        }
    }

    /// The CLI and its version. Looked for each time: it may be installed or replaced while fipd runs.
    async fn program(&self) -> Result<(PathBuf, CliVersion), HelmError> {
        let program = self.find()?;
        let changed = fs::metadata(&program).and_then(|of| of.modified()).ok();
        let known = self.known.lock().clone();
        if let Some(known) =
            known.filter(|known| known.program == program && known.changed == changed)
        {
            return Ok((program, known.version));
        }
        let arguments = vec!["version".into(), "--template".into(), "{{.Version}}".into()];
        let ended = process::run(
            &self.surroundings(program.clone()),
            arguments,
            None,
            LOOK,
            &self.stop,
        )
        .await;
        let said = ended.map_err(|error| explained(error, "version", &program, LOOK))?;
        let version: CliVersion = said.parse()?;
        if !version.is_supported() {
            return Err(HelmError::Unsupported {
                path: program,
                found: said.trim().to_owned(),
            });
        }
        *self.known.lock() = Some(KnownVersion {
            program: program.clone(),
            changed,
            version,
        });
        Ok((program, version))
    }

    fn find(&self) -> Result<PathBuf, HelmError> {
        let Some(path) = &self.config.path else {
            return child::on_path("helm").ok_or(HelmError::NotOnPath);
        };
        if child::is_executable(path) {
            return Ok(path.clone());
        }
        let what = if path.exists() {
            "is no program"
        } else {
            "does not exist"
        };
        Err(HelmError::NotThere {
            path: path.clone(),
            what: what.to_owned(),
        })
    }
}

fn explained(
    error: RunError,
    operation: &'static str,
    program: &Path,
    after: Duration,
) -> HelmError {
    match error {
        RunError::Said(said) => HelmError::Failed { operation, said },
        RunError::Deadline => HelmError::Deadline { operation, after },
        RunError::Stopped => HelmError::Stopping,
        RunError::Io(error) => HelmError::NotThere {
            path: program.to_owned(),
            what: error.to_string(),
        },
    }
}
