//! The way to a guest or to its Harvester cluster: the kubeconfig Secrets that Rancher keeps.

use std::{collections::BTreeMap, sync::Arc};

use fipd_crds::labels::{FLEET_NAMESPACE, KUBECONFIG_KEY, KUBECONFIG_SUFFIX};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use parking_lot::Mutex;

use crate::{
    clusters,
    controller::{
        client::{CallError, Remote},
        kind::{NAMESPACE, SECRET},
    },
    systems::rancher_fip::rancher::Data,
};
use crate::{
    guests::objects::texts,
    systems::rancher_fip::guests::{Stop, plan::Wait},
};

/// The clients in use, by Rancher's id of the cluster.
pub struct Clients {
    map: Mutex<BTreeMap<String, Known>>,
    insecure: bool,
}

/// A client and the kubeconfig it was made of.
struct Known {
    text: Arc<str>,
    remote: Remote,
}

impl Clients {
    /// `insecure` allows kubeconfigs that ask for it.
    pub fn new(insecure: bool) -> Self {
        Self {
            map: Mutex::default(),
            insecure,
        }
    }

    /// A client of the cluster, which answers and is not Rancher's own.
    pub async fn of(&self, rancher: &Data, id: &str, display: &str) -> Result<Remote, Stop> {
        let (origin, text) = kubeconfig(rancher, id, display).await?;
        let remote = match self.known(id, &text) {
            Some(remote) => remote,
            None => {
                let origin = format!("Secret {FLEET_NAMESPACE}/{origin}");
                let client = clusters::client_of(&text, &origin, self.insecure).await;
                let client = client.map_err(|error| Wait::BadKubeconfig(error.to_string()))?;
                let remote = Remote::new(client);
                let known = Known {
                    text: text.into(),
                    remote: remote.clone(),
                };
                self.map.lock().insert(id.to_owned(), known);
                remote
            }
        };
        let answers: Result<Option<Namespace>, _> =
            remote.get(&NAMESPACE.named("", "kube-system")).await;
        match answers {
            Ok(Some(namespace))
                if namespace.metadata.uid.as_deref() == Some(&*rancher.cluster.0) =>
            {
                Err(Wait::WrongCluster.into())
            }
            Ok(_) => Ok(remote),
            Err(CallError::Rejected(_, why)) => Err(Wait::StillDeploying(why).into()),
            Err(error) => Err(Wait::Unreachable(error.to_string()).into()),
        }
    }

    pub fn forget(&self, id: &str) {
        self.map.lock().remove(id);
    }

    /// The kubeconfig and the client that were used last.
    pub fn way(&self, id: &str) -> Option<(Arc<str>, Remote)> {
        let map = self.map.lock();
        let known = map.get(id)?;
        Some((Arc::clone(&known.text), known.remote.clone()))
    }

    #[cfg(test)]
    pub fn know(&self, id: &str, text: &str, remote: Remote) {
        let text = text.into();
        (self.map.lock()).insert(id.to_owned(), Known { text, remote });
    }

    fn known(&self, id: &str, text: &str) -> Option<Remote> {
        let map = self.map.lock();
        let known = map.get(id).filter(|known| *known.text == *text);
        known.map(|known| known.remote.clone())
    }
}

/// The cluster's kubeconfig with the name of its Secret. A display name counts only where no other cluster has it.
async fn kubeconfig(rancher: &Data, id: &str, display: &str) -> Result<(String, String), Stop> {
    let own_name = rancher.names.called(&[display.into()]).as_deref() == Some(id);
    let mut stems = vec![id];
    stems.extend(Some(display).filter(|display| own_name && *display != id && !display.is_empty()));
    for stem in stems {
        let name = format!("{stem}{KUBECONFIG_SUFFIX}");
        if !fipd_crds::names::is_object_name(&name) {
            continue;
        }
        let target = SECRET.named(FLEET_NAMESPACE, &name);
        let Some(secret) = rancher.remote.get::<Secret>(&target).await? else {
            continue;
        };
        return match texts(&secret).remove(KUBECONFIG_KEY) {
            Some(text) if !text.is_empty() => Ok((name, text)),
            Some(_) | None => Err(Wait::BadKubeconfig(format!(
                "Secret {FLEET_NAMESPACE}/{name} has no text under {KUBECONFIG_KEY}"
            ))
            .into()),
        };
    }
    Err(Wait::NoKubeconfig(format!("{FLEET_NAMESPACE}/{id}{KUBECONFIG_SUFFIX}")).into())
}
