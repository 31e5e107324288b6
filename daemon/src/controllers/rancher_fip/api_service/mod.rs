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
use tokio::task::JoinSet;

use self::plan::{Door, KEEPER, STOCK_KEEPER, Want, Wrong};
use super::{RancherFip, Site, guests::apply::core};
use crate::controllers::{
    Trouble,
    remote::{CallError, Patch, Remote, Target},
};

const AGAIN: Duration = Duration::from_secs(10);
/// For the names of a host to be looked up.
const LOOKUP: Duration = Duration::from_secs(5);
const SLICES: &str = "apis/discovery.k8s.io/v1";

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
            Ok(strangers) if strangers.is_empty() => String::new(),
            Ok(strangers) => format!("it leads also where others say: {}", strangers.join(", ")),
            Err(why) => why.to_string(),
        };
        if says != said && !says.is_empty() {
            tracing::warn!(cluster = %site.name, service = API_SERVICE, namespace, "not as it should be: {says}");
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

/// What others keep that leads the name somewhere else.
async fn pass(remote: &Remote, namespace: &str, door: &Door) -> Result<Vec<String>, Stop> {
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
    Ok(sweep(remote, namespace).await?)
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

/// What there is beside what fipd keeps.
async fn others(
    remote: &Remote,
    namespace: &str,
) -> Result<(Vec<EndpointSlice>, Option<Endpoints>), CallError> {
    let all = slice_at(namespace, "");
    let label = format!("kubernetes.io/service-name={API_SERVICE}");
    let listed = remote.list(&all, &label).await?.into_iter();
    let slices = listed.filter_map(|slice| serde_json::from_value(slice).ok());
    let slices = slices.collect();
    let target = core("endpoints", namespace, API_SERVICE);
    Ok((slices, remote.get(&target).await?))
}

/// What others keep that leads the name somewhere.
pub async fn strangers(remote: &Remote, namespace: &str) -> Result<Vec<String>, CallError> {
    let (slices, endpoints) = others(remote, namespace).await?;
    Ok(plan::strangers(&slices, endpoints.as_ref()))
}

/// Removes what the controllers of Kubernetes made for the Service while it had a selector: they let go of it as it was.
/// What others made stays; it is named.
async fn sweep(remote: &Remote, namespace: &str) -> Result<Vec<String>, CallError> {
    let (slices, endpoints) = others(remote, namespace).await?;
    for slice in &slices {
        let labels = slice.metadata.labels.as_ref();
        let stock = labels
            .and_then(|all| all.get(KEEPER))
            .is_some_and(|by| by == STOCK_KEEPER);
        if let (true, Some(name)) = (stock, &slice.metadata.name) {
            drop_slice(remote, &slice_at(namespace, name), STOCK_KEEPER).await?;
        }
    }
    let stock = endpoints.as_ref().filter(|found| plan::is_stock(found));
    if let Some(uid) = stock.and_then(|found| found.metadata.uid.as_deref()) {
        remote
            .delete(&core("endpoints", namespace, API_SERVICE), uid)
            .await?;
    }
    Ok(plan::strangers(&slices, endpoints.as_ref()))
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
