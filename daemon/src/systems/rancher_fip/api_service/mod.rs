//! The in-cluster name of the original API server goes on to lead somewhere: its Service without a selector, and
//! EndpointSlices with the addresses of this host.
//!
//! ```text
//!  Ingress, NodePort, pods --> Service rancher-fip-api-server --> EndpointSlice --> this host: 8443 [api] listen,
//!                                                                                  8080 a plain [[listener]]
//! ```
//!
//! Where the URL of this host leads back to that Service, nothing is changed. ReconcileError is an Event of the Service and in the
//! state of the cluster. Looked at again every ten seconds: what others change there is put right, and the addresses of a host name are those
//! that it has by then.

mod circle;
pub mod plan;

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use fipd_crds::labels::API_SERVICE;
use k8s_openapi::api::{
    core::v1::{Endpoints, Service},
    discovery::v1::EndpointSlice,
    networking::v1::Ingress,
};
use kube::ResourceExt as _;
use serde_json::Value;
use tokio::{task::JoinSet, time::sleep};

use self::plan::{KEEPER, STOCK_KEEPER, ServiceTarget, Unreachable};
use super::{RunningRancherFip, Site};
use crate::{
    controller::{
        client::{CallError, Patch, Remote},
        endpoint::OwnEndpoint,
        events::Events,
        kind::{ENDPOINT_SLICE, ENDPOINTS, INGRESS, SERVICE},
        owned::delete_if,
        store::Key,
    },
    systems::rancher_fip::settings::RancherFipSettings,
};

const AGAIN: Duration = Duration::from_secs(10);
/// For the names of a host to be looked up.
const LOOKUP: Duration = Duration::from_secs(5);

/// What this is called where fipd tells of trouble.
const PART: &str = "api-service";

impl RunningRancherFip {
    /// Keeps the name leading here, where the configuration says so.
    pub(super) fn keep_api_service(
        &self,
        site: &Arc<Site>,
        events: &Arc<Events>,
        tasks: &mut JoinSet<()>,
    ) {
        if site.session.settings.of::<RancherFipSettings>().api_service {
            let keeper = Keeper {
                remote: Remote::new(site.session.client.clone()),
                site: Arc::clone(site),
                events: Arc::clone(events),
                endpoint: self.means.endpoint.clone(),
            };
            tasks.spawn(keeper.run());
        }
    }
}

struct Keeper {
    site: Arc<Site>,
    remote: Remote,
    events: Arc<Events>,
    endpoint: OwnEndpoint,
}

impl Keeper {
    /// Keeps Service and slices until the session ends.
    async fn run(self) {
        let cancel = self.site.cancel();
        if let Some(listen) = plan::loopback(&self.endpoint) {
            tracing::warn!(cluster = %self.site.name, service = API_SERVICE, "{}", plan::closed(listen));
        }
        loop {
            self.look().await;
            if cancel.run_until_cancelled(sleep(AGAIN)).await.is_none() {
                break;
            }
        }
        self.site.session.troubled(PART, None);
    }

    async fn look(&self) {
        let namespace = &*self.site.settings::<RancherFipSettings>().app_namespace;
        let service = ServiceInCluster {
            remote: &self.remote,
            namespace,
            endpoint: &self.endpoint,
        };
        let (found, kept) = service.pass().await;
        let wrong = match kept {
            Ok(strangers) if strangers.is_empty() => None,
            Ok(strangers) => {
                let others = strangers.join(", ");
                let says = format!("it leads also where others say: {others}");
                Some(("LeadsElsewhere", says))
            }
            Err(ServiceFault::Wrong(wrong)) => Some(("CannotLeadHere", wrong.to_string())),
            Err(stop) => Some(("NotKept", stop.to_string())),
        };
        self.say(namespace, found.as_ref(), wrong);
    }

