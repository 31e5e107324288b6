//! What follows once a Service shows its address: announcer's objects and the FloatingIP in Rancher.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    Services, announce, farewell::identify, object, observe::Svc, pools, reference, validate,
};
use crate::{
    config::Announce,
    controllers::{
        Trouble,
        objects::Key,
        queue::Next,
        rancher_fip::{
            floating_ip,
            names::{FOR_SERVICE, KIND_SERVICE, MANAGED_BY, ServiceRef},
        },
        remote::{CallError, MANAGER, Patch, Target},
    },
};

/// How long what follows gives way to Services that wait.
const GIVE_WAY: Duration = Duration::from_secs(3);
/// Between two looks whether nobody waits.
const LOOK: Duration = Duration::from_millis(20);
/// Between two searches for announcer's objects that nobody needs.
pub const SWEEP: Duration = Duration::from_secs(600);

impl Services {
    /// Waits until no Service is waiting, for a while at most.
    pub async fn idle(&self) {
        let idle = async {
            while !self.queue.is_idle() {
                tokio::time::sleep(LOOK).await;
            }
        };
        let _ = tokio::time::timeout(GIVE_WAY, idle).await;
    }

    /// Brings announcer and Rancher up to date with one Service.
    pub async fn follow_up(self: Arc<Self>, key: Key) -> Next {
        self.idle().await;
        match self.try_follow_up(&key).await {
            Ok(()) => Next::Done,
            Err(trouble) => trouble.next("FloatingIP of Service", &key),
        }
    }

    async fn try_follow_up(&self, key: &Key) -> Result<(), Trouble> {
        let Some(svc) = self.services.get(key) else {
            return Ok(());
        };
        let service = self.service(key, &svc.uid);
        if self.held(&service).is_empty()
            || !validate::is_ours(&svc, self.settings.class_less, true)
        {
            return Ok(());
        }
        let announced = self.announce(&service, &svc).await;
        self.write_objects(&service).await?;
        announced
    }

    /// Writes the FloatingIPs that show the Service's leases.
    async fn write_objects(&self, service: &ServiceRef) -> Result<(), Trouble> {
        let (Some(data), Some(cluster)) = (self.rancher.data(), self.rancher_cluster()) else {
            return Ok(());
        };
        for lease in self.held(service) {
            let wanted = self.site.ipam.read(|ledger| {
                object::wanted(
                    ledger,
                    &data.cluster,
                    Some(&data),
                    service,
                    &cluster,
                    &lease,
                    &|key| self.lives(key),
                )
            });
            let Some(wanted) = wanted else { continue };
            let known = data.fips.get(&wanted.key);
            // One that is being deleted must be gone before it can come again; its end brings us back.
            if known
                .as_ref()
                .is_some_and(|fip| fip.terminating || wanted.is_met(fip))
            {
                continue;
            }
            self.unwritten.lock().remove(&service.uid);
            let target = floating_ip::target(&wanted.key);
            data.remote
                .patch(&target, Patch::Apply, &wanted.body())
                .await?;
        }
        Ok(())
    }

    async fn announce(&self, service: &ServiceRef, svc: &Svc) -> Result<(), Trouble> {
        let mode = self.settings.announce;
        match mode {
            Announce::None | Announce::KubeVip => return Ok(()),
            Announce::Metallb | Announce::Purelb => {}
        }
        let addresses = self.addresses(service, svc);
        if self.announced.lock().get(&service.key) == Some(&addresses) {
            return Ok(());
        }
        let namespace = &*self.settings.app_namespace;
        let objects = announce::objects(mode, service, namespace, &addresses);
        let kept: BTreeSet<String> = objects
            .iter()
            .map(|(target, _)| target.name.clone())
            .collect();
        for (target, body) in objects {
            if let Err(error) = self.apply(namespace, &target, &body).await {
                let note = format!("the address is not announced yet: {error}; it is tried again");
                self.events.warning(
                    &reference(&service.key, &service.uid),
                    "AnnounceFailed",
                    note,
                );
                return Err(error.into());
            }
        }
        let label = format!("{FOR_SERVICE}%3D{}", service.uid);
        self.clean(&label, |kind, key, _| {
            kind.of == mode && kept.contains(&*key.name)
        })
        .await?;
        self.announced.lock().insert(service.key.clone(), addresses);
        Ok(())
    }

