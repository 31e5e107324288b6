//! Service load balancers in direct mode: nothing is installed in the downstream cluster.
//!
//! The path a user waits for: the decision and its commit, one patch of the Service's metadata (finalizer
//! first), one of its status. What follows is done at leisure: announcer's objects, Events, and the FloatingIP
//! in Rancher, which shows the lease but never holds it while the Service lives. A Service that goes leaves its
//! lease to its FloatingIP, whose deletion frees it, so that nothing here waits for Rancher.

pub mod adopt;
mod aftercare;
pub mod announce;
pub mod apply;
mod farewell;
pub mod object;
pub mod observe;
pub mod plan;
mod pools;
pub mod validate;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use fipd_core::{
    Adopt, Allocate, Answer, Family, Holder, Lease, LeaseKey, Ledger, NetworkId, Release,
    ReleaseScope, Request, Text,
};
use k8s_openapi::api::core::v1::ObjectReference;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    Site,
    floating_ip::validate::{Problem, refused},
    names::{KIND_SERVICE, ServiceRef},
    rancher::Rancher,
};
use crate::{
    config::{Announce, RancherFip},
    controllers::{
        Trouble,
        events::Events,
        objects::{Key, Objects, Seen},
        queue::{Next, Queue},
        remote::{Patch, Remote, Target},
        wakes::{Cause, News, Wakes},
    },
    ipam::IpamError,
};
use observe::{Projects, Svc};
use plan::PoolsByFamily;
use validate::Wish;

/// A Service in the queue of a full pool asks again so often even if nobody calls it.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// A watch may be behind our own write for so long before the write is repeated.
const BEHIND: Duration = Duration::from_secs(3);

/// The controller of all Services of a downstream cluster.
pub struct Services {
    site: Arc<Site>,
    settings: RancherFip,
    rancher: Arc<Rancher>,
    remote: Remote,
    events: Arc<Events>,
    pub services: Arc<Objects<Svc>>,
    pub namespaces: Arc<Objects<Projects>>,
    wakes: Wakes,
    /// What users wait for.
    pub queue: Arc<Queue<Key>>,
    /// What follows when nobody waits.
    pub after: Arc<Queue<Key>>,
    /// Announcer's objects as last applied, by Service.
    announced: Mutex<BTreeMap<Key, Vec<announce::Address>>>,
    /// The status of each Service as last written, and when.
    shown: Mutex<BTreeMap<Key, Written>>,
    /// Services (by UID) that got their leases in this life of fipd and whose FloatingIP was not tried yet.
    unwritten: Mutex<BTreeSet<Text>>,
}

/// The instance, its addresses and when they were written.
type Written = (Text, Vec<IpAddr>, Instant);

/// Services that are served, or why not.
type Served = Result<BTreeMap<Family, Arc<Lease>>, Problem>;

impl Services {
    pub fn new(
        site: Arc<Site>,
        rancher: Arc<Rancher>,
        remote: Remote,
        events: Arc<Events>,
        queue: Arc<Queue<Key>>,
    ) -> Arc<Self> {
        let wakes = Wakes::new(site.id.clone(), KIND_SERVICE);
        let settings = site.session.settings.rancher_fip.clone();
        Arc::new(Self {
            site,
            settings,
            rancher,
            remote,
            events,
            services: Objects::new(),
            namespaces: Objects::new(),
            wakes,
            queue,
            after: Queue::new(),
            announced: Mutex::new(BTreeMap::new()),
            shown: Mutex::new(BTreeMap::new()),
            unwritten: Mutex::new(BTreeSet::new()),
        })
    }

    /// Queues the Services that a change of the ledger concerns.
    pub fn heard(&self, ledger: &Ledger, news: &News<'_>) {
        for key in self.wakes.woken(ledger, news) {
            self.queue.add(key);
        }
        if matches!(news, News::Everything) {
            self.services
                .keys()
                .into_iter()
                .for_each(|key| self.queue.add(key));
        }
    }

    /// A namespace changed: its Services may have a project now, or all may where it is the app namespace.
    pub fn namespace_changed(&self, key: &Key) {
        let keys = if *key.name == *self.settings.app_namespace {
            self.services.keys()
        } else {
            self.services.keys_in(&key.name)
        };
        keys.into_iter().for_each(|key| self.queue.add(key));
    }