    /// Says it in the log and in the state of the cluster when it is news, and in Events of the Service once in a while.
    fn say(&self, namespace: &str, found: Option<&Service>, wrong: Option<(&'static str, String)>) {
        let why = wrong.as_ref().map(|(_, why)| why.as_str().into());
        let news = self.site.session.troubled(PART, why);
        let (cluster, service) = (&self.site.name, API_SERVICE);
        let uid = found.and_then(|found| found.metadata.uid.as_deref());
        let uid = uid.unwrap_or_default();
        let reference = SERVICE.reference(&Key::new(namespace, API_SERVICE), uid);
        match wrong {
            Some((reason, why)) => {
                if news {
                    tracing::warn!(%cluster, service, namespace, "not as it should be: {why}");
                }
                self.events
                    .warning(&reference, reason, format!("not as it should be: {why}"));
            }
            None if news => {
                tracing::info!(%cluster, service, namespace, "kept");
                self.events.normal(&reference, "LeadsHere", "leads to fipd");
            }
            None => {}
        }
    }
}

/// Why it is not as it should be.
#[derive(Debug, thiserror::Error)]
enum ServiceFault {
    #[error(transparent)]
    Wrong(#[from] Unreachable),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(
        "which Ingresses lead to it cannot be seen, and with them whether fipd's URL leads back to it: {0}"
    )]
    Unseen(String),
}

/// What there is of the Service, and what is to become of it.
pub struct Look {
    pub found: Option<Service>,
    pub want: Result<ServiceTarget, Unreachable>,
    /// Why it could not be looked at which Ingresses lead there.
    pub unseen: Option<String>,
}

/// The Service of a cluster, and what says where it is to lead.
pub struct ServiceInCluster<'a> {
    pub remote: &'a Remote,
    pub namespace: &'a str,
    pub endpoint: &'a OwnEndpoint,
}

