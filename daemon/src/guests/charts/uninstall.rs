//! Uninstalling what fipd installed in a guest that is left. Done in the turns of the charts, since helm takes minutes
//! for it; the guest's own turn asks for it and does the rest afterwards.

use std::sync::Arc;

use super::{
    ChartError, GuestCharts, InstalledReleases, ReachedGuest, ReleaseMark, ReleaseOwner, Settled,
    bring::{FAILED, UNDER_WAY},
    error::both,
    owner::ChartRemover,
};
use crate::{
    controller::{client::Remote, queue::Next},
    guests::GuestUnready,
};

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UninstallState {
    Asked,
    /// It is tried again.
    Failed(ChartError),
    /// What another had installed stays.
    Done(Vec<String>),
}

impl GuestCharts {
    /// The releases that stay, once the others are uninstalled. Where nobody did yet, it asks for a turn of the charts.
    pub fn uninstalled(&self, id: &str, ask: impl FnOnce()) -> Result<Vec<String>, GuestUnready> {
        if self.helm.is_none() {
            return Ok(Vec::new());
        }
        let mut uninstalls = self.uninstalls.lock();
        match uninstalls.get(id) {
            Some(UninstallState::Done(kept)) => Ok(kept.clone()),
            Some(UninstallState::Failed(error)) => Err(GuestUnready::Chart(error.message.clone())),
            Some(UninstallState::Asked) => Err(GuestUnready::ChartsLeaving),
            None => {
                uninstalls.insert(id.to_owned(), UninstallState::Asked);
                ask();
                Err(GuestUnready::ChartsLeaving)
            }
        }
    }

    pub fn forget_uninstall(&self, id: &str) {
        self.uninstalls.lock().remove(id);
    }

    /// A turn of the charts of a cluster that is no guest: when to look again, and whether there is something to be told.
    pub async fn uninstall<R: ChartRemover>(&self, id: &str, remover: &R) -> (Next, bool) {
        let before = self.uninstalls.lock().get(id).cloned();
        if !matches!(
            before,
            Some(UninstallState::Asked | UninstallState::Failed(_))
        ) {
            self.forget(id);
            return (Next::Done, false);
        }
        let Some(link) = self.access.last(id) else {
            // The guest's own turn reaches it, or says why not, and asks again.
            self.forget_uninstall(id);
            return (Next::Done, true);
        };
        let (now, next) = match self.remove_all((id, link), remover).await {
            Ok(kept) => (UninstallState::Done(kept), Next::Done),
            Err(error) => {
                let pause = if error.is_busy() { UNDER_WAY } else { FAILED };
                (UninstallState::Failed(error), Next::After(pause))
            }
        };
        let news = before.as_ref() != Some(&now);
        self.uninstalls.lock().insert(id.to_owned(), now);
        (next, news)
    }

    /// Uninstalls what fipd installed; the releases that it only took over stay.
    pub async fn remove_all<R: ChartRemover>(
        &self,
        (id, (kubeconfig, remote)): (&str, (Arc<str>, Remote)),
        remover: &R,
    ) -> Result<Vec<String>, ChartError> {
        let Some(helm) = &self.helm else {
            return Ok(Vec::new());
        };
        let guest = self.reached(id, helm, &kubeconfig, &remote);
        let installed = InstalledReleases::read(&remote, self.system)
            .await
            .map_err(ChartError::unreadable)?;
        for mark in self.removed_meanwhile(id, &installed.marks) {
            remover.removed(&mark, true);
        }
        let mut kept = Vec::new();
        let mut result = Ok(Settled::Yes);
        let mut marks: Vec<&ReleaseMark> = installed.marks.iter().collect();
        marks.sort_by_key(|mark| !remover.goes_first(mark));
        for mark in marks {
            match self.remove(&guest, remover, (&installed, mark)).await {
                Ok(Some(ReleaseOwner::Adopted)) => {
                    kept.push(format!("{}/{}", mark.namespace, mark.name));
                }
                Ok(_) => {}
                Err(error) => {
                    result = both(result, Err(error));
                    if remover.goes_first(mark) {
                        break;
                    }
                }
            }
        }
        result?;
        self.forget(id);
        Ok(kept)
    }

    /// Whose it is where it stays.
    async fn remove<R: ChartRemover>(
        &self,
        guest: &ReachedGuest<'_>,
        remover: &R,
        (installed, mark): (&InstalledReleases, &ReleaseMark),
    ) -> Result<Option<ReleaseOwner>, ChartError> {
        let object = installed.objects.of(&mark.namespace, &mark.name);
        match (mark.owner, object) {
            (ReleaseOwner::Other, _) | (ReleaseOwner::Adopted, None) => {
                return Ok(Some(mark.owner));
            }
            // A switch of engines that was cut off is ended.
            (ReleaseOwner::Adopted, Some(_)) | (ReleaseOwner::Fipd, _) => {}
        }
        // Uninstalling the one before may have taken minutes.
        remover.check_unused(guest, installed).await?;
        remover.confirm_leaving().await?;
        let ended = |well| remover.removed(mark, well);
        self.remove_marked(guest, (installed, mark), ended).await
    }

    /// Removes a release; `ended` is told whether that ended well, where it ended and that is new. Whose it is where it stays.
    pub(super) async fn remove_marked(
        &self,
        guest: &ReachedGuest<'_>,
        (installed, mark): (&InstalledReleases, &ReleaseMark),
        ended: impl FnOnce(bool) + Send,
    ) -> Result<Option<ReleaseOwner>, ChartError> {
        let removed = guest.remove(&installed.objects, &mark.namespace, &mark.name);
        let removed = removed.await;
        if let Some(well) = self.removal_ended(&guest.id, mark, &removed) {
            ended(well);
        }
        removed
    }
}
