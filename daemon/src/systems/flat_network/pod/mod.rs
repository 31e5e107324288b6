//! Pods on flat networks: each that asks for an address has a FlatNetworkIP of its name, and shows by its labels what it has.
//! A pod with further interfaces, or with both families, has more FlatNetworkIPs. Each is looked at by itself: keys here are those of
//! FlatNetworkIPs.
//!
//! ```text
//!  pod --annotations--> FlatNetworkIP --> lease --> its status --> labels of the pod
//!  pod ends --> FlatNetworkIP deleted --> pod gone --> lease released --> finalizer dropped
//! ```

pub mod alive;
mod macs;
pub mod observe;
mod partner;
pub mod plan;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
    time::Duration,
};

use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    jiff,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    ip::{FlatIpController, FlatIpView},
    names::{ADDITIONAL_INTERFACES, FAILED, FLAT_IP, IP_ERROR, MAC, pod_key},
    settings::FlatNetworkSettings,
    subnet::{AcceptedSubnets, SubnetView},
    workload::Workloads,
};
use crate::controller::{
    Reconciled,
    client::{CallError, Patch},
    confirm_absence::AbsenceCheck,
    context::Context,
    kind::{JOB, POD},
    meta::{Meta, View},
    queue::Next,
    reconcile::Controller,
    store::{Key, Objects},
};
use crate::validation::flat_network::{subnet::FlatSubnet, workload::WorkloadRef};
use macs::MacIndex;
use observe::PodView;
use plan::{PodClock, PodFacts, PodPlan, Why, kept_from, pending, plan};

/// When a pod is looked at again that waits for a MAC.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// A namespace, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct NamespaceView {
    pub meta: Meta,
    /// The project of Rancher.
    pub project: Option<String>,
}

impl View for NamespaceView {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

/// The controller of all pods on flat networks of a cluster.
pub struct PodController {
    /// The interfaces of pods, by the keys of their addresses.
    pub context: Context<PodView>,
    pub ips: Arc<FlatIpController>,
    pub subnets: Arc<Objects<SubnetView>>,
    accepted: Arc<AcceptedSubnets>,
    pub namespaces: Arc<Objects<NamespaceView>>,
    pub settings: FlatNetworkSettings,
    /// Pods that are missing beside their address.
    missing: AbsenceCheck<Key>,
    /// Who was given each MAC that pods name, by subnet and MAC, until its address shows it.
    macs: Mutex<BTreeMap<(String, String), Key>>,
    /// Which addresses have each MAC.
    mac_index: Mutex<MacIndex>,
    /// Their labels say the mode of their subnet.
    workloads: OnceLock<Workloads>,
    /// Pods that wait for one of the MACs that they name.
    waiting: Mutex<BTreeSet<Key>>,
    /// What each subnet meant to its pods when it was seen last.
    known: Mutex<BTreeMap<String, SubnetMeaning>>,
}

/// What is in force, and whether pods get a 6to4 address.
type SubnetMeaning = (Option<Arc<FlatSubnet>>, bool);

impl Controller for PodController {
    type View = PodView;

    const METRIC: &'static str = "flatnetworkpod";
    const WORKERS: usize = 32;

    fn context(&self) -> &Context<PodView> {
        &self.context
    }

    /// Addresses without a pod are known once both are.
    async fn completed(&self) {
        self.context.objects.completed().await;
        self.ips.context.objects.completed().await;
        self.subnets.completed().await;
    }

    async fn reconcile(&self, key: &Key, pod: Option<Arc<PodView>>) -> Reconciled {
        let ip = self.ips.context.objects.get(key);
        if pod.is_none() {
            self.note_waiting(key, false);
            if ip.is_none() {
                self.macs.lock().retain(|_, user| user != key);
            }
        }
        let pod = pod.map(|pod| self.with_subnet(key, pod, ip.as_deref()));
        if let Some(pod) = pod.as_deref() {
            // What an earlier pod left waits for its time also beside one whose annotations make no sense.
            if pod.wants.is_ok() || ip.as_deref().is_some_and(|ip| plan::is_of(ip, pod)) {
                self.missing.forget(key);
            }
            self.tell(key, pod, ip.as_deref());
        }
        let facts = match pod.as_deref().filter(|pod| pod.wants.is_ok()) {
            Some(pod) => match self.facts(key, pod, ip.as_deref()).await? {
                Some(facts) => facts,
                // An address that goes has it looked at again.
                None => return Ok(Next::After(LOOK_AGAIN)),
            },
            None => PodFacts::default(),
        };
        let now = PodClock {
            wall: jiff::Timestamp::now(),
            book: self.book_time(),
        };
        let plan = plan(key, pod.as_deref(), ip.as_deref(), &facts, now);
        self.apply(key, (pod.as_deref(), ip.as_deref()), plan).await
    }
}

impl PodController {
    pub fn new(
        context: Context<PodView>,
        ips: &Arc<FlatIpController>,
        (subnets, accepted): (&Arc<Objects<SubnetView>>, &Arc<AcceptedSubnets>),
    ) -> Arc<Self> {
        Arc::new(Self {
            settings: ips.user.settings.clone(),
            ips: Arc::clone(ips),
            subnets: Arc::clone(subnets),
            accepted: Arc::clone(accepted),
            namespaces: Objects::new(),
            missing: AbsenceCheck::default(),
            macs: Mutex::default(),
            mac_index: Mutex::default(),
            waiting: Mutex::default(),
            known: Mutex::default(),
            workloads: OnceLock::new(),
            context,
        })
    }

