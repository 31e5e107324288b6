//! One release of a guest, by either engine: the helm CLI, or helm-controller by a HelmChart.

use super::{
    ChartError, ChartRelease, InstalledReleases, ReachedGuest, ReleaseOwner, Settled,
    helm_chart::HelmCharts, installed::owner,
};
use crate::{
    config::ChartEngine,
    helm::{Noted, Release},
};

impl ReachedGuest<'_> {
    /// Whether the release is to be had, so that another may be removed for it.
    pub(super) async fn check(
        &self,
        engine: ChartEngine,
        objects: &HelmCharts,
        release: &Release,
    ) -> Result<(), ChartError> {
        self.check_release(release).await?;
        match engine {
            ChartEngine::Helm => {
                objects.check_foreign(release)?;
                let there = self.helm.check_chart(&release.chart).await;
                there.map_err(|error| ChartError::of(&release.name, &error))
            }
            // Only the cluster has to reach it.
            ChartEngine::HelmChart => objects.check(release),
        }
    }

    /// Brings a release to its chart, version and values, from whichever engine it is with. `begins` is told when an
    /// operation of the helm CLI begins.
    pub(super) async fn bring(
        &self,
        engine: ChartEngine,
        installed: &InstalledReleases,
        release: &Release,
        begins: &(dyn Fn() + Sync),
    ) -> Result<Settled, ChartError> {
        let (objects, place) = (&installed.objects, (&*release.namespace, &*release.name));
        match (engine, objects.of(place.0, place.1)) {
            (ChartEngine::HelmChart, _) => self.bring_object(objects, release).await,
            (ChartEngine::Helm, Some(object)) => {
                self.hand_to_helm(object).await.map(|()| Settled::NotYet)
            }
            (ChartEngine::Helm, None) => {
                let state = installed.state(place.0, place.1);
                let brought = self.helm.ensure(self.access(), release, state, begins);
                let brought = brought.await.map(|_| Settled::Yes);
                brought.map_err(|error| ChartError::of(&release.name, &error))
            }
        }
    }

    /// Removes a release that fipd installed, by the engine that it is with; whose it is where it stays.
    pub(super) async fn remove(
        &self,
        objects: &HelmCharts,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ReleaseOwner>, ChartError> {
        if let Some(object) = objects.of(namespace, name) {
            return self.remove_object(object).await.map(Some);
        }
        let owner = owner(self.remote, namespace, name, self.system)
            .await
            .map_err(ChartError::unreadable)?;
        if owner != Some(ReleaseOwner::Fipd) {
            return Ok(owner);
        }
        let gone = self.helm.uninstall(self.access(), namespace, name).await;
        gone.map_err(|error| ChartError::of(name, &error))?;
        Ok(None)
    }

    /// A release that stays as it is shows as what it is.
    pub(super) fn note_done(&self, release: &ChartRelease) {
        let target = self.place(&release.namespace, &release.name);
        let version = Some(release.version.clone());
        self.helm.noted(&target, version, Noted::Done);
    }

    /// An error from before an engine began shows with the release too.
    pub(super) fn note_error(&self, release: &ChartRelease, error: &ChartError) {
        if error.is_busy() {
            return;
        }
        let target = self.place(&release.namespace, &release.name);
        let noted = Noted::Failed(error);
        let version = Some(release.version.clone());
        self.helm.noted(&target, version, noted);
    }
}
