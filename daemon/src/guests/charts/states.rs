//! How the charts of guests stand.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::Text;
use parking_lot::Mutex;

use super::{
    ChartError, ChartRelease, ReachedGuest, ReleaseMark, ReleaseOwner, Settled,
    uninstall::UninstallState,
};
use crate::{
    controller::client::Remote,
    guests::{GuestBoard, GuestSystem, access::GuestAccess, helm_name},
    helm::Helm,
};

/// The charts that one system wants in the guests of one Rancher.
pub struct GuestCharts {
    pub(super) rancher: Text,
    /// Says which releases other systems want.
    pub(super) board: GuestBoard,
    pub(super) system: GuestSystem,
    pub(super) access: Arc<GuestAccess>,
    /// Without it nobody looks after charts.
    pub(super) helm: Option<Helm>,
    states: Mutex<BTreeMap<String, ChartState>>,
    /// None for a release that is as it should be.
    operations: Mutex<BTreeMap<ReleaseKey, ChartAttempt>>,
    /// Releases that helm-controller is uninstalling.
    removals: Mutex<BTreeMap<ReleaseKey, ReleaseMark>>,
    pub(super) uninstalls: Mutex<BTreeMap<String, UninstallState>>,
    /// The namespace of each guest that has what the releases there need.
    prepared: Mutex<BTreeMap<String, String>>,
}

/// Guest, namespace and name of a release.
pub(super) type ReleaseKey = (String, String, String);

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