    /// These are told of subnets from now on.
    pub fn tell_workloads(&self, workloads: Workloads) {
        let first = self.workloads.set(workloads);
        debug_assert!(first.is_ok(), "there are workloads already");
    }

    pub fn subnet(&self, name: &str) -> Option<Arc<SubnetView>> {
        self.subnets.get(&Key::new(&self.settings.namespace, name))
    }

    /// The subnet as it was accepted last.
    pub fn in_force(&self, name: &str) -> Option<Arc<FlatSubnet>> {
        self.accepted.in_force(&*self.subnet(name)?)
    }

    fn book_time(&self) -> jiff::Timestamp {
        let now = i64::try_from(self.context.site.ipam.now().0).ok();
        let now = now.and_then(|now| jiff::Timestamp::from_millisecond(now).ok());
        now.unwrap_or_default()
    }

    /// A subnet appeared, changed or went: where it means something else to its pods they are looked at.
    pub fn subnet_changed(&self, subnet: &str) {
        let now = self.subnet(subnet);
        let now = now.map(|one| (self.accepted.in_force(&one), one.has_6to4));
        let mut known = self.known.lock();
        if known.get(subnet) == now.as_ref() {
            return;
        }
        match now {
            Some(now) => known.insert(subnet.to_owned(), now),
            None => known.remove(subnet),
        };
        drop(known);
        if let Some(workloads) = self.workloads.get() {
            workloads.subnet_changed(subnet);
        }
        for (key, pod) in self.context.objects.all() {
            let Ok(wants) = &pod.wants else { continue };
            let is_partner = || self.is_partner(&wants.subnet, subnet);
            if wants.subnet == subnet || pod.interface.is_partner && is_partner() {
                self.context.queue.add(key);
            }
        }
    }

    /// The address of a pod changed or went: its MAC may be free.
    pub fn address_changed(&self, key: &Key) {
        self.context.queue.add(key.clone());
        if !self.note_mac(key) {
            let waiting = self.waiting.lock();
            let all = waiting.iter().cloned();
            all.for_each(|key| self.context.queue.add(key));
        }
    }

    fn note_waiting(&self, key: &Key, waits: bool) {
        let mut waiting = self.waiting.lock();
        match waits {
            true => waiting.insert(key.clone()),
            false => waiting.remove(key),
        };
    }

    /// What is wrong with the annotations, or why there is no address, as the original says it.
    fn tell(&self, key: &Key, pod: &PodView, ip: Option<&FlatIpView>) {
        if pod.is_over() {
            return;
        }
        let failed = ip.filter(|ip| ip.status.phase == FAILED && *ip.spec.pod_id == *pod.meta.uid);
        let why = match (&pod.wants, failed) {
            (Err(wrong), _) => wrong.to_string(),
            (Ok(_), Some(ip)) => ip.status.failure_message.clone(),
            (Ok(_), None) => return,
        };
        self.context
            .warn(&pod.key(key), &pod.meta.uid, IP_ERROR, why);
    }

