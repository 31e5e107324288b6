//! Makes and deletes the objects by which MetalLB or PureLB announces, and takes over those of the original.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use fipd_core::Text;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    announce::{self, ADVERTISEMENT, Address, AnnouncedObjects, GROUP, KINDS, POOL, reader},
    observe::Svc,
    originals::{self, Place, Users, Whose},
};
use crate::{
    controller::{
        Reconciled,
        client::{CallError, MANAGER, Patch, Target},
        context::Context,
        kind::{Kind, NAMESPACE},
        owned::{delete_if, delete_listed},
        store::Key,
    },
    systems::rancher_fip::{
        names::{FOR_SERVICE, KIND_SERVICE, MANAGED_BY, ServiceRef},
        settings::{Announce, RancherFipSettings},
    },
};

/// Between two searches for announcer's objects that nobody needs.
const SWEEP: Duration = Duration::from_secs(600);

/// Who keeps the objects of the announcer that is configured.
pub struct Announcer {
    context: Arc<Context<Svc>>,
    mode: Announce,
    /// Of its objects.
    namespace: Text,
    announced: Mutex<AnnouncedObjects>,
}

impl Announcer {
    pub fn new(context: Arc<Context<Svc>>) -> Arc<Self> {
        let settings = context.site.settings::<RancherFipSettings>();
        Arc::new(Self {
            mode: settings.announce,
            namespace: Text::clone(&settings.app_namespace),
            announced: Mutex::default(),
            context,
        })
    }

    /// Forgets a Service that is gone or not ours.
    pub fn forget(&self, service: &Key) {
        self.announced.lock().forget(service);
    }

    /// The kinds of its objects.
    fn kinds(&self) -> impl Iterator<Item = Kind> {
        let mode = self.mode;
        KINDS.into_iter().filter(move |kind| reader(*kind) == mode)
    }

    /// Makes the objects for the addresses of a Service, and no others of it.
    pub async fn announce(&self, service: &ServiceRef, addresses: Vec<Address>) -> Reconciled<()> {
        if self.kinds().next().is_none() || self.announced.lock().has(service, &addresses) {
            return Ok(());
        }
        let mut made = self.make(service, &addresses).await;
        if let Err(CallError::Rejected(..)) = made
            // Without the right to look around, what was refused is what there is to say.
            && self
                .clear(Some((&service.key, &addresses)))
                .await
                .unwrap_or(false)
        {
            made = self.make(service, &addresses).await;
        }
        let kept = match made {
            Ok(kept) => kept,
            Err(error) => {
                let note = format!("the address is not announced yet: {error}; it is tried again");
                self.warn(service, "AnnounceFailed", note);
                return Err(error.into());
            }
        };
        let label = format!("{FOR_SERVICE}%3D{}", service.uid);
        let keep =
            |kind, key: &Key, _: &str| reader(kind) == self.mode && kept.contains(&*key.name);
        self.clean(&label, keep).await?;
        self.announced.lock().note(service, addresses);
        Ok(())
    }

    /// Applies the objects for these addresses; their names.
    async fn make(
        &self,
        service: &ServiceRef,
        addresses: &[Address],
    ) -> Result<BTreeSet<String>, CallError> {
        let (mode, namespace) = (self.mode, &*self.namespace);
        let mut named = addresses.to_vec();
        if mode == Announce::Metallb {
            for (one, wanted) in named.iter_mut().zip(addresses) {
                one.name = self.pool_name(&service.key, wanted, addresses).await?;
            }
        } else if let Some(first) = named.first() {
            let place = place(&service.key, first);
            self.must_not_be_others(GROUP, &place, &first.name).await?;
            let mut all = addresses.iter();
            if all.any(|one| self.may_be_in_the_way(&service.key, one)) {
                self.clear(Some((&service.key, addresses))).await?;
            }
        }
        for (target, body) in announce::objects(mode, service, namespace, &named) {
            self.apply(namespace, &target, &body).await?;
        }
        Ok(named.into_iter().map(|one| one.name).collect())
    }

