//! A Service that goes, or is not ours any more: what it held and what was written on it.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{Handover, Holder, Lease, LeaseKey, Release, ReleaseScope, Request, Text};

use super::{Services, announce, apply, object, observe::Svc, plan::Match, target, validate::Wish};
use crate::{
    config::Announce,
    controllers::{
        Trouble,
        objects::Key,
        queue::Next,
        rancher_fip::{
            names::{self, FINALIZER, FLOATING_IP, FOR_SERVICE, KIND_FLOATING_IP, ServiceRef},
            pool::validate::family_of,
        },
        remote::{CallError, Patch},
    },
};

impl Services {
    /// Takes everything of ours away, the finalizer last.
    pub(super) async fn let_go(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        held: &[Arc<Lease>],
    ) -> Result<Next, Trouble> {
        self.waits_for(&service.key, None);
        self.unannounce(service).await?;
        for lease in held {
            self.hand_over(service, lease).await?;
        }
        self.unwritten.lock().remove(&service.uid);
        self.shown.lock().remove(&service.key);
        let scope = ReleaseScope::Holder(service.holder());
        let reason = if svc.terminating {
            "the Service is deleted"
        } else {
            "the Service is not ours any more"
        };
        let request = Request::Release(Release {
            scope,
            actor: self.site.actor(),
            reason: reason.into(),
        });
        self.site.ipam.submit(request).await?;
        let target = target(&service.key);
        if svc.terminating {
            self.remote
                .drop_finalizer(&target, &svc.uid, &svc.finalizers, FINALIZER)
                .await?;
            return Ok(Next::Done);
        }
        if shows_ours(svc, held)
            && let Some(patch) = apply::show(svc, &[])
        {
            match self
                .remote
                .patch_status(&target, Patch::Strategic, &patch)
                .await
            {
                // A Service of another type has no such status any more.
                Ok(()) | Err(CallError::NotFound(_) | CallError::Rejected(..)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(patch) = apply::disclaim(svc) {
            match self.remote.patch(&target, Patch::Strategic, &patch).await {
                Ok(()) | Err(CallError::NotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Next::Done)
    }

    /// Gives back what a Service that lives on does not wish any more. A family it does without takes its
    /// FloatingIP along; otherwise that object moves to the new address.
    pub(super) async fn give_back(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        wish: &Wish,
        found: &Match,
    ) -> Result<(), Trouble> {
        for lease in &found.surplus {
            let family = family_of(lease.key.address);
            if !wish.families.contains(&family) {
                self.hand_over(service, lease).await?;
            } else if found.kept.contains_key(&family) {
                let holder = holder_of(lease, service, &svc.uid);
                self.release(&holder, vec![lease.key], "another address took its place")
                    .await?;
            }
        }
        Ok(())
    }

    /// Leaves a lease to the FloatingIP that shows it, which is then deleted and frees it. Where none was ever
    /// written it is free at once.
    async fn hand_over(&self, service: &ServiceRef, lease: &Lease) -> Result<(), Trouble> {
        let from = holder_of(lease, service, &service.uid);
        let written = !self.unwritten.lock().contains(&service.uid);
        let to = if written {
            self.shown_by(service, lease.key)
        } else {
            None
        };
        let Some(to) = to else {
            return self
                .release(&from, vec![lease.key], "given up by its Service")
                .await;
        };
        let request = Request::Handover(Handover {
            from,
            to,
            keys: vec![lease.key],
            actor: self.site.actor(),
        });
        self.site.ipam.submit(request).await?;
        Ok(())
    }

    /// The FloatingIP of a lease as its holder; `None` where the lease has none.
    fn shown_by(&self, service: &ServiceRef, key: LeaseKey) -> Option<Holder> {
        let management = self.management()?;
        let cluster = self.rancher_cluster(&service.key.namespace)?;
        let data = self.rancher.data();
        let lease = self.site.ipam.read(|ledger| ledger.lease(key).cloned())?;
        let wanted = self.site.ipam.read(|ledger| {
            object::wanted(
                ledger,
                &management,
                data.as_deref(),
                service,
                &cluster,
                &lease,
            )
        })?;
        let fip = data.as_ref().and_then(|data| data.fips.get(&wanted.key));
        Some(Holder {
            identity: names::identity(&management, KIND_FLOATING_IP, &wanted.key),
            instance: fip.map_or_else(|| "".into(), |fip| Text::clone(&fip.uid)),
        })
    }

    /// Deletes the announcer's objects of a Service.
    async fn unannounce(&self, service: &ServiceRef) -> Result<(), Trouble> {
        self.announced.lock().remove(&service.key);
        match self.settings.announce {
            Announce::None | Announce::KubeVip => return Ok(()),
            Announce::Metallb | Announce::Purelb => {}
        }
        for kind in announce::KINDS
            .iter()
            .filter(|kind| kind.of == self.settings.announce)
        {
            let all = kind.target("", "");
            let label = format!("{FOR_SERVICE}%3D{}", service.uid);
            let objects = match self.remote.list(&all, &label).await {
                Ok(objects) => objects,
                // The announcer is not installed (any more).
                Err(CallError::NotFound(_)) => continue,
                Err(error) => return Err(error.into()),
            };
            for object in objects {
                if let Some((key, uid)) = identify(&object) {
                    self.remote
                        .delete(&kind.target(&key.namespace, &key.name), &uid)
                        .await?;
                }
            }
        }
        Ok(())
    }
}

/// Key and UID of an object as the API gives it.
pub fn identify(object: &serde_json::Value) -> Option<(Key, String)> {
    let meta = object.get("metadata")?;
    let text = |key: &str| meta.get(key).and_then(serde_json::Value::as_str);
    Some((
        Key::new(text("namespace").unwrap_or(""), text("name")?),
        text("uid")?.to_owned(),
    ))
}

/// The member of the lease that is this Service, of whatever instance.
fn holder_of(lease: &Lease, service: &ServiceRef, uid: &Text) -> Holder {
    let identity = service.holder().identity;
    let member = lease
        .members
        .iter()
        .find(|member| member.holder.identity == identity);
    member.map_or_else(
        || Holder {
            identity,
            instance: Text::clone(uid),
        },
        |member| member.holder.clone(),
    )
}

/// Whether the addresses in the status are those we gave.
fn shows_ours(svc: &Svc, held: &[Arc<Lease>]) -> bool {
    let given: Vec<IpAddr> = svc
        .mark(FLOATING_IP)
        .unwrap_or("")
        .split(',')
        .filter_map(|text| text.parse().ok())
        .chain(held.iter().map(|lease| lease.key.address))
        .collect();
    svc.ingress.iter().any(|text| {
        text.parse()
            .is_ok_and(|address: IpAddr| given.contains(&address))
    })
}
