//! A FloatingIP that fipd took over and whose Service ends: it stays, with its address, for its project. Only its
//! owner deletes it.

use fipd_core::{LeaseKey, Text};
use fipd_crds::floating_ip::FloatingIP;
use serde_json::{Map, Value, json};

use super::{FloatingIpController, observe::Fip, plan};
use crate::{
    controller::{
        Reconciled,
        client::{MANAGER, Patch},
        queue::Next,
        store::Key,
    },
    systems::rancher_fip::{
        kinds::FLOATING_IP,
        names::{CLUSTER, GROUP, HOLDER, MANAGED_BY, SERVICE_PREFIX},
    },
};

impl FloatingIpController {
    /// Gives the object its lease back where the Service lost it without a word, then takes the Service off it.
    pub(super) async fn hand_back(&self, key: &Key, fip: &Fip) -> Reconciled {
        let site = &self.context.site;
        let lost = site.ipam.read(|ledger| {
            let network = plan::wish(ledger, &site.id, fip).ok()?.pool.spec.network;
            let address = fip.recorded()?;
            let place = LeaseKey { network, address };
            ledger.lease(place).is_none().then_some(place)
        });
        if let Some(place) = lost {
            let asker = self.asker(key, &fip.meta);
            let adopt = asker.adopt(place, fip.project.clone());
            site.ipam.submit(adopt).await?;
        }
        self.take_users_off(key, fip, |_| true).await?;
        Ok(Next::Done)
    }

    /// Takes cluster, group and Services off the object, if it is as `is_so` says by a fresh read; whether it did.
    pub(super) async fn take_users_off(
        &self,
        key: &Key,
        fip: &Fip,
        is_so: impl Fn(&FloatingIP) -> bool,
    ) -> Reconciled<bool> {
        let (remote, target) = (&self.context.remote, FLOATING_IP.target(key));
        let object = remote.get::<FloatingIP>(&target).await?.filter(is_so);
        let Some(patch) = object.and_then(|object| unassigned(&object, &fip.meta.uid)) else {
            return Ok(false);
        };
        remote.patch(&target, Patch::Merge, &patch).await?;
        Ok(true)
    }
}

/// Takes off what says that a Service uses the object.
pub fn unassigned(object: &FloatingIP, uid: &Text) -> Option<Value> {
    let meta = &object.metadata;
    let (own, version) = (meta.uid.as_deref()?, meta.resource_version.as_deref()?);
    let says = |key: &str, value: &str| {
        key == CLUSTER
            || key == GROUP
            || key.starts_with(SERVICE_PREFIX)
            || (key == MANAGED_BY && value == MANAGER)
    };
    let labels = meta.labels.iter().flatten();
    let gone: Map<String, Value> = labels
        .filter(|(key, value)| says(key, value))
        .map(|(key, _)| (key.clone(), Value::Null))
        .collect();
    (own == &**uid).then(|| {
        json!({ "metadata": {
            "uid": own, "resourceVersion": version,
            "labels": gone, "annotations": { HOLDER: null },
        } })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_the_service_goes_and_the_rest_stays() {
        let object: FloatingIP = serde_json::from_value(json!({
            "metadata": {
                "name": "fip-abc12", "uid": "u", "resourceVersion": "7",
                "labels": {
                    "rancher.k8s.binbash.org/project-name": "p-1",
                    "rancher.k8s.binbash.org/cluster-name": "c-1",
                    "rancher.k8s.binbash.org/service-3-name": "web",
                    "rancher.k8s.binbash.org/service-3-namespace": "ns",
                    "rancher.k8s.binbash.org/service-name": "web",
                    "rancher.k8s.binbash.org/floatingip-group": "g",
                    MANAGED_BY: MANAGER,
                    "team": "a",
                },
            },
            "spec": { "floatingIPPool": "net" },
        }))
        .expect("a FloatingIP");
        let patch = unassigned(&object, &"u".into()).expect("a patch");
        let labels = json!({
            "rancher.k8s.binbash.org/cluster-name": null,
            "rancher.k8s.binbash.org/service-3-name": null,
            "rancher.k8s.binbash.org/service-3-namespace": null,
            "rancher.k8s.binbash.org/service-name": null,
            "rancher.k8s.binbash.org/floatingip-group": null,
            MANAGED_BY: null,
        });
        assert_eq!(patch["metadata"]["labels"], labels);
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(unassigned(&object, &"another".into()), None);
    }
}
