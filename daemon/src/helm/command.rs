//! The command lines of helm: pure, and the one place that knows how version 4 differs from 3.

use std::{ffi::OsString, path::Path, time::Duration};

use fipd_crds::{labels, names::is_label};

use super::{
    release::{Chart, Reference, Release},
    state::CliVersion,
};

/// Label on a release: fipd made it, or took it over.
pub const OWNER_LABEL: &str = labels::MANAGED_BY;
/// Its value.
pub const OWNER: &str = labels::FIELD_MANAGER;
/// Label on a release: which system of fipd wants it. Those of the first one have none.
pub const SYSTEM_LABEL: &str = "fipd.io/system";
/// Label of a release: the name of its chart, as a release may be called otherwise.
pub const CHART_LABEL: &str = "fipd.io/chart";
/// Revisions that helm keeps of a release.
const HISTORY: &str = "10";

/// One call of helm about a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Status,
    Metadata,
    /// Lists the release if it carries the labels of fipd and of the system that asks.
    Owned,
    History,
    /// Reads the chart itself.
    Show,
    Install {
        /// Under a name whose history was kept.
        replace: bool,
    },
    Upgrade {
        /// Of a release that another installed.
        adopt: bool,
    },
    Rollback {
        to: u64,
    },
    Uninstall,
}

impl Operation {
    /// The name in metrics, progress and errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Metadata => "get-metadata",
            Self::Owned => "list",
            Self::History => "history",
            Self::Show => "show-chart",
            Self::Install { .. } => "install",
            Self::Upgrade { .. } => "upgrade",
            Self::Rollback { .. } => "rollback",
            Self::Uninstall => "uninstall",
        }
    }

    /// Whether it leaves something in the cluster when it is cut off.
    pub fn changes(self) -> bool {
        match self {
            Self::Install { .. }
            | Self::Upgrade { .. }
            | Self::Rollback { .. }
            | Self::Uninstall => true,
            Self::Status | Self::Metadata | Self::Owned | Self::History | Self::Show => false,
        }
    }
}

/// What the command lines depend on besides the release.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    pub version: CliVersion,
    /// The value of [`SYSTEM_LABEL`] on the releases of who asks.
    pub system: Option<&'static str>,
    /// Wait until the workloads are ready. Hooks are waited for anyway.
    pub wait: bool,
    /// Shorter than the deadline, so that helm itself notes a failure in the release.
    pub timeout: Duration,
    pub kubeconfig: &'a Path,
    /// JSON, which is YAML.
    pub values: &'a Path,
}

/// The arguments of an operation that needs no chart.
pub fn about(
    operation: Operation,
    namespace: &str,
    name: &str,
    setting: Setting<'_>,
) -> Vec<OsString> {
    let mut line = Line::default();
    match operation {
        Operation::Status => line.add(["status", name, "--output", "json"]),
        Operation::Metadata => line.add(["get", "metadata", name, "--output", "json"]),
        Operation::Owned => {
            line.add(["list", "--output", "json", "--filter", &format!("^{name}$")]);
            let system = match setting.system {
                Some(system) => format!("{SYSTEM_LABEL}={system}"),
                None => format!("!{SYSTEM_LABEL}"),
            };
            line.add(["--selector", &format!("{OWNER_LABEL}={OWNER},{system}")]);
            // Version 4 lists releases in every state without being told.
            if setting.version.major < 4 {
                line.add(["--all"]);
            }
        }
        Operation::History => line.add(["history", name, "--output", "json"]),
        Operation::Rollback { to } => {
            line.add(["rollback", name, &to.to_string(), "--history-max", HISTORY]);
            // It only ends what hangs: the upgrade after it runs the hooks.
            line.add(["--no-hooks", "--timeout", &seconds(setting.timeout)]);
        }
        Operation::Uninstall => {
            line.add(["uninstall", name, "--timeout", &seconds(setting.timeout)])
        }
        Operation::Show | Operation::Install { .. } | Operation::Upgrade { .. } => {}
    }
    line.add(["--namespace", namespace]);
    line.path("--kubeconfig", setting.kubeconfig);
    line.0
}

/// `helm show chart`.
pub fn show(chart: &Chart) -> Vec<OsString> {
    let mut line = Line::default();
    line.add(["show", "chart"]);
    line.chart(chart);
    line.0
}

/// The arguments that bring a release to a chart and values: `install` or `upgrade`.
///
/// Without `--atomic`: it would uninstall a release whose first attempt failed, and with it what there is to be seen of
/// the failure; a failed upgrade is retried over what is there.
pub fn bring(operation: Operation, release: &Release, setting: Setting<'_>) -> Vec<OsString> {
    let mut line = Line::default();
    if matches!(operation, Operation::Upgrade { .. }) {
        line.add([
            "upgrade",
            &release.name,
            "--reset-values",
            "--history-max",
            HISTORY,
        ]);
    } else {
        line.add(["install", &release.name, "--create-namespace"]);
        if operation == (Operation::Install { replace: true }) {
            line.add(["--replace"]);
        }
    }
    line.chart(&release.chart);
    // Helm keeps the labels that are not named: what was taken over once stays marked so.
    let mut marks = format!("{OWNER_LABEL}={OWNER}");
    if operation == (Operation::Upgrade { adopt: true }) {
        marks.push_str(&format!(",{}=true", labels::ADOPTED));
    }
    if let Some(system) = setting.system {
        marks.push_str(&format!(",{SYSTEM_LABEL}={system}"));
    }
    let chart = &release.chart.name;
    if is_label(chart) {
        marks.push_str(&format!(",{CHART_LABEL}={chart}"));
    }
    line.add(["--labels", &marks]);
    line.add(["--timeout", &seconds(setting.timeout)]);
    if setting.wait {
        line.add([if setting.version.major < 4 {
            "--wait"
        } else {
            "--wait=watcher"
        }]);
    }
    line.path("--values", setting.values);
    line.add(["--namespace", &release.namespace]);
    line.path("--kubeconfig", setting.kubeconfig);
    line.0
}