    /// Applies an object; the first one makes the namespace.
    async fn apply(&self, namespace: &str, target: &Target, body: &Value) -> Result<(), CallError> {
        match self.remote.patch(target, Patch::Apply, body).await {
            Err(CallError::NotFound(_)) => {}
            result => return result,
        }
        let own = Target {
            api: "api/v1",
            plural: "namespaces",
            namespace: String::new(),
            name: namespace.into(),
        };
        if self.remote.get::<Value>(&own).await?.is_none() {
            let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
            self.remote.patch(&own, Patch::Apply, &object).await?;
        }
        self.remote.patch(target, Patch::Apply, body).await
    }

    fn addresses(&self, service: &ServiceRef, svc: &Svc) -> Vec<announce::Address> {
        let data = self.rancher.data();
        let mut held = self.held(service);
        let place =
            |text: &std::net::IpAddr| svc.ingress.iter().position(|one| one.parse() == Ok(*text));
        held.sort_by_key(|lease| place(&lease.key.address).unwrap_or(usize::MAX));
        held.iter()
            .map(|lease| {
                let pool = self
                    .site
                    .ipam
                    .read(|ledger| ledger.pool(lease.pool?).cloned());
                let object = pool.as_ref().and_then(|pool| pools::object(pool));
                let interface = data.as_ref().zip(object).and_then(|(data, object)| {
                    let pool = data.pools.get(&Key::new("", object))?;
                    Some(pool.spec.target_network_interface.clone()).filter(|name| !name.is_empty())
                });
                announce::Address {
                    address: lease.key.address,
                    subnet: pool.as_ref().and_then(|pool| pool.spec.subnet),
                    interface,
                }
            })
            .collect()
    }

    /// Deletes announcer's objects of ours that no Service needs: left by a former setting, or by a Service
    /// that went while fipd was not there.
    pub async fn sweep(&self) -> Result<(), Trouble> {
        let mode = self.settings.announce;
        let live: BTreeSet<String> = self
            .services
            .all()
            .iter()
            .map(|(_, svc)| svc.uid.to_string())
            .collect();
        let label = format!("{MANAGED_BY}%3D{MANAGER},{FOR_SERVICE}");
        self.clean(&label, |kind, _, uid| kind.of == mode && live.contains(uid))
            .await
    }

    /// Deletes the objects with a label that are not to be kept. A kind that is not installed has none.
    async fn clean(
        &self,
        label: &str,
        keep: impl Fn(&announce::Kind, &Key, &str) -> bool,
    ) -> Result<(), Trouble> {
        for kind in &announce::KINDS {
            let objects = match self.remote.list(&kind.target("", ""), label).await {
                Ok(objects) => objects,
                Err(CallError::NotFound(_)) => continue,
                // Without rights to them we have made none.
                Err(CallError::Rejected(..)) if kind.of != self.settings.announce => continue,
                Err(error) => return Err(error.into()),
            };
            for object in objects {
                let uid = object
                    .pointer("/metadata/labels")
                    .and_then(|labels| labels.get(FOR_SERVICE));
                let uid = uid.and_then(Value::as_str).unwrap_or("");
                if let Some((key, own)) = identify(&object)
                    && !keep(kind, &key, uid)
                {
                    self.remote
                        .delete(&kind.target(&key.namespace, &key.name), &own)
                        .await?;
                }
            }
        }
        Ok(())
    }

    /// Sweeps now and then until cancelled.
    pub async fn keep_swept(self: Arc<Self>) {
        let cancel = self.site.session.cancel.clone();
        loop {
            if let Err(trouble) = self.sweep().await {
                trouble.next(KIND_SERVICE, &Key::new("", "announcer's objects"));
            }
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(SWEEP) => {}
            }
        }
    }
}
