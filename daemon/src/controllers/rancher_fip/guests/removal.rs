//! Uninstalling what fipd installed in a guest that is left. Done in the turns of the charts, since helm takes minutes
//! for it; the guest's own turn asks for it and does the rest afterwards.

use super::{
    Guests,
    chart_error::{ChartError, both},
    charts::{FAILED, Guest, UNDER_WAY},
    found::{Found, Mark, Owner},
    helm_chart::Settled,
    plan::Wait,
};
use crate::{
    controllers::{objects::Key, queue::Next, remote::Remote},
    guests::helm_name,
};

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    Asked,
    /// It is tried again.
    Failed(ChartError),
    /// What another had installed stays.
    Done(Vec<String>),
}

impl Guests {
    /// The releases that stay, once the others are uninstalled. Asks for that where nobody did.
    pub(super) fn uninstalled(&self, id: &str) -> Result<Vec<String>, Wait> {
        if self.helm.is_none() {
            return Ok(Vec::new());
        }
        let mut removals = self.removals.lock();
        match removals.get(id) {
            Some(Removal::Done(kept)) => Ok(kept.clone()),
            Some(Removal::Failed(error)) => Err(Wait::Chart(error.message.clone())),
            Some(Removal::Asked) => Err(Wait::ChartsLeaving),
            None => {
                removals.insert(id.to_owned(), Removal::Asked);
                self.charts.add(Key::new("", id));
                Err(Wait::ChartsLeaving)
            }
        }
    }

    pub(super) fn forget_removal(&self, id: &str) {
        self.removals.lock().remove(id);
    }

    /// A turn of the charts of a cluster that is no guest.
    pub(super) async fn uninstall_charts(&self, key: &Key) -> (Next, bool) {
        let id = &*key.name;
        let before = self.removals.lock().get(id).cloned();
        if !matches!(before, Some(Removal::Asked | Removal::Failed(_))) {
            self.forget_charts(id);
            return (Next::Done, false);
        }
        let Some((_, remote)) = self.clients.way(id) else {
            // The guest's own turn finds out why, and asks again.
            self.forget_removal(id);
            return (Next::Done, true);
        };
        let (now, next) = match self.remove_charts(id, &remote).await {
            Ok(kept) => (Removal::Done(kept), Next::Done),
            Err(error) => {
                let pause = if error.is_busy() { UNDER_WAY } else { FAILED };
                (Removal::Failed(error), Next::After(pause))
            }
        };
        let news = before.as_ref() != Some(&now);
        self.removals.lock().insert(id.to_owned(), now);
        (next, news)
    }

    /// Uninstalls what fipd installed; the releases that it only took over stay.
    pub(super) async fn remove_charts(
        &self,
        id: &str,
        remote: &Remote,
    ) -> Result<Vec<String>, ChartError> {
        let (Some(helm), Some((kubeconfig, _))) = (&self.helm, self.clients.way(id)) else {
            return Ok(Vec::new());
        };
        let guest = Guest {
            id: id.to_owned(),
            name: helm_name(&self.site.name, id),
            kubeconfig: &kubeconfig,
            remote,
            helm,
        };
        let found = Found::read(remote).await;
        let found = found.map_err(|error| ChartError::unreadable(&error))?;
        let mut kept = Vec::new();
        let mut result = Ok(Settled::Yes);
        for mark in &found.marks {
            match self.remove_chart(&guest, &found, mark).await {
                Ok(Some(Owner::Adopted)) => kept.push(format!("{}/{}", mark.namespace, mark.name)),
                Ok(_) => {}
                Err(error) => result = both(result, Err(error)),
            }
        }
        result?;
        self.forget_charts(id);
        Ok(kept)
    }

    /// Whose it is where it stays.
    async fn remove_chart(
        &self,
        guest: &Guest<'_>,
        found: &Found,
        mark: &Mark,
    ) -> Result<Option<Owner>, ChartError> {
        let object = found.charts.of(&mark.namespace, &mark.name);
        match (mark.owner, object) {
            (Owner::Other, _) | (Owner::Adopted, None) => return Ok(Some(mark.owner)),
            // Half a hand-over of its object is ended.
            (Owner::Adopted, Some(_)) | (Owner::Fipd, _) => {}
        }
        // Uninstalling the one before may have taken minutes.
        let off = self.is_off(&guest.id).await;
        if !off.map_err(|error| ChartError::unconfirmed(&error))? {
            return Err(ChartError::changed());
        }
        (guest.remove(&found.charts, &mark.namespace, &mark.name)).await
    }
}
