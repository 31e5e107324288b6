//! Endpoints and EndpointSlices of Services that lead to addresses on the flat network: companions, and those that carry the
//! annotation for networks.
//!
//! ```text
//!  pods (network-status, Ready, ports) --> resolve --> slices (own, beside those of Kubernetes)
//!                                                  \-> Endpoints (of companions)
//! ```
//!
//! The controllers of Kubernetes keep slices and Endpoints of every Service with a selector, by the pods' primary addresses, and
//! nothing tells them not to. Where somebody relabels a slice of theirs, as the original does, they make another; Endpoints
//! they write again with the next change of a pod. So fipd keeps slices of its own, by its own names, and changes none of
//! theirs:
//! - A companion has no selector: fipd's slices and Endpoints are all that there is. What the controllers wrote while it had one
//!   stays when the selector goes, and is deleted or overwritten here.
//! - A Service of a user keeps its selector, which fipd must not take away. It leads to its pods at both addresses, and its
//!   Endpoints stay those of Kubernetes. Who wants flat addresses alone names the companion.
//!
//! A pod's annotation counts only where the pod's FlatNetworkIPs show the same address: a tenant may write any into it.
//!
//! A Service is looked at when it or a pod that it selects changes, at most once a second: the changes of a rollout become one
//! write.

mod legacy;
mod observe;
mod own;
mod resolve;
mod slices;

use std::sync::Arc;

use k8s_openapi::api::{core::v1::Endpoints, discovery::v1::EndpointSlice};
use kube::{Api, runtime::watcher};
use serde_json::Value;
use tokio::task::JoinSet;

use self::{
    observe::{EndpointsView, SKIP_MIRROR, SliceView},
    own::OwnAddresses,
    resolve::{EndpointGroups, FlatSubject},
    slices::SlicePlan,
};
use super::{
    ip::FlatIpView,
    service::{observe::FlatServiceView, watches::ServiceWatches},
};
use crate::{
    controller::{
        Reconciled,
        client::Patch,
        context::Context,
        events::Events,
        kind::{ENDPOINT_SLICE, ENDPOINTS},
        meta::Meta,
        queue::Next,
        reconcile::{self, Controller},
        site::Site,
        store::{Key, Objects, follow},
        tasks::spawn,
    },
    validation::flat_network::multus::NetworkRef,
};

/// See the module.
pub struct EndpointsController {
    context: Context<FlatServiceView>,
    watches: Arc<ServiceWatches>,
    /// Known before this begins.
    ips: Arc<Objects<FlatIpView>>,
    slices: Arc<Objects<SliceView>>,
    endpoints: Arc<Objects<EndpointsView>>,
}

/// Keeps Endpoints and slices until the session ends.
pub fn start(
    site: &Arc<Site>,
    events: &Arc<Events>,
    watches: &Arc<ServiceWatches>,
    ips: &Arc<Objects<FlatIpView>>,
    tasks: &mut JoinSet<()>,
) {
    let controller = Arc::new(EndpointsController {
        context: watches.context(site, events),
        watches: Arc::clone(watches),
        ips: Arc::clone(ips),
        slices: Objects::new(),
        endpoints: Objects::new(),
    });
    let (all, slices) = (Arc::clone(&controller), Arc::clone(&controller.slices));
    spawn::<EndpointSlice, _>(tasks, site, slices, observe::slice, move |key| {
        all.slice_changed(key);
    });
    let (all, endpoints) = (Arc::clone(&controller), Arc::clone(&controller.endpoints));
    tasks.spawn(follow::<Endpoints, _>(
        Api::all(site.session.client.clone()),
        watcher::Config::default().labels(&format!("{SKIP_MIRROR}=true")),
        endpoints,
        |one| Some(observe::endpoints(one)),
        move |key| all.context.queue.add(key.clone()),
        site.memory(),
        site.cancel(),
    ));
    reconcile::work(&controller, tasks);
}

impl Controller for EndpointsController {
    type View = FlatServiceView;

    const METRIC: &'static str = "flatendpoints";
    const WORKERS: usize = 4;

    fn context(&self) -> &Context<FlatServiceView> {
        &self.context
    }

    async fn completed(&self) {
        self.watches.completed().await;
        self.slices.completed().await;
        self.endpoints.completed().await;
    }