    /// What else is to be known of a pod; `None`: all MACs that it names are taken.
    async fn facts(
        &self,
        key: &Key,
        pod: &PodView,
        ip: Option<&FlatIpView>,
    ) -> Reconciled<Option<PodFacts>> {
        let Ok(wants) = &pod.wants else {
            return Ok(Some(PodFacts::default()));
        };
        let subnet = self.subnet(&wants.subnet);
        let in_force = self.in_force(&wants.subnet);
        let macs: Vec<String> = wants.macs.iter().map(ToString::to_string).collect();
        let mac = match pod.is_over() {
            true => ip.and_then(|ip| ip.mac.clone()),
            false => self.mac(key, &wants.subnet, &macs, ip),
        };
        self.note_waiting(key, mac.is_none() && !macs.is_empty() && !pod.is_over());
        if mac.is_none() && !macs.is_empty() && !pod.is_over() {
            self.context
                .warn(&pod.key(key), &pod.meta.uid, IP_ERROR, no_mac(pod));
            return Ok(None);
        }
        let namespace = self.namespaces.get(&Key::new("", &key.namespace));
        let subnet = subnet.as_deref();
        Ok(Some(PodFacts {
            flat_mode: in_force.as_ref().map(|one| one.kind.as_str().to_owned()),
            // One that was never accepted changes nothing.
            sticky: (in_force.map(|one| one.sticky))
                .or_else(|| subnet.and(ip).and_then(plan::keeps)),
            has_6to4: subnet.is_some_and(|subnet| subnet.has_6to4),
            project: namespace.and_then(|namespace| namespace.project.clone()),
            workload: self.workload(key, pod, ip).await?,
            mac,
            pending_limit: self.settings.pending_limit.0,
        }))
    }

    /// What the pod is of: a Job may be that of a CronJob.
    async fn workload(
        &self,
        key: &Key,
        pod: &PodView,
        ip: Option<&FlatIpView>,
    ) -> Reconciled<Option<WorkloadRef>> {
        let job = pod.workload.as_ref().filter(|of| of.kind == JOB.kind);
        let Some(job) = job else {
            return Ok(pod.workload.clone());
        };
        let own = ip.filter(|ip| *ip.spec.pod_id == *pod.meta.uid);
        if let Some(known) = own.and_then(|ip| ip.workload.as_ref()) {
            return Ok(Some(known.clone()));
        }
        let found: Option<Job> = self
            .context
            .remote
            .get(&JOB.named(&key.namespace, &job.name))
            .await?;
        let owners = found.and_then(|job| job.metadata.owner_references);
        let mut owners = owners.into_iter().flatten();
        let cron = owners.find(|owner| owner.kind == "CronJob");
        Ok(Some(match cron {
            Some(cron) => WorkloadRef::new(&cron.kind, &key.namespace, &cron.name),
            None => job.clone(),
        }))
    }

    async fn apply(
        &self,
        key: &Key,
        (pod, ip): (Option<&PodView>, Option<&FlatIpView>),
        plan: PodPlan,
    ) -> Reconciled {
        match (plan, ip) {
            (PodPlan::Create(object), _) => self.create(key, &object).await,
            (PodPlan::Look(after), _) => Ok(Next::After(after)),
            (PodPlan::Correct(patch), Some(ip)) => self.patch(key, &ip.meta, patch).await,
            (PodPlan::TakeOver(patch), Some(ip)) => self.take_over(key, ip, patch).await,
            (PodPlan::Keep, Some(ip)) => match self.still_there(key, ip).await? {
                Some(wait) => Ok(wait),
                None => {
                    let patch = kept_from(self.book_time());
                    self.patch(key, &ip.meta, patch).await?;
                    Ok(Next::After(Duration::ZERO))
                }
            },
            (PodPlan::Release(Why::Absent), Some(ip)) => match self.still_there(key, ip).await? {
                Some(wait) => Ok(wait),
                None => self.delete(key, ip).await,
            },
            (PodPlan::Release(Why::KeptLongEnough), Some(ip)) => {
                match self.pod_in_question(key, ip).await? {
                    Some(_) => Ok(Next::Retry),
                    None => self.delete(key, ip).await,
                }
            }
            (PodPlan::Release(_), Some(ip)) => self.delete(key, ip).await,
            (PodPlan::Label(patch), _) => self.label(key, pod, patch).await,
            (PodPlan::Restart, Some(ip)) => self.restart(key, pod, ip).await,
            (PodPlan::Nothing, _)
            | (
                PodPlan::Correct(_)
                | PodPlan::TakeOver(_)
                | PodPlan::Keep
                | PodPlan::Release(_)
                | PodPlan::Restart,
                None,
            ) => Ok(Next::Done),
        }
    }

    async fn create(
        &self,
        key: &Key,
        object: &fipd_crds::flat_network::FlatNetworkIP,
    ) -> Reconciled {
        let (target, lists) = (FLAT_IP.target(key), self.ips.context.objects.lists());
        match self.context.remote.create_seen(&target, object).await {
            Ok(made) => {
                self.written(key, |ips| ips.keep_made(key, FlatIpView::of(made), lists));
                Ok(Next::Done)
            }
            // The watch shows it soon.
            Err(CallError::Conflict(..)) => Ok(Next::Retry),
            Err(error) => Err(error.into()),
        }
    }