/// What is done about a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChartAttempt {
    Running,
    /// The last attempt failed for this reason.
    Failed(&'static str),
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
        (board, access): (&GuestBoard, Arc<GuestAccess>),
        helm: Option<Helm>,
    ) -> Self {
        Self {
            rancher,
            board: board.clone(),
            system,
            access,
            helm,
            states: Mutex::default(),
            operations: Mutex::default(),
            removals: Mutex::default(),
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
        self.operations.lock().retain(|(of, ..), _| of != id);
        self.removals.lock().retain(|(of, ..), _| of != id);
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

    /// Whether an operation on the release ended well; `false` for each new failure, also of one that could not begin. `None`:
    /// there was nothing to do, it goes on, or nothing was tried since the last failure.
    pub(super) fn operation_ended(
        &self,
        id: &str,
        place: (&str, &str),
        brought: &Result<Settled, ChartError>,
    ) -> Option<bool> {
        let mut operations = self.operations.lock();
        let one = key_of(id, place);
        match brought {
            Ok(Settled::NotYet) => {
                operations.insert(one, ChartAttempt::Running);
                None
            }
            Ok(Settled::Yes) => {
                (operations.remove(&one) == Some(ChartAttempt::Running)).then_some(true)
            }
            Err(error) if error.is_busy() => None,
            Err(error) => {
                let failed = ChartAttempt::Failed(error.reason);
                (operations.insert(one, failed) != Some(failed)).then_some(false)
            }
        }
    }

    /// An operation on a chart begins; whether all of them were there so far.
    pub(super) fn operation_begins(&self, id: &str, release: &ChartRelease) -> bool {
        let one = key_of(id, (&release.namespace, &release.name));
        self.operations.lock().insert(one, ChartAttempt::Running);
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

    /// Notes what came of a removal; whether it ended well, where it ended and that is new.
    pub(super) fn removal_ended(
        &self,
        id: &str,
        mark: &ReleaseMark,
        removed: &Result<Option<ReleaseOwner>, ChartError>,
    ) -> Option<bool> {
        let place = (&*mark.namespace, &*mark.name);
        let one = key_of(id, place);
        match removed {
            Ok(stays) => {
                self.removals.lock().remove(&one);
                stays.is_none().then(|| {
                    self.operations.lock().remove(&one);
                    true
                })
            }
            Err(error) if error.is_busy() => {
                self.removals.lock().insert(one, mark.clone());
                None
            }
            // What was busy before may go on.
            Err(error) => self.operation_ended(id, place, &Err(error.clone())),
        }
    }

    /// Releases that helm-controller has uninstalled; `marks` are those still installed.
    pub(super) fn removed_meanwhile(&self, id: &str, marks: &[ReleaseMark]) -> Vec<ReleaseMark> {
        let mut removals = self.removals.lock();
        let gone = |(of, namespace, name): &ReleaseKey, _: &mut ReleaseMark| {
            let is_left = |mark: &ReleaseMark| mark.namespace == *namespace && mark.name == *name;
            of == id && !marks.iter().any(is_left)
        };
        let gone: BTreeMap<ReleaseKey, ReleaseMark> = removals.extract_if(.., gone).collect();
        let mut operations = self.operations.lock();
        operations.retain(|one, _| !gone.contains_key(one));
        gone.into_values().collect()
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

fn key_of(id: &str, (namespace, name): (&str, &str)) -> ReleaseKey {
    (id.to_owned(), namespace.to_owned(), name.to_owned())
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::{
        super::steps::testing::{mark, release},
        *,
    };
    use crate::{
        config,
        controller::client::testing::canned,
        guests::{access::testing::access, system::testing::FIRST},
    };

    fn charts() -> GuestCharts {
        let dir = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let helm = Helm::start(&config::Helm::default(), dir.path(), stop);
        let access = access(canned(&[]).0);
        GuestCharts::new(
            "rancher".into(),
            FIRST,
            (&GuestBoard::default(), access),
            Some(helm),
        )
    }

    #[tokio::test]
    async fn an_operation_ends_once_and_a_failure_is_new_once() {
        let (charts, release) = (charts(), release("lb", "purelb"));
        let place = (&*release.namespace, &*release.name);
        let ended = |brought| charts.operation_ended("c-1", place, &brought);
        let failed = |reason| Err(ChartError::new(reason, "why"));
        assert_eq!(ended(Ok(Settled::Yes)), None, "nothing was done");
        charts.operation_begins("c-1", &release);
        assert_eq!(ended(failed(super::super::BUSY)), None, "it goes on");
        assert_eq!(ended(Ok(Settled::Yes)), Some(true));
        assert_eq!(ended(Ok(Settled::Yes)), None);
        // helm-controller works on it.
        assert_eq!(ended(Ok(Settled::NotYet)), None);
        assert_eq!(ended(Ok(Settled::Yes)), Some(true));
        assert_eq!(ended(failed("NoChart")), Some(false));
        assert_eq!(ended(failed("NoChart")), None, "nothing was tried since");
        assert_eq!(ended(failed("BadValues")), Some(false));
        charts.operation_begins("c-1", &release);
        assert_eq!(
            ended(failed("BadValues")),
            Some(false),
            "it was tried again"
        );
        assert_eq!(ended(Ok(Settled::Yes)), None, "somebody else mended it");
        charts.operation_begins("c-1", &release);
        charts.forget("c-1");
        assert_eq!(ended(Ok(Settled::Yes)), None);
    }

    #[tokio::test]
    async fn a_removal_ends_once_by_either_engine() {
        let (charts, mark) = (charts(), mark("lb", "purelb", ReleaseOwner::Fipd));
        let ended = |removed| charts.removal_ended("c-1", &mark, &removed);
        let failed = || Err(ChartError::new("UninstallFailed", "why"));
        assert_eq!(ended(failed()), Some(false));
        assert_eq!(ended(failed()), None, "it is the same failure");
        assert_eq!(ended(Ok(None)), Some(true));
        assert_eq!(ended(Ok(Some(ReleaseOwner::Adopted))), None, "it stays");
        assert_eq!(ended(Err(ChartError::new(super::super::BUSY, ""))), None);
        let left = |marks: &[ReleaseMark]| charts.removed_meanwhile("c-1", marks);
        assert_eq!(left(std::slice::from_ref(&mark)), [], "it goes on");
        assert_eq!(charts.removed_meanwhile("c-2", &[]), []);
        assert_eq!(left(&[]), std::slice::from_ref(&mark));
        assert_eq!(left(&[]), []);
        assert_eq!(ended(Err(ChartError::new(super::super::BUSY, ""))), None);
        assert_eq!(ended(Ok(None)), Some(true));
        assert_eq!(left(&[]), [], "it was counted");
    }

    #[tokio::test]
    async fn charts_are_done_only_where_these_are_what_was_looked_at() {
        let charts = charts();
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
