//! The NetworkAttachmentDefinition by which Multus calls the CNI plugin, in each namespace.
//!
//! The kind is that of Multus. Where it is not there, nothing is done until it is, and the cluster says so.

mod plan;

use std::{sync::Arc, time::Duration};

use fipd_core::Text;
use fipd_crds::{
    flat_network::names::{ATTACHMENT, CNI_TYPE},
    network_attachment::NetworkAttachmentDefinition,
};
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::runtime::watcher;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet, time::sleep};

use self::plan::{AttachmentPlan, plan};
use crate::controller::{
    Reconciled,
    attachments::NETWORK_ATTACHMENT,
    client::Patch,
    context::Context,
    events::Events,
    kind::NAMESPACE,
    meta::{Meta, View},
    owned,
    queue::Next,
    reconcile::{self, Controller},
    site::Site,
    store::{Key, MALFORMED, Objects, Observed, follow},
};

/// How often it is looked whether the kind is there.
const CHECK: Duration = Duration::from_secs(30);
/// The trouble of a cluster that has not the kind.
const PART: &str = "network-attachments";
/// Reason of the Event of a definition that is not fipd's and has its name.
const FOREIGN: &str = "FlatNetworkAttachmentForeign";

/// What the definitions say to the CNI plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentConfig {
    /// The version of CNI: 1.0.0, and 0.3.1 for the Multus of RKE2.
    pub cni_version: String,
    /// Addresses of pods on the primary network: one CIDR or several separated by commas.
    pub cluster_cidr: String,
    /// The same of Services.
    pub service_cidr: String,
    /// `arp_notify` or `arping`.
    pub arp_policy: String,
    pub proxy_arp: bool,
    /// Of the interfaces of pods, in bytes.
    pub mtu: u32,
}

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachedNamespace(Meta);

/// A definition of the name that fipd's have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttachmentView {
    pub uid: Text,
    pub version: String,
    /// It has fipd's label.
    pub is_marked: bool,
    pub owners: Vec<OwnerReference>,
    /// JSON.
    pub config: String,
}

/// See the module.
pub struct AttachmentController {
    context: Context<AttachedNamespace>,
    attachments: Arc<Objects<AttachmentView>>,
    config: Value,
    served: watch::Sender<Option<bool>>,
}

/// Keeps definitions until the session ends.
pub fn start(
    site: &Arc<Site>,
    events: &Arc<Events>,
    config: &AttachmentConfig,
    tasks: &mut JoinSet<()>,
) -> Arc<AttachmentController> {
    let controller = Arc::new(AttachmentController {
        context: Context::of_site(NAMESPACE, site, events, &Objects::new()),
        attachments: Objects::new(),
        config: config.to_json(),
        served: watch::Sender::new(None),
    });
    let cancel = site.cancel();
    let (checks, follows) = (Arc::clone(&controller), Arc::clone(&controller));
    let following = async move {
        tokio::select! {
            () = checks.check() => {}
            () = follows.follow() => {}
        }
    };
    tasks.spawn(async move {
        let _ = cancel.run_until_cancelled(following).await;
    });
    let view = |namespace: Namespace| Some(AttachedNamespace::of(&namespace));
    reconcile::watch(&controller, view, tasks);
    reconcile::work(&controller, tasks);
    controller
}

impl AttachmentConfig {
    /// As the CNI plugin reads it; Multus adds the name.
    fn to_json(&self) -> Value {
        json!({
            "cniVersion": self.cni_version,
            "type": CNI_TYPE,
            "dns": {},
            "ipam": { "type": "static-ipam" },
            "flatNetwork": {
                "mtu": self.mtu,
                "clusterCIDR": self.cluster_cidr,
                "serviceCIDR": self.service_cidr,
                "arpPolicy": self.arp_policy,
                "proxyARP": self.proxy_arp,
            },
        })
    }
}

impl AttachedNamespace {
    /// Its version says nothing here, and would be another with every change of somebody.
    fn of(namespace: &Namespace) -> Self {
        Self(Meta {
            version: String::new(),
            ..Meta::of(&namespace.metadata)
        })
    }
}

impl View for AttachedNamespace {
    fn meta(&self) -> Meta {
        self.0.clone()
    }
}

impl AttachmentView {
    fn of(definition: NetworkAttachmentDefinition) -> Self {
        let meta = definition.metadata;
        Self {
            is_marked: owned::is_ours(&meta),
            uid: meta.uid.unwrap_or_default().into(),
            version: meta.resource_version.unwrap_or_default(),
            owners: meta.owner_references.unwrap_or_default(),
            config: definition.spec.config,
        }
    }
}

