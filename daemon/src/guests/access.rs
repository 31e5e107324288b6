//! How guests and their Harvester clusters are reached: by the kubeconfig Secrets that Rancher keeps.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::ClusterId;
use fipd_crds::labels::{FLEET_NAMESPACE, KUBECONFIG_KEY, KUBECONFIG_SUFFIX};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{GuestBoard, GuestUnready, Stop, names::ClusterNames, objects::texts};
use crate::{
    clusters::{self, ClusterSession},
    controller::{
        client::{CallError, Remote},
        kind::{NAMESPACE, SECRET},
    },
};

/// Kubeconfigs that are read at once: each read takes a connection to Rancher of its own, some 100 kB.
const READS: usize = 16;

/// What all systems share of the guests of one Rancher.
pub struct GuestLinks {
    /// The clients in use, by Rancher's id of the cluster and by whether they may be insecure.
    clients: Mutex<BTreeMap<(String, bool), GuestClient>>,
    turns: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    reads: Semaphore,
}

impl Default for GuestLinks {
    fn default() -> Self {
        Self {
            clients: Mutex::default(),
            turns: Mutex::default(),
            reads: Semaphore::new(READS),
        }
    }
}

/// A client and the kubeconfig it was made of.
struct GuestClient {
    kubeconfig: Arc<str>,
    remote: Remote,
    /// Nobody can make it again of the kubeconfig: it is a stand-in.
    #[cfg(test)]
    stands_in: bool,
}

/// What the kubeconfig Secret of a guest may be called after, besides its id.
#[derive(Clone, Copy, Debug)]
pub enum GuestName<'a> {
    /// Its display name, where no other cluster has that.
    Displayed(&'a str),
    /// The name of the provisioning Cluster in `fleet-default` that Rancher made it of.
    Provisioned(&'a str),
}

impl<'a> From<&'a String> for GuestName<'a> {
    fn from(display: &'a String) -> Self {
        Self::Displayed(display)
    }
}

/// The way of one system to the guests of one Rancher.
pub struct GuestAccess {
    pub links: Arc<GuestLinks>,
    pub rancher: Remote,
    /// Of Rancher's own cluster.
    pub cluster: ClusterId,
    pub names: Arc<ClusterNames>,
    /// Allows kubeconfigs that ask for it.
    pub insecure: bool,
}

impl GuestAccess {
    /// Over the connection to a Rancher.
    pub fn new(
        session: &ClusterSession,
        board: &GuestBoard,
        names: Arc<ClusterNames>,
        insecure: bool,
    ) -> Self {
        Self {
            links: board.links(&session.name),
            rancher: Remote::new(session.client.clone()),
            cluster: session.id.clone(),
            names,
            insecure,
        }
    }

    /// A client of the cluster, which answers and is not Rancher's own.
    pub async fn client(
        &self,
        id: &str,
        name: impl Into<GuestName<'_>>,
    ) -> Result<Remote, Stop<GuestUnready>> {
        Ok(self.link(id, name).await?.1)
    }

    /// The same with its kubeconfig. One that does not answer is no longer kept.
    pub async fn link(
        &self,
        id: &str,
        name: impl Into<GuestName<'_>>,
    ) -> Result<(Arc<str>, Remote), Stop<GuestUnready>> {
        let linked = self.reach(id, name.into()).await;
        if linked.is_err() {
            self.rest(id);
        }
        linked
    }

    async fn reach(
        &self,
        id: &str,
        name: GuestName<'_>,
    ) -> Result<(Arc<str>, Remote), Stop<GuestUnready>> {
        let (origin, text) = self.kubeconfig(id, name).await?;
        let remote = match self.known(id, &text) {
            Some(remote) => remote,
            None => {
                let origin = format!("Secret {FLEET_NAMESPACE}/{origin}");
                let client = clusters::client_of(&text, &origin, self.insecure).await;
                let remote = Remote::new(client.map_err(GuestUnready::BadKubeconfig)?);
                let client = GuestClient {
                    kubeconfig: text.as_str().into(),
                    remote: remote.clone(),
                    #[cfg(test)]
                    stands_in: false,
                };
                self.links.clients.lock().insert(self.key(id), client);
                remote
            }
        };
        let answers: Result<Option<Namespace>, _> =
            remote.get(&NAMESPACE.named("", "kube-system")).await;
        match answers {
            Ok(Some(namespace)) if namespace.metadata.uid.as_deref() == Some(&*self.cluster.0) => {
                Err(GuestUnready::WrongCluster.into())
            }
            Ok(_) => Ok((text.into(), remote)),
            Err(CallError::Rejected(_, why)) => Err(GuestUnready::StillDeploying(why).into()),
            Err(error) => Err(GuestUnready::Unreachable(error.to_string()).into()),
        }
    }