    async fn reconcile(&self, key: &Key, service: Option<Arc<FlatServiceView>>) -> Reconciled {
        // What is kept of a Service goes with it, as it owns it.
        let Some(service) = service else {
            return Ok(Next::Done);
        };
        if let Some(rests) = self.context.status_rests(key) {
            return Ok(rests);
        }
        let original = self.watches.original(key);
        let original = original.filter(|(_, original)| is_companion(key, &service, original));
        let original = original.as_ref().map(|(key, service)| (key, &**service));
        let written = match subject(key, &service, original) {
            Some(subject) => self.keep(&subject).await?,
            None => self.clear(key).await?,
        };
        if written {
            self.context.put_status_off(key);
        }
        Ok(Next::Done)
    }

    async fn release(&self, _: &Key, _: &Meta, _: Option<Arc<FlatServiceView>>) -> Reconciled {
        Ok(Next::Done)
    }
}

impl EndpointsController {
    /// A slice says in its name whose it is where it is gone.
    fn slice_changed(&self, key: &Key) {
        let service = match self.slices.get(key) {
            Some(slice) => Some(Key::new(&key.namespace, &slice.service)),
            None => slices::service_of(key),
        };
        service
            .into_iter()
            .for_each(|key| self.context.queue.add(key));
    }

    fn slices_of(&self, service: &Key) -> Vec<(Key, Arc<SliceView>)> {
        let keys = self.slices.keys_in(&service.namespace).into_iter();
        let slices = keys.filter_map(|key| self.slices.get(&key).map(|slice| (key, slice)));
        slices
            .filter(|(_, slice)| slice.service == service.name)
            .collect()
    }

    /// Whether anything was written.
    async fn keep(&self, subject: &FlatSubject<'_>) -> Reconciled<bool> {
        let key = subject.key;
        let pods = self.watches.selected(&key.namespace, subject.selector);
        let own = OwnAddresses::of(&key.namespace, &self.ips, &pods);
        let groups = subject.resolve(&pods, &own);
        let plan = slices::plan(subject, &groups, &self.slices_of(key));
        let body = self.endpoints_body(subject, &groups);
        let written = self.write(key, plan).await?;
        let Some(body) = body else {
            return Ok(written);
        };
        let target = ENDPOINTS.target(key);
        self.context
            .remote
            .patch(&target, Patch::Apply, &body)
            .await?;
        Ok(true)
    }

    fn endpoints_body(&self, subject: &FlatSubject<'_>, groups: &EndpointGroups) -> Option<Value> {
        if !subject.has_own_endpoints {
            return None;
        }
        let found = self.endpoints.get(subject.key);
        legacy::plan(subject, groups, found.as_deref())
    }

    /// The Service leads nowhere by fipd any more; whether it did.
    async fn clear(&self, key: &Key) -> Reconciled<bool> {
        let own = self.slices_of(key).into_iter();
        let own = own.filter(|(_, slice)| slice.content.is_some());
        let plan = SlicePlan {
            delete: own.map(|(key, slice)| (key, slice.uid.clone())).collect(),
            ..SlicePlan::default()
        };
        self.write(key, plan).await
    }

    /// What is new is there before what is old goes.
    async fn write(&self, service: &Key, plan: SlicePlan) -> Reconciled<bool> {
        let remote = &self.context.remote;
        let written = !plan.apply.is_empty() || !plan.delete.is_empty();
        for (name, body) in plan.apply {
            let target = ENDPOINT_SLICE.named(&service.namespace, &name);
            remote.patch(&target, Patch::Apply, &body).await?;
        }
        for (key, uid) in plan.delete {
            remote.delete(&ENDPOINT_SLICE.target(&key), &uid).await?;
        }
        Ok(written)
    }
}

/// Whether a Service that is called like the companion of another is that.
fn is_companion(key: &Key, service: &FlatServiceView, original: &FlatServiceView) -> bool {
    let owned = service.is_owned_by(&original.meta.uid) && service.is_headless;
    service.is_companion(&key.name) || owned
}

/// Where a Service is to lead; `None`: nowhere, as it names no network or selects no pods.
fn subject<'a>(
    key: &'a Key,
    service: &'a FlatServiceView,
    original: Option<(&'a Key, &'a FlatServiceView)>,
) -> Option<FlatSubject<'a>> {
    let networks = NetworkRef::parse_all(service.networks.as_deref()?);
    let of = original.map_or(service, |(_, original)| original);
    let names = original.map(|(key, _)| &*key.name);
    (of.selects() && !networks.is_empty()).then(|| FlatSubject {
        key,
        service,
        selector: &of.selector,
        networks,
        publishes_unready: service.publishes_unready || of.publishes_unready,
        subdomains: names.into_iter().chain([&*key.name]).collect(),
        has_own_endpoints: original.is_some() && service.selector.is_empty(),
    })
}

#[cfg(test)]
mod tests;
