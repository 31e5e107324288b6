//! How the releases of guests stand: what REST, the pages and the metrics tell of them.

use std::collections::BTreeMap;

use fipd_core::Timestamp;

use super::{GuestView, ReleaseView, helm_name};
use crate::helm::{Activity, ChartError, Helm, Progress, ReleaseTarget};

/// What goes on with all releases, whichever engine works on them.
#[derive(Clone, Debug, Default)]
pub struct Releases(BTreeMap<ReleaseTarget, Progress>);

/// How one release stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseState {
    /// `deployed`, `failed`, `waiting`, `unknown`, or the operation that runs.
    pub state: &'static str,
    /// That is wanted: the one that was named, else the one that was found, which may not be known yet.
    pub version: String,
    pub error: Option<ChartError>,
    /// Since when its last result is what it is.
    pub since: Option<Timestamp>,
}

impl Releases {
    pub fn of(helm: Option<&Helm>) -> Self {
        Self(helm.map(Helm::progress).unwrap_or_default())
    }

    pub fn state_of(&self, guest: &GuestView, release: &ReleaseView) -> ReleaseState {
        let cluster = helm_name(&guest.rancher, &guest.id, guest.system);
        let target = ReleaseTarget::new(&cluster, &release.namespace, &release.name);
        let progress = self.0.get(&target);
        let last = progress.and_then(|progress| progress.last.as_ref());
        let error = last.and_then(|last| last.error.clone());
        let state = match (progress.map(|progress| progress.activity), last) {
            (Some(Activity::Running { operation, .. }), _) => operation,
            (Some(Activity::Waiting { .. }), _) => "waiting",
            (Some(Activity::Idle), Some(_)) if error.is_some() => "failed",
            (Some(Activity::Idle), Some(_)) => "deployed",
            (Some(Activity::Idle) | None, _) => "unknown",
        };
        let named = Some(&release.version).filter(|version| !version.is_empty());
        let found = || progress.and_then(|progress| progress.wanted.as_ref());
        ReleaseState {
            state,
            version: named.or_else(found).cloned().unwrap_or_default(),
            error,
            since: last.map(|last| last.since),
        }
    }
}

impl ReleaseState {
    pub fn error_text(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        Some(format!("{}: {}", error.reason, error.message))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::{
        guests::{GuestPhase, GuestStatus, system::testing::FIRST},
        helm::Last,
    };

    /// A guest that is to have a release.
    pub fn guest() -> GuestView {
        GuestView {
            rancher: "rancher".into(),
            id: "c-1".into(),
            system: FIRST,
            display_name: "prod".into(),
            says: GuestStatus::new(GuestPhase::Failed, "HelmChartFailed", "no"),
            since: Timestamp(1),
            last_error: None,
            details: vec![],
            releases: vec![ReleaseView {
                name: "purelb".into(),
                namespace: "lb".into(),
                chart: "purelb".into(),
                version: "0.14.1".into(),
            }],
        }
    }

    /// Its release failed, and is at this now.
    pub fn failed(activity: Activity) -> Releases {
        let error = ChartError {
            reason: "HelmChartFailed",
            message: "too often".into(),
        };
        Releases([progress(activity, Some(error))].into())
    }

    fn progress(activity: Activity, error: Option<ChartError>) -> (ReleaseTarget, Progress) {
        let progress = Progress {
            wanted: None,
            activity,
            last: Some(Last {
                at: Timestamp(9),
                error,
                since: Timestamp(5),
            }),
        };
        (ReleaseTarget::new("rancher/c-1", "lb", "purelb"), progress)
    }

    #[test]
    fn a_release_without_a_version_tells_the_one_that_was_found() {
        let guest = guest();
        let mut release = guest.releases[0].clone();
        let (target, mut progress) = progress(Activity::Idle, None);
        progress.wanted = Some("1.2.3".to_owned());
        let all = Releases([(target, progress)].into());
        assert_eq!(all.state_of(&guest, &release).version, "0.14.1", "as named");
        release.version = String::new();
        assert_eq!(all.state_of(&guest, &release).version, "1.2.3");
        assert_eq!(Releases::default().state_of(&guest, &release).version, "");
    }

    #[test]
    fn a_release_tells_its_state_and_its_last_error() {
        let guest = guest();
        let release = &guest.releases[0];
        let failed = failed(Activity::Idle).state_of(&guest, release);
        assert_eq!((failed.state, failed.since), ("failed", Some(Timestamp(5))));
        let text = failed.error_text();
        assert_eq!(text.as_deref(), Some("HelmChartFailed: too often"));
        let state = |activity| {
            let all = Releases([progress(activity, None)].into());
            all.state_of(&guest, release).state
        };
        assert_eq!(state(Activity::Idle), "deployed");
        let since = Timestamp(7);
        assert_eq!(state(Activity::Waiting { since }), "waiting");
        let operation = "helm-chart";
        assert_eq!(state(Activity::Running { operation, since }), "helm-chart");
        assert_eq!(
            Releases::default().state_of(&guest, release).state,
            "unknown"
        );
    }
}