#[derive(Default)]
struct Line(Vec<OsString>);

impl Line {
    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.map(OsString::from));
    }

    fn path(&mut self, flag: &str, path: &Path) {
        self.0.push(flag.into());
        self.0.push(path.into());
    }

    fn chart(&mut self, chart: &Chart) {
        match &chart.reference {
            Reference::Repository(url) => self.add([&chart.name, "--repo", url]),
            Reference::Oci(url) => self.add([url]),
            // Helm does not compare the version of a file with --version; the caller does.
            Reference::Local(path) => return self.0.push(path.into()),
        }
        if !chart.version.is_newest() {
            self.add(["--version", chart.version.as_str()]);
        }
    }
}

fn seconds(timeout: Duration) -> String {
    format!("{}s", timeout.as_secs().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helm::{ChartVersion, testing::release};

    fn setting(major: u32, wait: bool) -> Setting<'static> {
        Setting {
            version: CliVersion { major, minor: 20 },
            system: None,
            wait,
            timeout: Duration::from_secs(285),
            kubeconfig: Path::new("/run/k"),
            values: Path::new("/run/v"),
        }
    }

    fn text(arguments: &[OsString]) -> String {
        let words = arguments.iter().map(|word| word.to_string_lossy());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn charts_come_from_repositories_registries_and_files() {
        let install = |reference: &str| {
            let operation = Operation::Install { replace: false };
            text(&bring(operation, &release(reference), setting(3, false)))
        };
        let said = install("https://example.com/charts/");
        assert!(said.starts_with("install purelb --create-namespace purelb --repo https://example.com/charts --version 0.14.1 --labels app.kubernetes.io/managed-by=fipd,fipd.io/chart=purelb --timeout 285s --values /run/v"), "{said}");
        assert!(
            said.ends_with("--namespace lb --kubeconfig /run/k"),
            "{said}"
        );
        assert!(install("oci://r/p/purelb").contains(" oci://r/p/purelb --version 0.14.1 "));
        let local = install("/srv/purelb");
        assert!(
            local.contains(" /srv/purelb ") && !local.contains("--version"),
            "{local}"
        );
    }

    #[test]
    fn without_a_version_helm_takes_the_newest() {
        for reference in ["https://example.com/charts", "oci://r/p/purelb"] {
            let mut release = release(reference);
            release.chart.version = ChartVersion::newest();
            let install = Operation::Install { replace: false };
            let said = text(&bring(install, &release, setting(3, false)));
            assert!(!said.contains("--version"), "{said}");
        }
    }

    #[test]
    fn an_upgrade_forgets_the_values_of_before() {
        let said = text(&bring(
            Operation::Upgrade { adopt: false },
            &release("oci://r/purelb"),
            setting(3, false),
        ));
        assert!(
            said.contains("--labels app.kubernetes.io/managed-by=fipd,fipd.io/chart=purelb --"),
            "{said}"
        );
        assert!(
            said.contains("--reset-values") && !said.contains("--create-namespace"),
            "{said}"
        );
        assert!(
            !said.contains("--wait") && !said.contains("--atomic"),
            "{said}"
        );
    }

    #[test]
    fn what_is_taken_over_is_marked() {
        let operation = Operation::Upgrade { adopt: true };
        let said = text(&bring(
            operation,
            &release("oci://r/purelb"),
            setting(3, false),
        ));
        let labels =
            "--labels app.kubernetes.io/managed-by=fipd,fipd.io/adopted=true,fipd.io/chart=purelb ";
        assert!(said.contains(labels), "{said}");
    }

    #[test]
    fn releases_of_two_systems_are_told_apart() {
        let of = |system| Setting {
            system,
            ..setting(3, false)
        };
        let owned = |system| text(&about(Operation::Owned, "lb", "purelb", of(system)));
        let first = "--selector app.kubernetes.io/managed-by=fipd,!fipd.io/system ";
        assert!(owned(None).contains(first), "{}", owned(None));
        let second = "--selector app.kubernetes.io/managed-by=fipd,fipd.io/system=second ";
        assert!(owned(Some("second")).contains(second));
        let install = Operation::Install { replace: false };
        let said = text(&bring(install, &release("oci://r/x"), of(Some("second"))));
        let labels = "--labels app.kubernetes.io/managed-by=fipd,fipd.io/system=second,fipd.io/chart=purelb ";
        assert!(said.contains(labels), "{said}");
    }

    #[test]
    fn version_4_is_spoken_to_in_its_own_words() {
        let wait = |major| {
            text(&bring(
                Operation::Upgrade { adopt: false },
                &release("oci://r/purelb"),
                setting(major, true),
            ))
        };
        assert!(wait(3).contains(" --wait ") && wait(4).contains(" --wait=watcher "));
        let owned = |major| {
            text(&about(
                Operation::Owned,
                "lb",
                "purelb",
                setting(major, false),
            ))
        };
        assert!(owned(3).contains("--all") && !owned(4).contains("--all"));
        assert!(
            owned(4).contains("--filter ^purelb$ --selector app.kubernetes.io/managed-by=fipd")
        );
    }
}
