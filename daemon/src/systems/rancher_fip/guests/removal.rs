//! Uninstalling what fipd installed in a guest that is left. Done in the turns of the charts, since helm takes minutes
//! for it; the guest's own turn asks for it and does the rest afterwards.

use fipd_crds::labels::FLOATINGIP_CLEANUP;
use serde_json::{Value, json};

use super::{
    Guests,
    charts::{FAILED, UNDER_WAY},
    plan::Wait,
};
use crate::guests::charts::{
    Guest,
    error::{ChartError, both},
    helm_chart::Settled,
    marks::{Found, Mark, Owner},
};
use crate::{
    controller::{client::Remote, kind::SERVICE, queue::Next, store::Key},
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
        // Nobody else would let go of their addresses, and none of them could be deleted.
        let controller = |mark: &Mark| self.settings_of(id).serves(&mark.name).is_none();
        let ours = |mark: &&Mark| mark.owner == Owner::Fipd && controller(mark);
        if found.marks.iter().any(|mark| ours(&mark)) {
            no_service_holds(remote).await?;
        }
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

/// Names that are told of many.
const TOLD: usize = 3;

/// Whether no Service waits for the controller to let go of its address.
async fn no_service_holds(remote: &Remote) -> Result<(), ChartError> {
    let services = remote.list_meta(&SERVICE.named("", ""), "").await;
    let services = services.map_err(|error| ChartError::services_unreadable(&error))?;
    let holding: Vec<String> = services.iter().filter_map(holding).collect();
    match holding.is_empty() {
        true => Ok(()),
        false => Err(ChartError::services_hold(
            holding.len(),
            &holding.iter().take(TOLD).cloned().collect::<Vec<_>>(),
        )),
    }
}

/// Namespace and name of a Service with the controller's finalizer.
fn holding(service: &Value) -> Option<String> {
    let meta = service.get("metadata")?;
    let finalizers = meta.get("finalizers")?.as_array()?;
    let held = finalizers.contains(&json!(FLOATINGIP_CLEANUP));
    let text = |key: &str| meta.get(key).and_then(Value::as_str);
    held.then(|| {
        format!(
            "{}/{}",
            text("namespace").unwrap_or(""),
            text("name").unwrap_or("")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::client::testing::canned;

    #[tokio::test]
    async fn services_with_addresses_keep_the_controller_that_lets_go_of_them() {
        let service = |name: &str, finalizers: Value| json!({ "metadata": { "namespace": "shop", "name": name, "finalizers": finalizers } });
        let free = service(
            "api",
            json!(["service.kubernetes.io/load-balancer-cleanup"]),
        );
        let held = |name| service(name, json!([FLOATINGIP_CLEANUP]));
        let all = json!({ "items": [free, held("a"), held("b"), held("c"), held("d")] });
        let (remote, _) = canned(&[("GET", 200, all.to_string().leak())]);
        let error = no_service_holds(&remote).await.unwrap_err();
        assert_eq!(error.reason, "ServicesHoldAddresses");
        assert!(
            error.message.starts_with("4 Services")
                && error.message.contains("shop/a, shop/b, shop/c"),
            "{}",
            error.message
        );
        let none = json!({ "items": [free] });
        let (remote, _) = canned(&[("GET", 200, none.to_string().leak())]);
        assert_eq!(no_service_holds(&remote).await, Ok(()));
        let (remote, _) = canned(&[("GET", 403, "no")]);
        let error = no_service_holds(&remote).await.unwrap_err();
        assert_eq!(error.reason, "ServicesUnreadable", "nobody knows");
    }
}
