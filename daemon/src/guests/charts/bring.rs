//! Brings the releases that a system wants in a guest.

use std::time::Duration;

use super::{
    ChartError, ChartRelease, GuestCharts, InstalledReleases, ReachedGuest, ReleaseMark,
    ReleaseOwner, Settled,
    error::both,
    owner::ChartOwner,
    steps::{ReleaseStep, steps},
};
use crate::{config::ChartEngine, controller::queue::Next, guests::access::GuestName};

/// After this time a guest is looked at again although nothing was seen to change.
const AGAIN: Duration = Duration::from_secs(300);
/// After this time a chart that failed is asked for again; helm's own pauses are longer.
pub(super) const FAILED: Duration = Duration::from_secs(30);
/// After this time it is looked how far helm-controller is.
pub(super) const UNDER_WAY: Duration = Duration::from_secs(5);

impl GuestCharts {
    /// When to look again, and whether there is something to be told. `owner` says what is wanted, once the guest answers;
    /// `None`: nobody knows, which the guest's own turn tells.
    pub async fn look_after<O: ChartOwner>(
        &self,
        (id, name): (&str, GuestName<'_>),
        owner: impl FnOnce() -> Option<O> + Send,
    ) -> (Next, bool) {
        self.forget_uninstall(id);
        let Some(helm) = &self.helm else {
            return (Next::Done, false);
        };
        // One that does not answer must not keep a place of helm's from others. Its own turn says why, and comes here
        // again once it does.
        let Ok((kubeconfig, remote)) = self.access.link(id, name).await else {
            helm.out_of_sight(&self.helm_name(id));
            return (Next::Done, false);
        };
        let guest = self.reached(id, helm, &kubeconfig, &remote);
        let (wanted, brought) = match owner() {
            Some(owner) => self.bring(&guest, owner).await,
            None => (None, Ok(Settled::Yes)),
        };
        let pause = match &brought {
            Ok(Settled::Yes) => {
                self.access.rest(id);
                AGAIN
            }
            Ok(Settled::NotYet) => UNDER_WAY,
            Err(error) if error.is_busy() => UNDER_WAY,
            Err(_) => FAILED,
        };
        (Next::After(pause), self.note(id, wanted, brought))
    }

    /// Which ones are wanted, and what became of them.
    pub(super) async fn bring<O: ChartOwner>(
        &self,
        guest: &ReachedGuest<'_>,
        mut owner: O,
    ) -> (Option<Vec<ChartRelease>>, Result<Settled, ChartError>) {
        let mut installed = match InstalledReleases::read(guest.remote, self.system).await {
            Ok(installed) => installed,
            Err(error) => return (None, Err(ChartError::unreadable(error))),
        };
        let wanted = match owner.wanted(&installed).await {
            Ok(wanted) => wanted,
            Err(error) => return (None, Err(error)),
        };
        let others = (self.board).releases_of_others(&self.rancher, &guest.id, self.system);
        others.iter().for_each(|other| installed.note_other(other));
        self.begin(&guest.id, &wanted);
        let brought = self.bring_all(guest, &owner, &installed, &wanted).await;
        (Some(wanted), brought)
    }

    /// Brings each release as far as possible, and reports the error of each that was tried.
    async fn bring_all<O: ChartOwner>(
        &self,
        guest: &ReachedGuest<'_>,
        owner: &O,
        installed: &InstalledReleases,
        wanted: &[ChartRelease],
    ) -> Result<Settled, ChartError> {
        let engine = owner.engine()?;
        for mark in self.removed_meanwhile(&guest.id, &installed.marks) {
            owner.removed(&mark, true);
        }
        let excludes = |release: &ChartRelease, mark: &ReleaseMark| owner.excludes(release, mark);
        let mut result = Ok(Settled::Yes);
        for step in steps(wanted, &installed.marks, excludes) {
            let brought = self.take(guest, (owner, engine), installed, &step).await;
            if let Err(error) = &brought {
                guest.note_error(step.brings, error);
            }
            let place = (&*step.brings.namespace, &*step.brings.name);
            if let Some(well) = self.operation_ended(&guest.id, place, &brought) {
                owner.ended(step.brings, well);
            }
            let stops = owner.in_order() && brought != Ok(Settled::Yes) && {
                let there = installed.is_complete(guest.remote, place.0, place.1);
                !there.await.unwrap_or(false)
            };
            result = both(result, brought);
            if stops {
                break;
            }
        }
        result
    }

    async fn take<O: ChartOwner>(
        &self,
        guest: &ReachedGuest<'_>,
        (owner, engine): (&O, ChartEngine),
        installed: &InstalledReleases,
        step: &ReleaseStep<'_>,
    ) -> Result<Settled, ChartError> {
        let name = &step.brings.name;
        let release = step.brings.parse();
        let mut release = release.map_err(|error| ChartError::of(name, &error.into()))?;
        installed.check_system(&release.namespace, name)?;
        let there = match owner.makes_room() || step.brings.once {
            true => {
                let there = installed.is_complete(guest.remote, &release.namespace, name);
                let there = there.await.map_err(ChartError::unreadable)?;
                if !there {
                    guest.helm.distrust(&guest.place(&release.namespace, name));
                }
                there
            }
            false => false,
        };
        if owner.makes_room() && !there {
            guest.check(engine, &installed.objects, &release).await?;
        }
        let stays = step.brings.once && there;
        if step.brings.once && !there && step.removes.is_empty() {
            let whose = installed
                .owner(guest.remote, &release.namespace, name)
                .await;
            if whose.map_err(ChartError::unreadable)? == Some(ReleaseOwner::Other) {
                return Err(ChartError::not_deployed(&release.namespace, name));
            }
        }
        owner.check_room(guest, installed, step).await?;
        if step.brings.follows() {
            match guest.helm.newest(&release.chart).await {
                Ok(newest) => release.chart.version = newest,
                // Only the cluster has to reach the repository: it takes the newest at first, and what is there stays.
                Err(error) if engine == ChartEngine::HelmChart => {
                    tracing::warn!(cluster = guest.id, name, %error, "no newer version is looked for: this host cannot read the chart");
                }
                Err(error) => return Err(ChartError::of(name, &error)),
            }
        }
        if !step.removes.is_empty() && !stays {
            guest.check(engine, &installed.objects, &release).await?;
        }
        for mark in &step.removes {
            owner.confirm_removal(guest).await?;
            let ended = |well| owner.removed(mark, well);
            let stays = self.remove_marked(guest, (installed, mark), ended);
            if stays.await?.is_some() {
                return Err(ChartError::elsewhere(mark, name));
            }
            tracing::info!(
                cluster = guest.id,
                namespace = mark.namespace,
                name = mark.name,
                "uninstalled a release that the settings or the labels do not ask for"
            );
        }
        if stays {
            guest.note_done(step.brings);
            return Ok(Settled::Yes);
        }
        let begins = || {
            if self.operation_begins(&guest.id, step.brings) {
                owner.begins();
            }
        };
        guest.bring(engine, installed, &release, &begins).await
    }
}