    /// The kubeconfig and the client that were used last.
    pub fn last(&self, id: &str) -> Option<(Arc<str>, Remote)> {
        let clients = self.links.clients.lock();
        let client = clients.get(&self.key(id))?;
        Some((Arc::clone(&client.kubeconfig), client.remote.clone()))
    }

    /// Ends a connection that is not used for a while, or never again: each takes about 100 kB.
    pub fn rest(&self, id: &str) {
        let mut clients = self.links.clients.lock();
        #[cfg(test)]
        clients.retain(|key, client| *key != self.key(id) || client.stands_in);
        #[cfg(not(test))]
        clients.remove(&self.key(id));
    }

    /// Who changes the releases of a guest holds it.
    pub fn turn(&self, id: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.links.turns.lock();
        Arc::clone(turns.entry(id.to_owned()).or_default())
    }

    pub fn forget_turn(&self, id: &str) {
        // One that is in use stays, or there could be two.
        let mut turns = self.links.turns.lock();
        turns.retain(|of, turn| of != id || Arc::strong_count(turn) > 1);
    }

    fn known(&self, id: &str, kubeconfig: &str) -> Option<Remote> {
        let (known, remote) = self.last(id)?;
        (*known == *kubeconfig).then_some(remote)
    }

    fn key(&self, id: &str) -> (String, bool) {
        (id.to_owned(), self.insecure)
    }

    /// The cluster's kubeconfig with the name of its Secret.
    async fn kubeconfig(
        &self,
        id: &str,
        name: GuestName<'_>,
    ) -> Result<(String, String), Stop<GuestUnready>> {
        let _one_of_few = self.links.reads.acquire().await;
        let is_called =
            |display: &&str| self.names.called(&[(*display).into()]).as_deref() == Some(id);
        let name = match name {
            GuestName::Displayed(display) => Some(display).filter(is_called),
            GuestName::Provisioned(name) => Some(name),
        };
        let name = name.filter(|name| *name != id && !name.is_empty());
        for stem in [Some(id), name].into_iter().flatten() {
            let name = format!("{stem}{KUBECONFIG_SUFFIX}");
            if !fipd_crds::names::is_object_name(&name) {
                continue;
            }
            let target = SECRET.named(FLEET_NAMESPACE, &name);
            let Some(secret) = self.rancher.get::<Secret>(&target).await? else {
                continue;
            };
            return match texts(&secret).remove(KUBECONFIG_KEY) {
                Some(text) if !text.is_empty() => Ok((name, text)),
                Some(_) | None => Err(GuestUnready::BadKubeconfig(format!(
                    "Secret {FLEET_NAMESPACE}/{name} has no text under {KUBECONFIG_KEY}"
                ))
                .into()),
            };
        }
        let name = format!("{FLEET_NAMESPACE}/{id}{KUBECONFIG_SUFFIX}");
        Err(GuestUnready::NoKubeconfig(name).into())
    }
}

#[cfg(test)]
pub mod testing {
    //! The guests of a Rancher with canned answers.

    use super::*;

    impl GuestAccess {
        /// Makes a client the one of this kubeconfig.
        pub fn keep(&self, id: &str, kubeconfig: &str, remote: Remote) {
            let client = GuestClient {
                kubeconfig: kubeconfig.into(),
                remote,
                stands_in: true,
            };
            self.links.clients.lock().insert(self.key(id), client);
        }
    }

    pub fn access(rancher: Remote) -> Arc<GuestAccess> {
        Arc::new(GuestAccess {
            links: Arc::default(),
            rancher,
            cluster: ClusterId("rancher".into()),
            names: Arc::default(),
            insecure: false,
        })
    }
}
