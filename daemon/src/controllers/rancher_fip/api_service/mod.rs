//! The in-cluster name of the original API server goes on to lead somewhere: its Service without a selector, and
//! EndpointSlices with the addresses of this host.
//!
//! ```text
//!  Ingress, NodePort, pods --> Service rancher-fip-api-server --> EndpointSlice --> this host: 8443 [api] listen,
//!                                                                                  8080 a plain [[listener]]
//! ```
//!
//! Looked at again every ten seconds: what others change there is put right, and the addresses of a host name are those
//! that it has by then.

pub mod plan;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use fipd_crds::labels::API_SERVICE;
use k8s_openapi::api::{
    core::v1::{Endpoints, Service},
    discovery::v1::EndpointSlice,
};
use serde_json::Value;
use tokio::task::JoinSet;

use self::plan::{Door, Want, Wrong};
use super::{RancherFip, Site, guests::apply::core};
use crate::controllers::{
    Trouble,
    remote::{CallError, Patch, Remote, Target},
};

const AGAIN: Duration = Duration::from_secs(10);
/// For the names of a host to be looked up.
const LOOKUP: Duration = Duration::from_secs(5);
const SLICES: &str = "apis/discovery.k8s.io/v1";
/// On slices: who keeps them.
const KEEPER: &str = "endpointslice.kubernetes.io/managed-by";
/// The controller of Kubernetes that keeps the slices of a Service with a selector.
const STOCK_KEEPER: &str = "endpointslice-controller.k8s.io";

impl RancherFip {
    /// Keeps the name leading here, where the configuration says so.
    pub(super) fn keep_api_service(&self, site: &Arc<Site>, tasks: &mut JoinSet<()>) {
        if site.session.settings.rancher_fip.api_service {
            tasks.spawn(keep(Arc::clone(site), self.own.door()));
        }
    }
}

/// Keeps Service and slices until the session ends.
async fn keep(site: Arc<Site>, door: Door) {
    let cancel = site.cancel();
    let remote = Remote::new(site.session.client.clone());
    let namespace = &*site.session.settings.rancher_fip.app_namespace;
    let mut said = String::new();
    loop {
        let says = match pass(&remote, namespace, &door).await {
            Ok(()) => String::new(),
            Err(why) => why.to_string(),
        };
        if says != said && !says.is_empty() {
            tracing::warn!(cluster = %site.name, service = API_SERVICE, namespace, "not kept: {says}");
        } else if says != said {
            tracing::info!(cluster = %site.name, service = API_SERVICE, namespace, "kept");
        }
        said = says;
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

/// Why it is not as it should be.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Wrong(#[from] Wrong),
    #[error(transparent)]
    Trouble(#[from] Trouble),
}

impl From<CallError> for Stop {
    fn from(error: CallError) -> Self {
        Self::Trouble(error.into())
    }
}

async fn pass(remote: &Remote, namespace: &str, door: &Door) -> Result<(), Stop> {
    let want = want(door).await?;
    let target = core("services", namespace, API_SERVICE);
    let found: Option<Service> = remote.get(&target).await?;
    match &found {
        None => remote.create(&target, &plan::service(&want)).await?,
        Some(found) => {
            if let Some(change) = plan::mend(found, &want) {
                remote.patch(&target, Patch::Merge, &change).await?;
            }
        }
    }
    let names = plan::port_names(found.as_ref(), &want);
    // First ours, so that the name leads somewhere all the time.
    for (name, slice) in plan::slices(&want, &names) {
        let target = slice_at(namespace, &name);
        match slice {
            Some(slice) => remote.patch(&target, Patch::Apply, &slice).await?,
            None => drop_slice(remote, &target, "fipd").await?,
        }
    }
    sweep(remote, namespace).await?;
    Ok(())
}

/// Where this host is, as `door` says it.
pub async fn want(door: &Door) -> Result<Want, Wrong> {
    let (host, port) = door.host()?;
    let addresses: BTreeSet<IpAddr> = match host.parse() {
        Ok(address) => BTreeSet::from([address]),
        Err(_) => {
            let found = tokio::net::lookup_host((&*host, port));
            let found = tokio::time::timeout(LOOKUP, found).await;
            let unknown = |why: String| Wrong::UnknownHost(host.clone(), why);
            let found = found.map_err(|_| unknown("no answer in time".to_owned()))?;
            let found = found.map_err(|error| unknown(error.to_string()))?;
            found.map(|one| one.ip()).collect()
        }
    };
    plan::want(&host, addresses, port, door.plain)
}

/// What the controllers of Kubernetes made for the Service while it had a selector: they let go of it as it was.
async fn sweep(remote: &Remote, namespace: &str) -> Result<(), CallError> {
    let all = slice_at(namespace, "");
    let label = format!("kubernetes.io/service-name={API_SERVICE}");
    for slice in remote.list(&all, &label).await? {
        let text = |path: &str| slice.pointer(path).and_then(Value::as_str);
        let keeper = text("/metadata/labels/endpointslice.kubernetes.io~1managed-by");
        if let (Some(STOCK_KEEPER), Some(name)) = (keeper, text("/metadata/name")) {
            drop_slice(remote, &slice_at(namespace, name), STOCK_KEEPER).await?;
        }
    }
    let target = core("endpoints", namespace, API_SERVICE);
    let found: Option<Endpoints> = remote.get(&target).await?;
    if let Some(uid) = found.and_then(|found| found.metadata.uid) {
        remote.delete(&target, &uid).await?;
    }
    Ok(())
}

/// Deletes a slice that `keeper` keeps.
async fn drop_slice(remote: &Remote, target: &Target, keeper: &str) -> Result<(), CallError> {
    let Some(found) = remote.get::<EndpointSlice>(target).await? else {
        return Ok(());
    };
    let labels: BTreeMap<String, String> = found.metadata.labels.unwrap_or_default();
    match found.metadata.uid {
        Some(uid) if labels.get(KEEPER).is_some_and(|by| by == keeper) => {
            remote.delete(target, &uid).await
        }
        Some(_) | None => Ok(()),
    }
}

fn slice_at(namespace: &str, name: &str) -> Target {
    Target {
        api: SLICES,
        plural: "endpointslices",
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}