    /// The name of the pool of an address: that of the object there is, where it is ours or the original's.
    async fn pool_name(
        &self,
        service: &Key,
        one: &Address,
        all: &[Address],
    ) -> Result<String, CallError> {
        let place = place(service, one);
        let own = self.whose(POOL, &place, &place.name()).await?;
        let legacy = match own {
            Whose::Ours => Whose::Nobodys,
            Whose::Nobodys | Whose::Originals | Whose::Others => {
                self.whose(POOL, &place, &place.legacy()).await?
            }
        };
        if self.may_be_in_the_way(service, one) {
            self.clear(Some((service, all))).await?;
        }
        let name = originals::choose(&place, own, legacy);
        let name = name.ok_or_else(|| self.others(POOL, &one.name))?;
        self.must_not_be_others(ADVERTISEMENT, &place, &name)
            .await?;
        Ok(name)
    }

    async fn must_not_be_others(
        &self,
        kind: Kind,
        place: &Place<'_>,
        name: &str,
    ) -> Result<(), CallError> {
        match self.whose(kind, place, name).await? {
            Whose::Others => Err(self.others(kind, name)),
            Whose::Nobodys | Whose::Ours | Whose::Originals => Ok(()),
        }
    }

    async fn whose(&self, kind: Kind, place: &Place<'_>, name: &str) -> Result<Whose, CallError> {
        let target = kind.named(&self.namespace, name);
        let object: Option<Value> = self.context.remote.get(&target).await?;
        Ok(place.whose(kind, object.as_ref()))
    }

    fn others(&self, kind: Kind, name: &str) -> CallError {
        let target = kind.named(&self.namespace, name);
        let why = "this object was made neither by fipd nor by rancher-fip: delete or rename it";
        CallError::Rejected(target.to_string(), why.to_owned())
    }

    fn may_be_in_the_way(&self, service: &Key, one: &Address) -> bool {
        let announced = self.announced.lock();
        announced.may_be_in_the_way(service, one.address)
    }

    /// Deletes what the original left for addresses that our Services have, and `user` even if its Service is not seen to
    /// show them yet; whether there was anything.
    async fn clear(&self, user: Option<(&Key, &[Address])>) -> Result<bool, CallError> {
        let (remote, namespace) = (&self.context.remote, &*self.namespace);
        let (mut any, mut known) = (false, BTreeMap::<IpAddr, Vec<String>>::new());
        for kind in self.kinds().filter(|kind| *kind != ADVERTISEMENT) {
            let objects = match remote.list(&kind.all_in(namespace), "").await {
                Ok(objects) => objects,
                Err(CallError::NotFound(_)) => continue,
                Err(error) => return Err(error),
            };
            for (address, name) in originals::names(kind, &objects) {
                known.entry(address).or_default().push(name.to_owned());
            }
            for (key, uid) in originals::in_the_way(kind, &objects, &self.users(user)) {
                any = true;
                tracing::info!(kind = kind.kind, name = %key.name, "deleted; the original left it for an address of ours");
                let target = kind.named(namespace, &key.name);
                remote.delete(&target, &uid).await?;
                if kind == POOL {
                    let target = ADVERTISEMENT.named(namespace, &key.name);
                    delete_if(remote, &target, originals::is_advertisement).await?;
                }
            }
        }
        self.announced.lock().note_originals(known);
        Ok(any)
    }

    fn users(&self, user: Option<(&Key, &[Address])>) -> Users {
        let services = self.context.objects.all();
        let mut users = originals::users(services.iter().map(|(key, svc)| (key, &**svc)));
        if let Some((key, addresses)) = user {
            for one in addresses {
                let shown = users.entry(one.address).or_default();
                shown.retain(|(other, _)| other != key);
                shown.push((key.clone(), true));
            }
        }
        users
    }

