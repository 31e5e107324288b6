//! The charts of a guest that another system of fipd looks after too, with canned answers.

use std::sync::Arc;

use fipd_core::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    owner::{ChartOwner, ChartRemover},
    steps::{ReleaseStep, testing::release},
    *,
};
use crate::{
    config::{self, ChartEngine},
    controller::client::testing::canned,
    guests::{
        GuestBoard, GuestPhase, GuestStatus, GuestUpdate, ReleaseView,
        access::testing::access,
        system::testing::{FIRST, SECOND},
    },
    helm::{OWNER, OWNER_LABEL, SYSTEM_LABEL},
};

/// Wants some releases, and lets all others be removed.
#[derive(Default)]
struct Wants {
    releases: Vec<ChartRelease>,
    in_order: bool,
    /// Those that were tried.
    tried: Arc<Mutex<Vec<String>>>,
}

impl Wants {
    fn one(release: ChartRelease) -> Self {
        Self {
            releases: vec![release],
            ..Self::default()
        }
    }
}

impl ChartOwner for Wants {
    async fn wanted(&mut self, _: &InstalledReleases) -> Result<Vec<ChartRelease>, ChartError> {
        Ok(self.releases.clone())
    }

    fn engine(&self) -> Result<ChartEngine, ChartError> {
        Ok(ChartEngine::Helm)
    }

    fn excludes(&self, _: &ChartRelease, _: &ReleaseMark) -> bool {
        true
    }

    async fn check_room(
        &self,
        _: &ReachedGuest<'_>,
        _: &InstalledReleases,
        step: &ReleaseStep<'_>,
    ) -> Result<(), ChartError> {
        assert!(step.removes.is_empty() && step.kept_out_by.is_empty());
        self.tried.lock().push(step.brings.name.clone());
        Err(ChartError::new("Room", "enough for this test"))
    }

    async fn confirm_removal(&self, _: &ReachedGuest<'_>) -> Result<(), ChartError> {
        Ok(())
    }

    fn begins(&self) {}

    fn in_order(&self) -> bool {
        self.in_order
    }
}

/// Has nothing against a removal.
struct Removes;

impl ChartRemover for Removes {
    async fn check_unused(
        &self,
        _: &ReachedGuest<'_>,
        _: &InstalledReleases,
    ) -> Result<(), ChartError> {
        Ok(())
    }

    async fn confirm_leaving(&self) -> Result<(), ChartError> {
        Ok(())
    }
}

/// Those of a system in the guests of one Rancher, which answers nothing.
fn charts(system: GuestSystem, board: &GuestBoard, helm: &Helm) -> GuestCharts {
    let access = access(canned(&[]).0);
    GuestCharts::new(
        "rancher".into(),
        system,
        (board, access),
        Some(helm.clone()),
    )
}

/// The Secret list of a guest with the release `lb/purelb` of a system.
fn installed(system: GuestSystem) -> &'static str {
    let mut labels = json!({
        "name": "purelb", "version": "1", "status": "deployed", OWNER_LABEL: OWNER,
    });
    if let Some(mark) = system.mark() {
        labels[SYSTEM_LABEL] = json!(mark);
    }
    let secret: Value = json!({ "metadata": { "namespace": "lb", "labels": labels } });
    json!({ "items": [secret] }).to_string().leak()
}

#[tokio::test]
async fn the_release_of_another_system_is_neither_taken_over_nor_removed_and_no_second_one_comes() {
    let dir = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    let helm = Helm::start(&config::Helm::default(), dir.path(), stop);
    for (system, other) in [(FIRST, SECOND), (SECOND, FIRST)] {
        let looks = [
            ("GET", 404, "no HelmCharts"),
            ("GET", 200, installed(other)),
        ];
        let charts = |guest: Remote| {
            let charts = charts(system, &GuestBoard::default(), &helm);
            charts.access.keep("c-1", "kube", guest);
            charts
        };
        let reason = async |wanted: ChartRelease| {
            let (guest, asked) = canned(&looks);
            let charts = charts(guest.clone());
            let guest = charts.reached("c-1", &helm, "kube", &guest);
            let (_, brought) = charts.bring(&guest, Wants::one(wanted)).await;
            assert_eq!(asked.lock().len(), looks.len(), "no more was done");
            brought.unwrap_err().reason
        };
        let taken = release("lb", "purelb");
        assert_eq!(reason(taken).await, "ReleaseOfOtherSystem");
        assert_eq!(reason(release("lb", "another")).await, "OtherLoadBalancer");

        let (guest, asked) = canned(&looks);
        let removed = charts(guest.clone())
            .remove_all(("c-1", ("kube".into(), guest)), &Removes)
            .await;
        assert_eq!(removed, Ok(Vec::new()), "nothing of its own is there");
        assert_eq!(asked.lock().len(), looks.len(), "nothing was removed");
    }
}

#[tokio::test]
async fn what_another_system_wants_counts_as_its_own_whoever_installed_it() {
    let dir = tempfile::tempdir().unwrap();
    let helm = Helm::start(
        &config::Helm::default(),
        dir.path(),
        CancellationToken::new(),
    );
    let (board, rancher) = (GuestBoard::default(), "rancher".into());
    let vip = ReleaseView::of(&release("kube-system", "vip"));
    let update = GuestUpdate {
        rancher: &rancher,
        id: "c-1",
        system: SECOND,
        display_name: "",
        says: GuestStatus::new(GuestPhase::Ready, "Ready", ""),
        details: Vec::new(),
        releases: Some(vec![vip]),
    };
    board.say(update, Timestamp(0));
    let labels = json!({ "name": "vip", "version": "1", "status": "deployed" });
    let there =
        json!({ "items": [{ "metadata": { "namespace": "kube-system", "labels": labels } }] });
    let looks = [
        ("GET", 404, "no HelmCharts"),
        ("GET", 200, &*there.to_string().leak()),
    ];
    let (guest, asked) = canned(&looks);
    let charts = charts(FIRST, &board, &helm);
    let reached = charts.reached("c-1", &helm, "kube", &guest);
    let wants = Wants::one(release("lb", "purelb"));
    let (_, brought) = charts.bring(&reached, wants).await;
    assert_eq!(brought.unwrap_err().reason, "OtherLoadBalancer");
    assert_eq!(asked.lock().len(), looks.len(), "no more was done");
}

#[tokio::test]
async fn what_needs_another_release_does_not_come_where_that_cannot() {
    let dir = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    let helm = Helm::start(&config::Helm::default(), dir.path(), stop);
    for (in_order, expected) in [(true, vec!["vip"]), (false, vec!["vip", "provider"])] {
        let none = ("GET", 200, r#"{"items":[]}"#);
        let (guest, _) = canned(&[("GET", 404, "no HelmCharts"), none, none]);
        let board = GuestBoard::default();
        let charts = charts(FIRST, &board, &helm);
        let wants = Wants {
            releases: vec![release("lb", "vip"), release("lb", "provider")],
            in_order,
            ..Wants::default()
        };
        let tried = Arc::clone(&wants.tried);
        let guest = charts.reached("c-1", &helm, "kube", &guest);
        let (_, brought) = charts.bring(&guest, wants).await;
        assert_eq!(brought.unwrap_err().reason, "Room");
        assert_eq!(*tried.lock(), expected);
    }
}