impl ServiceInCluster<'_> {
    /// Looks at the Service and at what leads there. Changes nothing.
    pub async fn look(&self) -> Result<Look, CallError> {
        let Self {
            remote,
            namespace,
            endpoint,
        } = *self;
        let found: Option<Service> = remote.get(&SERVICE.named(namespace, API_SERVICE)).await?;
        let mut want = match found.as_ref().and_then(plan::external_name) {
            Some(name) => Err(Unreachable::ExternalName(name.to_owned())),
            None => want(endpoint).await,
        };
        let mut unseen = None;
        if let (Ok((host, port)), Ok(wanted)) = (plan::advertised(endpoint), &want) {
            let read = |one: Value| serde_json::from_value(one).ok();
            let listed = remote.list_kept(&INGRESS.all_in(namespace), "", read).await;
            let ingresses: Vec<Ingress> = listed.unwrap_or_else(|error| {
                unseen = Some(error.to_string());
                Vec::new()
            });
            let there = (found.as_ref(), &*ingresses);
            if let Some(how) = circle::circle(there, namespace, ((&host, port), &wanted.addresses))
            {
                want = Err(Unreachable::Circle { host, how });
            }
        }
        Ok(Look {
            found,
            want,
            unseen,
        })
    }

    /// The Service as it was found, and what others keep that leads the name somewhere else.
    async fn pass(&self) -> (Option<Service>, Result<Vec<String>, ServiceFault>) {
        let Look {
            found,
            want,
            unseen,
        } = match self.look().await {
            Err(error) => return (None, Err(error.into())),
            Ok(look) => look,
        };
        // What leads to an original goes on to do so until it is sure that there is no circle.
        let original = |found: &Service| plan::selector(found).is_ok();
        let original = found.as_ref().is_none_or(original);
        let kept = match (want, &unseen) {
            (Err(wrong), _) => Err(wrong.into()),
            (Ok(_), Some(_)) if original => Ok(Vec::new()),
            (Ok(want), _) => self.keep(found.as_ref(), &want).await.map_err(Into::into),
        };
        let kept = match unseen {
            Some(why) => kept.and(Err(ServiceFault::Unseen(why))),
            None => kept,
        };
        (found, kept)
    }

    async fn keep(
        &self,
        found: Option<&Service>,
        want: &ServiceTarget,
    ) -> Result<Vec<String>, CallError> {
        let Self {
            remote, namespace, ..
        } = *self;
        let target = SERVICE.named(namespace, API_SERVICE);
        match found {
            None => remote.create(&target, &plan::service(want)).await?,
            Some(found) => {
                if let Some(change) = plan::mend(found, want) {
                    remote.patch(&target, Patch::Merge, &change).await?;
                }
            }
        }
        let names = plan::port_names(found, want);
        // First ours, so that the name leads somewhere all the time.
        for (name, slice) in plan::slices(want, &names) {
            let target = ENDPOINT_SLICE.named(namespace, &name);
            match slice {
                Some(slice) => remote.patch(&target, Patch::Apply, &slice).await?,
                None => self.drop_slice(&name, "fipd").await?,
            }
        }
        self.sweep().await
    }

    /// What there is beside what fipd keeps.
    async fn others(&self) -> Result<(Vec<EndpointSlice>, Option<Endpoints>), CallError> {
        let all = ENDPOINT_SLICE.all_in(self.namespace);
        let label = format!("kubernetes.io/service-name={API_SERVICE}");
        let read = |slice: Value| serde_json::from_value(slice).ok();
        let slices = self.remote.list_kept(&all, &label, read).await?;
        let target = ENDPOINTS.named(self.namespace, API_SERVICE);
        Ok((slices, self.remote.get(&target).await?))
    }

    /// What others keep that leads the name somewhere.
    pub async fn strangers(&self) -> Result<Vec<String>, CallError> {
        let (slices, endpoints) = self.others().await?;
        Ok(plan::strangers(&slices, endpoints.as_ref()))
    }

    /// Removes what the controllers of Kubernetes made for the Service while it had a selector: they let go of it as it was.
    /// What others made stays; it is named.
    async fn sweep(&self) -> Result<Vec<String>, CallError> {
        let (slices, endpoints) = self.others().await?;
        for slice in &slices {
            let keeper = slice.labels().get(KEEPER);
            if let Some(name) = &slice.metadata.name
                && keeper.is_some_and(|by| by == STOCK_KEEPER)
            {
                self.drop_slice(name, STOCK_KEEPER).await?;
            }
        }
        let stock = endpoints.as_ref().filter(|found| plan::is_stock(found));
        if let Some(uid) = stock.and_then(|found| found.metadata.uid.as_deref()) {
            let target = ENDPOINTS.named(self.namespace, API_SERVICE);
            self.remote.delete(&target, uid).await?;
        }
        Ok(plan::strangers(&slices, endpoints.as_ref()))
    }

    /// Deletes a slice that `keeper` keeps.
    async fn drop_slice(&self, name: &str, keeper: &str) -> Result<(), CallError> {
        let goes = |slice: &Value| slice["metadata"]["labels"][KEEPER] == keeper;
        delete_if(
            self.remote,
            &ENDPOINT_SLICE.named(self.namespace, name),
            goes,
        )
        .await
    }
}

/// Where this host is, as `endpoint` says it.
async fn want(endpoint: &OwnEndpoint) -> Result<ServiceTarget, Unreachable> {
    let (host, port) = plan::advertised(endpoint)?;
    let addresses: BTreeSet<IpAddr> = match host.parse() {
        Ok(address) => BTreeSet::from([address]),
        Err(_) => {
            let found = tokio::net::lookup_host((&*host, port));
            let found = tokio::time::timeout(LOOKUP, found).await;
            let unknown = |why: String| Unreachable::UnknownHost(host.clone(), why);
            let found = found.map_err(|_| unknown("no answer in time".to_owned()))?;
            let found = found.map_err(|error| unknown(error.to_string()))?;
            found.map(|one| one.ip()).collect()
        }
    };
    plan::want(&host, addresses, port, endpoint.plain)
}