    /// Deletes the announcer's objects of a Service. Objects that fipd may not see or delete hold up nobody's
    /// address; the sweep takes them once it may.
    pub async fn withdraw(&self, service: &ServiceRef, svc: &Svc) -> Reconciled<()> {
        let taken_over = self.announced.lock().forget(&service.key);
        let made = taken_over || announce::shows_objects(self.mode, svc);
        if self.kinds().next().is_none() {
            return Ok(());
        }
        for kind in self.kinds() {
            match self.delete_objects(kind, &service.uid).await {
                // The announcer is not installed (any more).
                Ok(()) | Err(CallError::NotFound(_)) => {}
                Err(CallError::Rejected(_, why)) if made => {
                    self.warn_of_left(service, kind, &why);
                }
                Err(CallError::Rejected(..)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !taken_over {
            self.delete_originals(service, svc).await?;
        }
        Ok(())
    }

    async fn delete_objects(&self, kind: Kind, uid: &str) -> Result<(), CallError> {
        let label = format!("{FOR_SERVICE}%3D{uid}");
        let remote = &self.context.remote;
        let all = remote.list(&kind.all(), &label).await?;
        delete_listed(remote, kind, &all, |_, _| true).await
    }

    fn warn_of_left(&self, service: &ServiceRef, kind: Kind, why: &str) {
        let note = format!(
            "{} objects with label {FOR_SERVICE}={} may be left: {why}; delete them, or give fipd the right to",
            kind.kind, service.uid
        );
        self.warn(service, "AnnouncementLeft", note);
    }

    fn warn(&self, service: &ServiceRef, reason: &'static str, note: String) {
        self.context.warn(&service.key, &service.uid, reason, note);
    }

    /// Deletes what the original made for a Service that goes before its objects were taken over.
    async fn delete_originals(&self, service: &ServiceRef, svc: &Svc) -> Result<(), CallError> {
        if !svc.is_marked() {
            return Ok(());
        }
        let addresses: BTreeSet<_> = svc.addresses().into_iter().collect();
        for address in addresses {
            let place = Place {
                service: &service.key,
                address,
            };
            for kind in self.kinds() {
                for name in [place.name(), place.legacy()] {
                    let target = kind.named(&self.namespace, &name);
                    let is_originals = |object: &Value| {
                        place.whose(kind, Some(object)) == Whose::Originals
                            && originals::is_for(kind, object, svc, &name)
                    };
                    match delete_if(&self.context.remote, &target, is_originals).await {
                        // Without the right to see them, the Service goes all the same.
                        Ok(()) | Err(CallError::Rejected(..)) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }

    /// Applies an object; the first one makes the namespace.
    async fn apply(&self, namespace: &str, target: &Target, body: &Value) -> Result<(), CallError> {
        let remote = &self.context.remote;
        match remote.patch(target, Patch::Apply, body).await {
            Err(CallError::NotFound(_)) => {}
            result => return result,
        }
        let own = NAMESPACE.named("", namespace);
        if remote.get::<Value>(&own).await?.is_none() {
            let object = json!({ "apiVersion": NAMESPACE.api_version(), "kind": NAMESPACE.kind, "metadata": { "name": namespace } });
            remote.patch(&own, Patch::Apply, &object).await?;
        }
        remote.patch(target, Patch::Apply, body).await
    }

    /// Deletes announcer's objects of ours that no Service needs: left by a former setting, or by a Service
    /// that went while fipd was not there. Then what the original left beside ours.
    async fn sweep(&self) -> Reconciled<()> {
        let services = self.context.objects.all();
        let live: BTreeSet<&str> = services.iter().map(|(_, svc)| &*svc.uid).collect();
        let label = format!("{MANAGED_BY}%3D{MANAGER},{FOR_SERVICE}");
        let keep = |kind, _: &Key, uid: &str| reader(kind) == self.mode && live.contains(uid);
        self.clean(&label, keep).await?;
        self.clear(None).await?;
        Ok(())
    }

    /// Deletes the objects with a label that are not to be kept. A kind that is not installed has none.
    async fn clean(&self, label: &str, keep: impl Fn(Kind, &Key, &str) -> bool) -> Reconciled<()> {
        for kind in KINDS {
            let objects = match self.context.remote.list(&kind.all(), label).await {
                Ok(objects) => objects,
                Err(CallError::NotFound(_)) => continue,
                // Without rights to them we have made none.
                Err(CallError::Rejected(..)) if reader(kind) != self.mode => continue,
                Err(error) => return Err(error.into()),
            };
            let goes = |key: &Key, object: &Value| {
                let uid = object["metadata"]["labels"][FOR_SERVICE].as_str();
                !keep(kind, key, uid.unwrap_or(""))
            };
            delete_listed(&self.context.remote, kind, &objects, goes).await?;
        }
        Ok(())
    }

    /// Sweeps now and then until cancelled.
    pub async fn keep_swept(self: Arc<Self>) {
        let cancel = self.context.site.session.cancel.clone();
        loop {
            if let Err(trouble) = self.sweep().await {
                trouble.next(KIND_SERVICE, &Key::new("", "announcer's objects"));
            }
            if cancel.run_until_cancelled(sleep(SWEEP)).await.is_none() {
                return;
            }
        }
    }
}

fn place<'a>(service: &'a Key, one: &Address) -> Place<'a> {
    Place {
        service,
        address: one.address,
    }
}