    /// Pools or defaults changed in Rancher, or it is back.
    pub fn pools_changed(&self) {
        for key in self.services.keys() {
            self.after.add(key.clone());
            self.queue.add(key);
        }
    }

    /// Brings one Service up to date.
    pub async fn reconcile(self: Arc<Self>, key: Key) -> Next {
        match self.try_reconcile(&key).await {
            Ok(next) => next,
            Err(trouble) => trouble.next(KIND_SERVICE, &key),
        }
    }

    async fn try_reconcile(&self, key: &Key) -> Result<Next, Trouble> {
        let svc = match self.services.seen(key) {
            Some(Seen::Good(svc)) => svc,
            Some(Seen::Malformed(object)) => {
                let note = format!(
                    "the object does not fit its schema ({}); it is left as it is",
                    object.error
                );
                self.events
                    .warning(&reference(key, &object.uid), "Malformed", note);
                return Ok(Next::Done);
            }
            None => {
                self.forget(key);
                return Ok(Next::Done);
            }
        };
        let service = self.service(key, &svc.uid);
        let held = self.held(&service);
        if validate::is_ours(&svc, self.settings.class_less, !held.is_empty()) {
            self.serve(&service, &svc, held).await
        } else if !held.is_empty() || self.is_left_over(&svc) {
            self.let_go(&service, &svc, &held).await
        } else {
            self.forget(key);
            Ok(Next::Done)
        }
    }

    /// Whether a Service that is not ours (any more) still carries what we wrote.
    fn is_left_over(&self, svc: &Svc) -> bool {
        let by_class = match svc.class.as_deref() {
            Some(class) => class == super::names::CLASS,
            None => self.settings.class_less,
        };
        svc.is_marked() || (svc.terminating && svc.has_finalizer() && by_class)
    }

    async fn serve(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        held: Vec<Arc<Lease>>,
    ) -> Result<Next, Trouble> {
        let key = &service.key;
        let wish = match validate::wish(svc) {
            Ok(wish) => wish,
            Err(problem) => return Ok(self.wait(service, problem)),
        };
        let named = match wish.pool.as_ref().map(|_| self.pools(&wish)).transpose() {
            Ok(named) => named,
            Err(problem) => return Ok(self.wait(service, problem)),
        };
        let mut found = plan::compare(&wish, &held, named.as_ref());
        self.renew(service, svc, &found.kept).await?;
        let mut problem = self.contended(service);
        if !found.missing.is_empty() && problem.is_none() {
            let (granted, trouble) = self.allocate(service, svc, &wish, &found, named).await?;
            found.kept.extend(granted);
            problem = trouble;
        }
        if !found.kept.is_empty()
            && (found.kept.len() == wish.families.len() || wish.second_optional)
        {
            self.show(service, svc, &plan::ordered(&wish, &found.kept))
                .await?;
            self.give_back(service, svc, &wish, &found).await?;
            self.warn_of_contenders(service, &found.kept);
        }
        if held.is_empty() && found.kept.is_empty() {
            self.hide_anothers(service, svc).await?;
        }
        match problem {
            Some(problem) => Ok(self.wait(service, problem)),
            None => {
                self.waits_for(key, None);
                Ok(Next::Done)
            }
        }
    }

    /// Asks for what is missing. Where the second family is optional each is asked for alone.
    async fn allocate(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        wish: &Wish,
        found: &plan::Match,
        named: Option<PoolsByFamily>,
    ) -> Result<(BTreeMap<Family, Arc<Lease>>, Option<Problem>), Trouble> {
        let ready = named
            .map_or_else(|| self.pools(wish), Ok)
            .and_then(|pools| {
                let project = self.project(&service.key.namespace)?;
                let missing = pools::served(wish, found, &pools)?;
                Ok((pools, project, missing))
            });
        let (pools, project, missing) = match ready {
            Ok(ready) => ready,
            Err(problem) => return Ok((BTreeMap::new(), Some(problem))),
        };
        let groups: Vec<&[Family]> = if wish.second_optional {
            missing.chunks(1).collect()
        } else {
            vec![missing.as_slice()]
        };
        let (mut granted, mut trouble) = (BTreeMap::new(), None);
        for families in groups.into_iter().filter(|families| !families.is_empty()) {
            let (holder, actor) = (service.holder(), self.site.actor());
            let ask = plan::allocate(
                &holder,
                &project.tenant,
                wish,
                families,
                &pools,
                svc.created,
                &actor,
            );
            match self.ask(ask, &pools).await? {
                Ok(leases) => granted.extend(leases),
                Err(problem) => trouble = Some(problem),
            }
        }
        if !granted.is_empty() && found.kept.is_empty() {
            self.unwritten.lock().insert(Text::clone(&service.uid));
        }
        Ok((granted, trouble))
    }