impl Controller for AttachmentController {
    type View = AttachedNamespace;

    const METRIC: &'static str = "flatattachment";
    const WORKERS: usize = 4;

    fn context(&self) -> &Context<AttachedNamespace> {
        &self.context
    }

    async fn reconcile(&self, key: &Key, namespace: Option<Arc<AttachedNamespace>>) -> Reconciled {
        let Some(namespace) = namespace.filter(|_| self.is_known()) else {
            return Ok(Next::Done);
        };
        let own = Key::new(&key.name, ATTACHMENT);
        let found = match self.attachments.seen(&own) {
            None => None,
            Some(Observed::Parsed(found)) => Some(found),
            Some(Observed::Malformed(object)) => {
                self.warn(&own, &object.meta.uid, MALFORMED, &object.note());
                return Ok(Next::Done);
            }
        };
        let remote = &self.context.remote;
        let target = NETWORK_ATTACHMENT.target(&own);
        match plan((key, &namespace.0.uid), &self.config, found.as_deref()) {
            AttachmentPlan::Leave => {}
            AttachmentPlan::Create(body) => {
                owned::create(remote, NETWORK_ATTACHMENT, &target, body).await?;
            }
            AttachmentPlan::Repair(patch) => remote.patch(&target, Patch::Merge, &patch).await?,
            AttachmentPlan::Foreign => {
                let note = format!(
                    "it is neither fipd's nor the original's, and pods of {} on a flat network get what it says; rename it",
                    key.name
                );
                let uid = found.map(|found| Text::clone(&found.uid));
                self.warn(&own, &uid.unwrap_or_default(), FOREIGN, &note);
            }
        }
        Ok(Next::Done)
    }

    /// In a namespace that ends nothing can be made.
    async fn release(&self, _: &Key, _: &Meta, _: Option<Arc<AttachedNamespace>>) -> Reconciled {
        Ok(Next::Done)
    }
}

impl AttachmentController {
    /// Whether the cluster has the kind: without it no pod gets an address on a flat network. `None`: that is not known yet.
    pub fn is_served(&self) -> Option<bool> {
        *self.served.borrow()
    }

    fn is_known(&self) -> bool {
        self.is_served() == Some(true) && self.attachments.is_complete()
    }

    fn warn(&self, own: &Key, uid: &str, reason: &'static str, note: &str) {
        let object = NETWORK_ATTACHMENT.reference(own, uid);
        self.context.events.warning(&object, reason, note);
    }

    /// Looks whether the kind is there. Does not end.
    async fn check(&self) {
        loop {
            match NETWORK_ATTACHMENT.is_served(&self.context.remote).await {
                Ok(served) => self.note_served(served),
                Err(error) => tracing::debug!(%error, "whether Multus is there is not known"),
            }
            sleep(CHECK).await;
        }
    }

    fn note_served(&self, served: bool) {
        if self.served.send_replace(Some(served)) == Some(served) {
            return;
        }
        let site = &self.context.site;
        let missing = "the cluster has no kind NetworkAttachmentDefinition, so no pod gets an interface on a flat network: install Multus";
        if !served {
            tracing::warn!(cluster = %site.name, "{missing}");
        }
        site.session
            .troubled(PART, (!served).then(|| missing.into()));
        self.context.queue_all();
    }

    /// Follows the definitions of fipd's name, from when the kind is there. Does not end.
    async fn follow(&self) {
        let mut served = self.served.subscribe();
        // The sender lives in self: it cannot go away while this waits.
        let _ = served.wait_for(|served| *served == Some(true)).await;
        let site = &self.context.site;
        let following = follow::<NetworkAttachmentDefinition, _>(
            NETWORK_ATTACHMENT.all_as(site.session.client.clone()),
            watcher::Config::default().fields(&format!("metadata.name={ATTACHMENT}")),
            Arc::clone(&self.attachments),
            |definition| Some(AttachmentView::of(definition)),
            |key: &Key| self.context.queue.add(Key::new("", &key.namespace)),
            site.memory(),
            site.cancel(),
        );
        let listed = async {
            self.attachments.completed().await;
            self.context.queue_all();
            std::future::pending().await
        };
        tokio::select! {
            () = following => {}
            () = listed => {}
        }
    }
}

#[cfg(test)]
mod tests;