    /// Not over an edit that was not read.
    async fn patch(&self, key: &Key, meta: &Meta, mut patch: Value) -> Reconciled {
        patch["metadata"]["uid"] = json!(&*meta.uid);
        patch["metadata"]["resourceVersion"] = json!(meta.version);
        let (remote, target) = (&self.context.remote, FLAT_IP.target(key));
        let now = remote.patch_seen(&target, Patch::Merge, &patch).await?;
        self.written(key, |ips| ips.keep(key, FlatIpView::of(now)));
        Ok(Next::Done)
    }

    /// The address is worked on as it was written: the watch says nothing of what is known.
    fn written(&self, key: &Key, keep: impl FnOnce(&Objects<FlatIpView>)) {
        let ips: &Objects<FlatIpView> = &self.ips.context.objects;
        keep(ips);
        self.note_mac(key);
        self.ips.context.queue.add(key.clone());
    }

    /// The pod has what an earlier one of its name had, and is yet to use it.
    async fn take_over(&self, key: &Key, ip: &FlatIpView, patch: Value) -> Reconciled {
        let (remote, target) = (&self.context.remote, FLAT_IP.target(key));
        // First, so that nobody takes the new pod for one that uses it.
        let mut told = pending(jiff::Timestamp::now());
        told["metadata"] = json!({ "uid": &*ip.meta.uid, "resourceVersion": ip.meta.version });
        let told: fipd_crds::flat_network::FlatNetworkIP = remote
            .patch_status_seen(&target, Patch::Merge, &told)
            .await?;
        self.patch(key, &Meta::of(&told.metadata), patch).await
    }

    async fn delete(&self, key: &Key, ip: &FlatIpView) -> Reconciled {
        let target = FLAT_IP.target(key);
        self.context.remote.delete(&target, &ip.meta.uid).await?;
        Ok(Next::Done)
    }

    /// The pod that has the address, or that asks for it.
    async fn pod_in_question(&self, key: &Key, ip: &FlatIpView) -> Result<Option<Pod>, CallError> {
        let found: Option<Pod> = self.context.remote.get(&POD.target(&pod_key(key))).await?;
        let has = |pod: &Pod| {
            let needs = || !alive::is_finished(pod) || plan::keeps(ip).is_some();
            pod.metadata.uid.as_deref() == Some(&*ip.spec.pod_id) && needs()
        };
        // Another pod of the name may take the address over once the watch shows it; one that does not ask for it does not.
        let asks = |pod: &Pod| {
            let view = PodView::all_of(pod).remove(&key.name);
            view.is_some_and(|view| self.with_subnet(key, Arc::new(view), None).wants.is_ok())
        };
        Ok(found.filter(|pod| has(pod) || asks(pod)))
    }

    /// How long to wait until a look at the pod counts; `None`: a second one has not found it either.
    async fn still_there(&self, key: &Key, ip: &FlatIpView) -> Reconciled<Option<Next>> {
        let look = self.pod_in_question(key, ip);
        let wait = self.missing.confirm(key, look).await?;
        Ok(wait.map(Next::After))
    }

    async fn label(&self, key: &Key, pod: Option<&PodView>, mut patch: Value) -> Reconciled {
        let Some(pod) = pod else {
            return Ok(Next::Done);
        };
        patch["metadata"]["uid"] = json!(&*pod.meta.uid);
        let target = POD.target(key);
        match self
            .context
            .remote
            .patch(&target, Patch::Merge, &patch)
            .await
        {
            Ok(()) | Err(CallError::NotFound(_)) => Ok(Next::Done),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes a pod that does not get to use its address.
    async fn restart(&self, key: &Key, pod: Option<&PodView>, ip: &FlatIpView) -> Reconciled {
        let Some(pod) = pod else {
            return Ok(Next::Done);
        };
        let note = format!(
            "it has had {} since {} and does not use it: the pod is deleted, so that its node tries again; look at the CNI plugin of node {}",
            ip.status.addr,
            ip.status.allocated_time_stamp,
            pod.node.as_deref().unwrap_or("(none)")
        );
        let key = pod.key(key);
        self.context.warn(&key, &pod.meta.uid, IP_ERROR, note);
        self.context
            .remote
            .delete(&POD.target(&key), &pod.meta.uid)
            .await?;
        Ok(Next::Done)
    }
}

/// Why a pod waits for a MAC.
fn no_mac(pod: &PodView) -> String {
    let named = pod.wants.as_ref().map_or(0, |wants| wants.macs.len());
    let annotation = match pod.interface.is_first() {
        true => MAC,
        false => ADDITIONAL_INTERFACES,
    };
    format!(
        "no available MAC address: all {named} that annotation {annotation} names are in use; it gets the first that becomes free"
    )
}