    async fn ask(&self, ask: Allocate, pools: &PoolsByFamily) -> Result<Served, Trouble> {
        let network = pools
            .values()
            .next()
            .map_or(NetworkId::DEFAULT, |pool| pool.spec.network);
        match self.site.ipam.submit(Request::Allocate(ask)).await {
            Ok(Answer::Granted { leases, .. }) => {
                let by_family = |lease: Arc<Lease>| {
                    (super::pool::validate::family_of(lease.key.address), lease)
                };
                Ok(Ok(leases.into_iter().map(by_family).collect()))
            }
            Ok(other) => Err(Trouble::unexpected(&other)),
            Err(IpamError::Refused(refusal)) => Ok(Err(refused(&refusal, network))),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes this instance of the Service the holder of leases that an earlier one of its name left.
    async fn renew(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        kept: &BTreeMap<Family, Arc<Lease>>,
    ) -> Result<(), Trouble> {
        let holder = service.holder();
        for lease in kept
            .values()
            .filter(|lease| !lease.members.iter().any(|member| member.holder == holder))
        {
            let adopt = Adopt {
                key: lease.key,
                holder: holder.clone(),
                tenant: lease.tenant.clone(),
                since: svc.created,
                actor: self.site.actor(),
            };
            self.site.ipam.submit(Request::Adopt(adopt)).await?;
        }
        Ok(())
    }

    /// The two writes a user waits for.
    async fn show(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        addresses: &[IpAddr],
    ) -> Result<(), Trouble> {
        let target = target(&service.key);
        if let Some(patch) = apply::claim(svc, service, addresses, self.settings.announce) {
            self.remote.patch(&target, Patch::Strategic, &patch).await?;
        }
        if let Some(patch) = apply::show(svc, addresses) {
            if self.just_written(service, addresses) {
                self.queue.add_after(service.key.clone(), BEHIND);
                return Ok(());
            }
            self.remote
                .patch_status(&target, Patch::Strategic, &patch)
                .await?;
            let written = (
                Text::clone(&service.uid),
                addresses.to_vec(),
                Instant::now(),
            );
            self.shown.lock().insert(service.key.clone(), written);
            self.say_shown(service, svc, addresses);
        }
        self.after.add(service.key.clone());
        Ok(())
    }

    /// A Service that has no lease (an admin took it) must not go on showing an address that another got.
    async fn hide_anothers(&self, service: &ServiceRef, svc: &Svc) -> Result<(), Trouble> {
        let identity = service.holder().identity;
        let addresses: Vec<IpAddr> = svc
            .ingress
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect();
        let anothers = self.site.ipam.read(|ledger| {
            let shown = |network| {
                addresses.iter().map(move |address| LeaseKey {
                    network,
                    address: *address,
                })
            };
            let keys = ledger.networks().flat_map(|network| shown(network.id));
            keys.filter_map(|key| ledger.lease(key))
                .any(|lease| !lease.held_by(&identity))
        });
        if svc.is_marked()
            && anothers
            && let Some(patch) = apply::show(svc, &[])
        {
            self.remote
                .patch_status(&target(&service.key), Patch::Strategic, &patch)
                .await?;
        }
        Ok(())
    }

    fn say_shown(&self, service: &ServiceRef, svc: &Svc, addresses: &[IpAddr]) {
        let reference = reference(&service.key, &service.uid);
        let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        self.events.normal(
            &reference,
            "AddressAssigned",
            format!("{} assigned", list.join(", ")),
        );
        if self.settings.announce == Announce::None && svc.ingress.is_empty() {
            let note = "nobody announces the address on the network: set `announce` in fipd's configuration, or announce it yourself";
            self.events.warning(&reference, "NotAnnounced", note);
        }
    }

    fn wait(&self, service: &ServiceRef, problem: Problem) -> Next {
        self.waits_for(&service.key, problem.cause);
        self.events.warning(
            &reference(&service.key, &service.uid),
            problem.reason,
            problem.message,
        );
        if problem.cause.is_some() {
            Next::After(ASK_AGAIN)
        } else {
            Next::Done
        }
    }

    fn waits_for(&self, key: &Key, cause: Option<Cause>) {
        if self.wakes.wait(key, cause) {
            self.site
                .ipam
                .forget_waiter(&super::names::identity(&self.site.id, KIND_SERVICE, key));
        }
    }

    /// Whether the status was written like this just now, and the watch is behind.
    fn just_written(&self, service: &ServiceRef, addresses: &[IpAddr]) -> bool {
        let shown = self.shown.lock();
        shown.get(&service.key).is_some_and(|(uid, written, at)| {
            *uid == service.uid && written == addresses && at.elapsed() < BEHIND
        })
    }

    /// The Service shows an address that another holds.
    fn contended(&self, service: &ServiceRef) -> Option<Problem> {
        let identity = service.holder().identity;
        let contentions = self
            .site
            .ipam
            .read(|ledger| ledger.contentions_of(&identity));
        contentions
            .first()
            .map(|lease| super::floating_ip::plan::contended(lease))
    }

    fn warn_of_contenders(&self, service: &ServiceRef, kept: &BTreeMap<Family, Arc<Lease>>) {
        for lease in kept.values().filter(|lease| !lease.contenders.is_empty()) {
            let others: Vec<String> = lease
                .contenders
                .iter()
                .map(|one| one.holder.identity.to_string())
                .collect();
            let note = format!(
                "{} is also used by {}; end one of the two uses",
                lease.key.address,
                others.join(", ")
            );
            self.events.warning(
                &reference(&service.key, &service.uid),
                "AddressConflict",
                note,
            );
        }
    }

    async fn release(
        &self,
        holder: &Holder,
        keys: Vec<LeaseKey>,
        reason: &str,
    ) -> Result<(), Trouble> {
        let scope = ReleaseScope::HolderAddresses(holder.clone(), keys);
        let request = Request::Release(Release {
            scope,
            actor: self.site.actor(),
            reason: reason.into(),
        });
        self.site.ipam.submit(request).await?;
        Ok(())
    }

    /// The Service is gone or not ours: it waits for nothing.
    fn forget(&self, key: &Key) {
        self.wakes.wait(key, None);
        self.announced.lock().remove(key);
        self.shown.lock().remove(key);
        let identity = super::names::identity(&self.site.id, KIND_SERVICE, key);
        self.site.ipam.forget_waiter(&identity);
    }

    /// All leases of the Service, by whatever instance of its name.
    fn held(&self, service: &ServiceRef) -> Vec<Arc<Lease>> {
        let identity = service.holder().identity;
        self.site.ipam.read(|ledger| ledger.leases_of(&identity))
    }

    fn service(&self, key: &Key, uid: &Text) -> ServiceRef {
        ServiceRef {
            cluster: self.site.id.clone(),
            key: key.clone(),
            uid: Text::clone(uid),
        }
    }

    fn project(&self, namespace: &str) -> Result<validate::Project, Problem> {
        let app = self
            .namespaces
            .get(&Key::new("", &self.settings.app_namespace));
        let own = self.namespaces.get(&Key::new("", namespace));
        validate::project(
            self.settings.project.as_deref(),
            app.as_deref(),
            own.as_deref(),
            namespace,
        )
    }
}

fn reference(key: &Key, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some(KIND_SERVICE.into()),
        namespace: Some(key.namespace.to_string()),
        name: Some(key.name.to_string()),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    }
}

fn target(key: &Key) -> Target {
    Target {
        api: "api/v1",
        plural: "services",
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
    }
}
