//! The networks of Harvester clusters: what their NetworkAttachmentDefinitions say of VLAN and physical network.
//!
//! Each Harvester cluster of which a pool names a network is watched once, for all pools. What was read counts until the
//! cluster says otherwise, also while it does not answer.

mod parse;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fipd_core::Text;
use fipd_crds::network_attachment::NetworkAttachmentDefinition;
use futures::future::BoxFuture;
use kube::{Api, Client, api::ListParams, core::PartialObjectMeta, runtime::watcher};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    client::DEADLINE,
    kind::Kind,
    store::{Key, Objects, Observed, follow},
};
use crate::clusters::{explain, memory::Memory, short};

use parse::parse;
pub use parse::{Attachment, AttachmentFault};

pub const NETWORK_ATTACHMENT: Kind = Kind::namespaced(
    "apis/k8s.cni.cncf.io/v1",
    "network-attachment-definitions",
    "NetworkAttachmentDefinition",
);

/// A cluster whose watch ended is tried again after this time.
const RETRY: Duration = Duration::from_secs(10);
/// Whether a cluster is still reached in the same way, and still lets fipd read, is asked after this time.
const CHECK: Duration = Duration::from_secs(60);
/// A first list that takes longer is reported.
const LISTED_WITHIN: Duration = Duration::from_secs(15);

/// Where Harvester keeps the networks of all namespaces, which only admins of the cluster may write.
const SHARED: [&str; 2] = ["default", "harvester-public"];
/// Namespaces that a message names.
const NAMED: usize = 5;

/// A network of a Harvester cluster, as an object names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HarvesterNetwork<'a> {
    /// Any name of the cluster.
    pub cluster: &'a str,
    /// Without namespace.
    pub network: &'a str,
}

/// The ways to Harvester clusters.
pub trait HarvesterAccess: Send + Sync {
    /// The id of the Harvester cluster of this name; `None`: none is called so.
    fn find(&self, cluster: &str) -> Result<Option<Text>, String>;

    fn way<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<HarvesterWay, String>>;
}

/// A way to a Harvester cluster.
pub struct HarvesterWay {
    pub client: Client,
    /// What the client was made of. Another one means another way.
    pub kubeconfig: Arc<str>,
    /// Cancelled once the client is of no use any more.
    pub over: CancellationToken,
}

/// What is known of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachmentLookup {
    /// It is not of a Harvester cluster.
    Foreign,
    Known(Attachment),
    /// Why it is not known.
    Unread(AttachmentFault),
    /// It was not read yet.
    Pending,
}

/// The networks of the Harvester clusters that pools name.
pub struct Attachments {
    access: Box<dyn HarvesterAccess>,
    memory: Memory,
    /// By id.
    harvesters: Mutex<BTreeMap<Text, Arc<HarvesterNetworks>>>,
    /// What Harvester clusters were called. One that is called otherwise now, or has lost its label, is still one.
    called: Mutex<BTreeSet<Text>>,
    touched: Mutex<TouchedNetworks>,
    wanted: Notify,
    changes: watch::Sender<u64>,
}

/// The networks that may be something else than before.
#[derive(Debug, Default)]
pub struct TouchedNetworks {
    everything: bool,
    /// Ids of clusters.
    harvesters: BTreeSet<Text>,
    /// By id of the cluster and name.
    networks: BTreeSet<(Text, Text)>,
}

type ReadAttachment = Result<Attachment, AttachmentFault>;

/// What is known of the networks of a cluster.
struct HarvesterNetworks {
    objects: Arc<Objects<ReadAttachment>>,
    state: Mutex<ReadState>,
    /// The namespaces of each name.
    names: Mutex<BTreeMap<Text, BTreeSet<Text>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ReadState {
    Pending,
    Read,
    Unread(AttachmentFault),
}

impl Attachments {
    /// What is kept is charged to `memory`.
    pub fn new(access: Box<dyn HarvesterAccess>, memory: Memory) -> Arc<Self> {
        Arc::new(Self {
            access,
            memory,
            harvesters: Mutex::default(),
            called: Mutex::default(),
            touched: Mutex::default(),
            wanted: Notify::new(),
            changes: watch::Sender::new(0),
        })
    }

    pub fn lookup(&self, of: HarvesterNetwork<'_>) -> AttachmentLookup {
        let id = match self.access.find(of.cluster) {
            Ok(Some(id)) => id,
            Ok(None) if self.called.lock().contains(of.cluster) => {
                return AttachmentLookup::Unread(AttachmentFault::ClusterGone);
            }
            Ok(None) => return AttachmentLookup::Foreign,
            Err(why) => return AttachmentLookup::Unread(AttachmentFault::Unreachable(why)),
        };
        let harvester = self.harvesters.lock().get(&id).cloned();
        harvester.map_or(AttachmentLookup::Pending, |one| one.lookup(of.network))
    }

