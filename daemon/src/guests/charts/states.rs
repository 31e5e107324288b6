//! How the charts of guests stand.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::Text;
use parking_lot::Mutex;

use super::{ChartError, ChartRelease, ReachedGuest, Settled, uninstall::UninstallState};
use crate::{
    controller::client::Remote,
    guests::{GuestSystem, access::GuestAccess, helm_name},
    helm::Helm,
};

/// The charts that one system wants in the guests of one Rancher.
pub struct GuestCharts {
    rancher: Text,
    pub(super) system: GuestSystem,
    pub(super) access: Arc<GuestAccess>,
    /// Without it nobody looks after charts.
    pub(super) helm: Option<Helm>,
    states: Mutex<BTreeMap<String, ChartState>>,
    pub(super) uninstalls: Mutex<BTreeMap<String, UninstallState>>,
    /// The namespace of each guest that has what the releases there need.
    prepared: Mutex<BTreeMap<String, String>>,
}

/// How the charts of a guest stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ChartProgress {
    /// Nobody looked yet.
    #[default]
    Unknown,
    /// What goes on, where it is known.
    UnderWay(String),
    Failed(ChartError),
    Done,
}

/// How they stand, and which ones that is about; `None`: whatever is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ChartState {
    wanted: Option<Vec<ChartRelease>>,
    progress: ChartProgress,
}

impl From<Result<Settled, ChartError>> for ChartProgress {
    fn from(brought: Result<Settled, ChartError>) -> Self {
        match brought {
            Ok(Settled::Yes) => Self::Done,
            Ok(Settled::NotYet) => Self::UnderWay(String::new()),
            Err(error) if error.is_busy() => Self::UnderWay(error.message),
            Err(error) => Self::Failed(error),
        }
    }
}

impl GuestCharts {
    pub fn new(
        rancher: Text,
        system: GuestSystem,
        access: Arc<GuestAccess>,
        helm: Option<Helm>,
    ) -> Self {
        Self {
            rancher,
            system,
            access,
            helm,
            states: Mutex::default(),
            uninstalls: Mutex::default(),
            prepared: Mutex::default(),
        }
    }

    /// How the charts stand of a guest that is to have these.
    pub fn progress(&self, id: &str, wanted: &[ChartRelease]) -> ChartProgress {
        // Without helm nobody looks after charts.
        if self.helm.is_none() || wanted.is_empty() {
            return ChartProgress::Done;
        }
        let states = self.states.lock();
        let Some(state) = states.get(id) else {
            return ChartProgress::Unknown;
        };
        match &state.wanted {
            Some(others) if others != wanted => ChartProgress::Unknown,
            // Where none was named, none was looked at.
            None if state.progress == ChartProgress::Done => ChartProgress::Unknown,
            Some(_) | None => state.progress.clone(),
        }
    }

    /// Notes whether the namespace of a guest has what the releases there need; `None`: it moves, and has not yet.
    pub fn prepare(&self, id: &str, namespace: Option<&str>) {
        let mut prepared = self.prepared.lock();
        match namespace {
            Some(namespace) => prepared.insert(id.to_owned(), namespace.to_owned()),
            None => prepared.remove(id),
        };
    }

    /// Releases may be removed for others in this namespace.
    pub fn is_prepared(&self, id: &str, namespace: &str) -> bool {
        let prepared = self.prepared.lock();
        prepared.get(id).is_some_and(|one| one == namespace)
    }

    /// A guest is none any more.
    pub fn forget(&self, id: &str) {
        self.states.lock().remove(id);
        self.prepared.lock().remove(id);
        self.access.forget_turn(id);
        if let Some(helm) = &self.helm {
            helm.forget(&self.helm_name(id));
        }
    }

    pub(super) fn helm_name(&self, id: &str) -> String {
        helm_name(&self.rancher, id, self.system)
    }

    pub(super) fn reached<'a>(
        &self,
        id: &str,
        helm: &'a Helm,
        kubeconfig: &'a str,
        remote: &'a Remote,
    ) -> ReachedGuest<'a> {
        ReachedGuest {
            id: id.to_owned(),
            system: self.system,
            name: self.helm_name(id),
            kubeconfig,
            remote,
            helm,
        }
    }

    /// What was said of others counts no longer, were it that these come back before the turn ends.
    pub(super) fn begin(&self, id: &str, wanted: &[ChartRelease]) {
        let mut states = self.states.lock();
        let state = states.get(id).and_then(|state| state.wanted.as_deref());
        if state != Some(wanted) {
            let state = ChartState {
                wanted: Some(wanted.to_vec()),
                progress: ChartProgress::Unknown,
            };
            states.insert(id.to_owned(), state);
        }
    }

    /// An operation on a chart begins; whether all of them were there so far.
    pub(super) fn operation_begins(&self, id: &str) -> bool {
        let mut states = self.states.lock();
        let done = states.get_mut(id);
        let done = done.filter(|state| state.progress == ChartProgress::Done);
        match done {
            Some(state) => {
                state.progress = ChartProgress::UnderWay(String::new());
                true
            }
            None => false,
        }
    }

    /// Notes what came of a look; whether that is new.
    pub(super) fn note(
        &self,
        id: &str,
        wanted: Option<Vec<ChartRelease>>,
        brought: Result<Settled, ChartError>,
    ) -> bool {
        let progress = brought.into();
        let now = ChartState { wanted, progress };
        let before = self.states.lock().insert(id.to_owned(), now.clone());
        before.as_ref() != Some(&now)
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::{super::steps::testing::release, *};
    use crate::{
        config,
        controller::client::testing::canned,
        guests::{access::testing::access, system::testing::FIRST},
    };

    #[tokio::test]
    async fn charts_are_done_only_where_these_are_what_was_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let helm = Helm::start(&config::Helm::default(), dir.path(), stop);
        let access = access(canned(&[]).0);
        let charts = GuestCharts::new("rancher".into(), FIRST, access, Some(helm));
        let wanted = vec![release("lb", "purelb")];
        let progress = |wanted: &[ChartRelease]| charts.progress("c-1", wanted);
        assert_eq!(progress(&wanted), ChartProgress::Unknown);
        assert!(charts.note("c-1", None, Ok(Settled::Yes)));
        assert_eq!(progress(&[]), ChartProgress::Done);
        assert_eq!(progress(&wanted), ChartProgress::Unknown);
        assert!(charts.note("c-1", Some(wanted.clone()), Ok(Settled::Yes)));
        assert_eq!(progress(&wanted), ChartProgress::Done);
        let mut upgraded = wanted.clone();
        upgraded[0].version = "2.0.0".to_owned();
        let before = progress(&upgraded);
        assert_eq!(
            before,
            ChartProgress::Unknown,
            "it is not ready before the upgrade"
        );
    }
}
