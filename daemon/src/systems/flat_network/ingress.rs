//! Backends of Ingresses that are to be reached on the flat network: their Services get the annotation for networks.
//!
//! The original writes a value that names no attachment, so that nothing follows from it (g1-12), and takes the annotation off
//! every backend of any other Ingress. fipd writes the name of the attachment, notes on the Service that it did, and takes off
//! what it or the original put there, once no Ingress asks for it any more.

use std::{collections::BTreeSet, sync::Arc};

use fipd_crds::flat_network::names::{ATTACHMENT, INGRESS as ASKS, NETWORKS};
use k8s_openapi::api::networking::v1::Ingress;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::service::{
    observe::{FORMER_ATTACHMENT, FlatServiceView, NETWORKS_SET_BY},
    watches::ServiceWatches,
};
use crate::{
    controller::{
        Reconciled,
        client::Patch,
        context::Context,
        events::Events,
        kind::SERVICE,
        meta::Meta,
        queue::Next,
        reconcile::{self, Controller},
        site::Site,
        store::{Key, Objects},
        tasks::spawn,
    },
    validation::flat_network::multus,
};

/// Value of [`NETWORKS_SET_BY`].
const BY_INGRESS: &str = "ingress";
/// Reason of the Event of a Service that is a backend and names another network.
const OTHER_NETWORK: &str = "FlatNetworkIngressOtherNetwork";

/// An Ingress that asks for the flat network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatIngress {
    /// Names of the Services of its paths.
    pub backends: BTreeSet<String>,
}

/// What is to become of the annotation of a Service.
#[derive(Clone, Debug, PartialEq)]
enum IngressPlan {
    Leave,
    /// By this merge patch.
    Write(Value),
    /// Somebody else names another network.
    Other(String),
}

/// See the module.
pub struct IngressController {
    context: Context<FlatServiceView>,
    watches: Arc<ServiceWatches>,
    ingresses: Arc<Objects<FlatIngress>>,
}

/// Keeps the annotation until the session ends.
pub fn start(
    site: &Arc<Site>,
    events: &Arc<Events>,
    watches: &Arc<ServiceWatches>,
    tasks: &mut JoinSet<()>,
) {
    let controller = Arc::new(IngressController {
        context: watches.context(site, events),
        watches: Arc::clone(watches),
        ingresses: Objects::new(),
    });
    let (all, ingresses) = (Arc::clone(&controller), Arc::clone(&controller.ingresses));
    spawn(tasks, site, ingresses, view, move |key| {
        all.ingress_changed(key);
    });
    reconcile::work(&controller, tasks);
}

impl Controller for IngressController {
    type View = FlatServiceView;

    const METRIC: &'static str = "flatingress";
    const WORKERS: usize = 2;

    fn context(&self) -> &Context<FlatServiceView> {
        &self.context
    }

    async fn completed(&self) {
        self.watches.completed().await;
        self.ingresses.completed().await;
    }

    async fn reconcile(&self, key: &Key, service: Option<Arc<FlatServiceView>>) -> Reconciled {
        let Some(service) = service else {
            return Ok(Next::Done);
        };
        match plan(&key.name, &service, self.is_asked(key)) {
            IngressPlan::Leave => {}
            IngressPlan::Write(patch) => {
                let target = SERVICE.target(key);
                self.context
                    .remote
                    .patch(&target, Patch::Merge, &patch)
                    .await?;
            }
            IngressPlan::Other(networks) => {
                let note = format!(
                    "an Ingress asks for the flat network, but annotation {NETWORKS} says {networks:?}; set it to {ATTACHMENT} or remove it"
                );
                self.context
                    .warn(key, &service.meta.uid, OTHER_NETWORK, note);
            }
        }
        Ok(Next::Done)
    }

    async fn release(&self, _: &Key, _: &Meta, _: Option<Arc<FlatServiceView>>) -> Reconciled {
        Ok(Next::Done)
    }
}

impl IngressController {
    /// Has the backends looked at, and those that were backends before.
    fn ingress_changed(&self, key: &Key) {
        let namespace = &key.namespace;
        let backends = self.ingresses.get(key);
        let backends = backends.iter().flat_map(|ingress| &ingress.backends);
        let backends = backends.map(|name| Key::new(namespace, name));
        let marked = self.context.objects.keys_in(namespace).into_iter();
        let marked = marked.filter(|key| {
            let service = self.context.objects.get(key);
            service.is_some_and(|service| service.is_set_by_ingress || is_former(&service))
        });
        let keys: BTreeSet<Key> = backends.chain(marked).collect();
        keys.into_iter().for_each(|key| self.context.queue.add(key));
    }

    fn is_asked(&self, service: &Key) -> bool {
        let mut keys = self.ingresses.keys_in(&service.namespace).into_iter();
        keys.any(|key| {
            let ingress = self.ingresses.get(&key);
            ingress.is_some_and(|ingress| ingress.backends.contains(&*service.name))
        })
    }
}

/// Nothing of an Ingress that does not ask for the flat network.
fn view(ingress: Ingress) -> Option<FlatIngress> {
    let annotations = ingress.metadata.annotations.unwrap_or_default();
    annotations.get(ASKS).filter(|asks| *asks == "true")?;
    let rules = ingress.spec.and_then(|spec| spec.rules).unwrap_or_default();
    let http = rules.into_iter().filter_map(|rule| rule.http);
    let paths = http.flat_map(|http| http.paths);
    let services = paths.filter_map(|path| path.backend.service);
    Some(FlatIngress {
        backends: services.map(|service| service.name).collect(),
    })
}