    /// Has the network read, and its changes reported from now on.
    pub fn want(&self, of: HarvesterNetwork<'_>) {
        let Ok(Some(id)) = self.access.find(of.cluster) else {
            return;
        };
        self.called.lock().insert(of.cluster.into());
        let mut harvesters = self.harvesters.lock();
        harvesters.entry(id).or_insert_with(|| {
            self.wanted.notify_one();
            HarvesterNetworks::new()
        });
    }

    /// Changes whenever a network may be something else.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What may be something else since this was asked last.
    pub fn take_touched(&self) -> TouchedNetworks {
        std::mem::take(&mut *self.touched.lock())
    }

    /// Whether the network is one of those.
    pub fn is_touched(&self, touched: &TouchedNetworks, of: HarvesterNetwork<'_>) -> bool {
        let Ok(Some(id)) = self.access.find(of.cluster) else {
            return touched.everything;
        };
        touched.everything
            || touched.harvesters.contains(&id)
            || touched.networks.contains(&(id, of.network.into()))
    }

    /// Reports that clusters may be called otherwise, or be Harvester clusters now.
    pub fn touch(&self) {
        self.note(|touched| touched.everything = true);
    }

    fn note(&self, note: impl FnOnce(&mut TouchedNetworks)) {
        note(&mut self.touched.lock());
        self.changes.send_modify(|count| *count += 1);
    }

    /// Watches the clusters of the networks that are wanted. Does not end.
    pub async fn follow(self: Arc<Self>) {
        let mut watched = JoinSet::new();
        let mut ids = BTreeSet::new();
        loop {
            let all = self.harvesters.lock().clone();
            for (id, harvester) in all {
                if ids.insert(Text::clone(&id)) {
                    watched.spawn(Arc::clone(&self).watch(id, harvester));
                }
            }
            tokio::select! {
                () = self.wanted.notified() => {}
                Some(Ok(id)) = watched.join_next() => {
                    ids.remove(&id);
                    self.harvesters.lock().remove(&id);
                    self.touch();
                }
            }
        }
    }

    /// Watches a cluster until it is gone.
    async fn watch(self: Arc<Self>, id: Text, harvester: Arc<HarvesterNetworks>) -> Text {
        while self.access.find(&id).is_ok_and(|found| found.is_some()) {
            let followed = match self.access.way(&id).await {
                Ok(way) => self.follow_over(&id, &harvester, &way).await,
                Err(why) => Err(AttachmentFault::Unreachable(why)),
            };
            if let Err(fault) = followed {
                self.failed(&id, &harvester, fault);
            }
            tokio::time::sleep(RETRY).await;
        }
        id
    }

    /// Watches a cluster until the way to it is another.
    async fn follow_over(
        &self,
        id: &Text,
        harvester: &HarvesterNetworks,
        way: &HarvesterWay,
    ) -> Result<(), AttachmentFault> {
        probe(&way.client).await?;
        let objects = &harvester.objects;
        let following = follow(
            NETWORK_ATTACHMENT.all_as(way.client.clone()),
            watcher::Config::default(),
            Arc::clone(objects),
            |definition: NetworkAttachmentDefinition| Some(parse(&definition)),
            |key| {
                harvester.index(key);
                let network = (Text::clone(id), Text::clone(&key.name));
                self.note(|touched| touched.networks.extend([network]));
            },
            self.memory.clone(),
            CancellationToken::new(),
        );
        let checking = async {
            let listed = tokio::time::timeout(LISTED_WITHIN, objects.completed());
            if listed.await.is_err() {
                let within = LISTED_WITHIN.as_secs();
                let why = format!("the list is not complete after {within} s");
                self.failed(id, harvester, AttachmentFault::Unreachable(why));
                objects.completed().await;
            }
            self.set(id, harvester, ReadState::Read);
            loop {
                tokio::time::sleep(CHECK).await;
                match probe(&way.client).await {
                    Ok(()) | Err(AttachmentFault::Unreachable(_)) => {}
                    Err(fault) => return Err(fault),
                }
                let now = self.access.way(id).await;
                if now.is_ok_and(|now| now.kubeconfig != way.kubeconfig) {
                    return Ok(());
                }
            }
        };
        tokio::select! {
            () = following => Ok(()),
            checked = checking => checked,
            () = way.over.cancelled() => Ok(()),
        }
    }

    fn failed(&self, id: &Text, harvester: &HarvesterNetworks, fault: AttachmentFault) {
        let read = *harvester.state.lock() == ReadState::Read;
        if read && matches!(fault, AttachmentFault::Unreachable(_)) {
            return;
        }
        let (served, text) = (fault != AttachmentFault::Unserved, fault.to_string());
        if self.set(id, harvester, ReadState::Unread(fault)) && served {
            tracing::warn!(harvester = %id, "NetworkAttachmentDefinitions are not read: {text}");
        }
    }

    /// Whether that is news.
    fn set(&self, id: &Text, harvester: &HarvesterNetworks, state: ReadState) -> bool {
        let before = std::mem::replace(&mut *harvester.state.lock(), state.clone());
        let changed = before != state;
        if changed {
            self.note(|touched| touched.harvesters.extend([Text::clone(id)]));
        }
        changed
    }
}

impl HarvesterNetworks {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            objects: Objects::new(),
            state: Mutex::new(ReadState::Pending),
            names: Mutex::default(),
        })
    }

    /// A definition appeared, changed or went.
    fn index(&self, key: &Key) {
        let mut names = self.names.lock();
        if self.objects.seen(key).is_some() {
            let namespaces = names.entry(Text::clone(&key.name)).or_default();
            namespaces.insert(Text::clone(&key.namespace));
        } else if let Some(namespaces) = names.get_mut(&key.name) {
            namespaces.remove(&key.namespace);
            if namespaces.is_empty() {
                names.remove(&key.name);
            }
        }
    }

    /// Those of this name, by namespace.
    fn named(&self, network: &str) -> BTreeMap<Text, Observed<ReadAttachment>> {
        let names = self.names.lock();
        let namespaces = names.get(network).into_iter().flatten();
        namespaces
            .filter_map(|namespace| {
                let seen = self.objects.seen(&Key::new(namespace, network))?;
                Some((Text::clone(namespace), seen))
            })
            .collect()
    }

    fn lookup(&self, network: &str) -> AttachmentLookup {
        match &*self.state.lock() {
            ReadState::Pending => AttachmentLookup::Pending,
            ReadState::Unread(fault) => AttachmentLookup::Unread(fault.clone()),
            ReadState::Read => one_of(self.named(network)),
        }
    }
}

/// Networks of one name in several namespaces must be the same link, unless one of them is where only admins write.
fn one_of(mut found: BTreeMap<Text, Observed<ReadAttachment>>) -> AttachmentLookup {
    let is_shared = |namespace: &Text| SHARED.contains(&&**namespace);
    if found.keys().filter(|one| is_shared(one)).count() == 1 {
        found.retain(|namespace, _| is_shared(namespace));
    }
    let shown: Vec<&str> = found.keys().map(|one| &**one).take(NAMED + 1).collect();
    let namespaces = match shown.get(..NAMED) {
        Some(some) if shown.len() > NAMED => format!("{}, ...", some.join(", ")),
        Some(_) | None => shown.join(", "),
    };
    let read = found.into_values().map(|one| match one {
        Observed::Parsed(parsed) => (*parsed).clone(),
        Observed::Malformed(object) => Err(AttachmentFault::Malformed(short(&object.error))),
    });
    let all: Result<Vec<Attachment>, AttachmentFault> = read.collect();
    match all.as_deref() {
        Err(fault) => AttachmentLookup::Unread(fault.clone()),
        Ok([]) => AttachmentLookup::Unread(AttachmentFault::Absent),
        Ok([first, others @ ..]) if others.iter().all(|other| other.is_link_of(first)) => {
            let named: BTreeSet<_> = all.iter().flatten().filter_map(|one| one.gateway).collect();
            AttachmentLookup::Known(Attachment {
                gateway: named.first().copied().filter(|_| named.len() == 1),
                ..first.clone()
            })
        }
        Ok(_) => AttachmentLookup::Unread(AttachmentFault::Several(namespaces)),
    }
}

/// Whether fipd may list the definitions of a cluster.
async fn probe(client: &Client) -> Result<(), AttachmentFault> {
    let api: Api<PartialObjectMeta<NetworkAttachmentDefinition>> = Api::all(client.clone());
    let first = ListParams::default().limit(1);
    match tokio::time::timeout(DEADLINE, api.list(&first)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(AttachmentFault::Unserved),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
            Err(AttachmentFault::Forbidden(short(&status.message)))
        }
        Ok(Err(error)) => Err(AttachmentFault::Unreachable(explain(&error))),
        Err(_) => {
            let why = format!("no answer within {} s", DEADLINE.as_secs());
            Err(AttachmentFault::Unreachable(why))
        }
    }
}

#[cfg(test)]
mod tests;