/// The original put it there, or a companion of 2024 has it.
fn is_former(service: &FlatServiceView) -> bool {
    service.networks.as_deref() == Some(FORMER_ATTACHMENT)
}

fn plan(name: &str, service: &FlatServiceView, is_asked: bool) -> IngressPlan {
    // Whose annotation that is the companion's controller sees to.
    if service.is_companion(name) {
        return IngressPlan::Leave;
    }
    let networks = service.networks.as_deref();
    let is_ours = networks == Some(ATTACHMENT) && service.is_set_by_ingress;
    match networks {
        None | Some(FORMER_ATTACHMENT) if is_asked => write(
            service,
            json!({ NETWORKS: ATTACHMENT, NETWORKS_SET_BY: BY_INGRESS }),
        ),
        Some(other) if is_asked && !names_attachment(other) => IngressPlan::Other(other.to_owned()),
        Some(_) if is_asked => IngressPlan::Leave,
        Some(_) if is_ours || is_former(service) => {
            write(service, json!({ NETWORKS: null, NETWORKS_SET_BY: null }))
        }
        // Somebody else has changed or removed it since.
        Some(_) | None if service.is_set_by_ingress => {
            write(service, json!({ NETWORKS_SET_BY: null }))
        }
        Some(_) | None => IngressPlan::Leave,
    }
}

fn names_attachment(networks: &str) -> bool {
    multus::names_flat_network(NETWORKS, networks).unwrap_or(false)
}

/// What was read decides, so nothing is written where somebody has changed it since.
fn write(service: &FlatServiceView, annotations: Value) -> IngressPlan {
    let (uid, version) = (&*service.meta.uid, &service.meta.version);
    let metadata = json!({ "uid": uid, "resourceVersion": version, "annotations": annotations });
    IngressPlan::Write(json!({ "metadata": metadata }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(annotations: Value) -> FlatServiceView {
        let object = json!({
            "metadata": { "name": "web", "uid": "s", "resourceVersion": "7", "annotations": annotations },
            "spec": { "selector": { "app": "web" } },
        });
        FlatServiceView::of(serde_json::from_value(object).unwrap())
    }

    fn written(annotations: Value) -> IngressPlan {
        let metadata = json!({ "uid": "s", "resourceVersion": "7", "annotations": annotations });
        IngressPlan::Write(json!({ "metadata": metadata }))
    }

    #[test]
    fn only_paths_of_an_ingress_that_asks_count() {
        let ingress = |asks: &str| {
            let path = |name: &str| json!({ "pathType": "Prefix", "backend": { "service": { "name": name } } });
            let other = json!({ "pathType": "Prefix", "backend": { "resource": { "kind": "A", "name": "b" } } });
            let object = json!({
                "metadata": { "name": "a", "annotations": { ASKS: asks } },
                "spec": { "rules": [
                    { "http": { "paths": [path("web"), path("api"), other] } }, { "host": "bare" },
                    { "http": { "paths": [path("web")] } },
                ] },
            });
            view(serde_json::from_value(object).unwrap())
        };
        let backends = ["api", "web"].map(str::to_owned).into();
        assert_eq!(ingress("true"), Some(FlatIngress { backends }));
        assert_eq!((ingress("false"), ingress("")), (None, None));
        assert_eq!(view(Ingress::default()), None);
    }

    /// Defect g1-12: the value names the attachment that there is.
    #[test]
    fn g1_12_a_backend_gets_the_name_of_the_attachment() {
        let set = written(json!({ NETWORKS: "rancher-flat-network", NETWORKS_SET_BY: "ingress" }));
        assert_eq!(plan("web", &service(json!({})), true), set);
        let former = service(json!({ NETWORKS: "rancher-flat-network-cni" }));
        assert_eq!(plan("web", &former, true), set);
        for named in ["rancher-flat-network", "shop/rancher-flat-network@eth1"] {
            let named = service(json!({ NETWORKS: named }));
            assert_eq!(plan("web", &named, true), IngressPlan::Leave);
        }
        let other = service(json!({ NETWORKS: "storage" }));
        assert_eq!(
            plan("web", &other, true),
            IngressPlan::Other("storage".to_owned())
        );
    }

    /// Defect g1-12.
    #[test]
    fn only_what_fipd_or_the_original_wrote_is_taken_off() {
        let ours = json!({ NETWORKS: "rancher-flat-network", NETWORKS_SET_BY: "ingress" });
        let off = written(json!({ NETWORKS: null, NETWORKS_SET_BY: null }));
        assert_eq!(plan("web", &service(ours.clone()), false), off);
        assert_eq!(plan("web", &service(ours), true), IngressPlan::Leave);
        let former = service(json!({ NETWORKS: "rancher-flat-network-cni" }));
        assert_eq!(plan("web", &former, false), off);
        for of_others in [
            json!({}),
            json!({ NETWORKS: "rancher-flat-network" }),
            json!({ NETWORKS: "storage" }),
        ] {
            assert_eq!(plan("web", &service(of_others), false), IngressPlan::Leave);
        }
        let changed = service(json!({ NETWORKS: "storage", NETWORKS_SET_BY: "ingress" }));
        let mark_off = written(json!({ NETWORKS_SET_BY: null }));
        assert_eq!(plan("web", &changed, false), mark_off);
        let mut companion = service(json!({ NETWORKS: "rancher-flat-network-cni" }));
        companion.is_headless = true;
        assert_eq!(
            plan("web-flat-network", &companion, false),
            IngressPlan::Leave
        );
    }
}
