//! Which Harvester cluster a guest cluster runs on: its projects are charged for the guest's Services.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use fipd_core::Text;
use fipd_crds::{
    labels::{FLEET_NAMESPACE, HARVESTER_CLUSTER_ID_KEY},
    provisioning::Cluster,
};
use k8s_openapi::api::core::v1::Secret;
use parking_lot::Mutex;

use crate::{
    controller::{client::CallError, kind::SECRET, store::Key},
    systems::rancher_fip::{kinds::PROVISIONED_CLUSTER, rancher::Data},
};

/// What was found counts so long: a guest does not move.
const FRESH: Duration = Duration::from_secs(300);

/// Remembers for a while.
#[derive(Default)]
pub struct Guests(Mutex<BTreeMap<(Text, String), Seen>>);

struct Seen {
    host: String,
    at: Instant,
}

impl Guests {
    /// Rancher's id of the Harvester cluster; `None`: it is on none, as far as is known.
    pub async fn host_of(&self, data: &Data, cluster: &str) -> Result<Option<String>, CallError> {
        let key = (Text::clone(&data.cluster.0), cluster.to_owned());
        if let Some(seen) = self.0.lock().get(&key)
            && seen.at.elapsed() < FRESH
        {
            return Ok(Some(seen.host.clone()));
        }
        let host = read(data, cluster).await?;
        let at = Instant::now();
        let mut known = self.0.lock();
        match host.clone() {
            Some(host) => known.insert(key, Seen { host, at }),
            None => known.remove(&key),
        };
        Ok(host)
    }
}

async fn read(data: &Data, cluster: &str) -> Result<Option<String>, CallError> {
    let known = data.clusters.get(&Key::new("", cluster));
    let display = known.map_or_else(String::new, |one| one.display_name.clone());
    let only = data.names.called(&[display.as_str().into()]).as_deref() == Some(cluster);
    let names = [cluster, &display].into_iter();
    for name in names.filter(|name| !name.is_empty()) {
        let target = PROVISIONED_CLUSTER.named(FLEET_NAMESPACE, name);
        let Some(found) = data.remote.get::<Cluster>(&target).await? else {
            continue;
        };
        if !is_same(&found, cluster, name == cluster || only) {
            continue;
        }
        let Some((namespace, name)) = found.cloud_credential() else {
            return Ok(None);
        };
        let target = SECRET.named(namespace, name);
        let secret = data.remote.get::<Secret>(&target).await?;
        return Ok(secret.as_ref().and_then(host));
    }
    Ok(None)
}

/// Whether the provisioning cluster is this one: by the id it shows, else by its name, where that is nobody else's.
fn is_same(found: &Cluster, cluster: &str, by_name: bool) -> bool {
    match found.management_id() {
        Some(id) => id == cluster,
        None => by_name,
    }
}

/// The Harvester cluster of a cloud credential.
fn host(credential: &Secret) -> Option<String> {
    let value = credential.data.as_ref()?.get(HARVESTER_CLUSTER_ID_KEY)?;
    let id = std::str::from_utf8(&value.0).ok()?.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_guest_is_known_by_its_id_before_its_name() {
        let found = |status| -> Cluster {
            serde_json::from_value(json!({
                "metadata": { "name": "prod" }, "spec": {}, "status": status,
            }))
            .unwrap()
        };
        let shown = found(json!({ "clusterName": "c-m-a" }));
        assert!(is_same(&shown, "c-m-a", false));
        assert!(!is_same(&shown, "c-m-b", true), "another of that name");
        assert!(is_same(&found(json!({})), "c-m-a", true));
        assert!(!is_same(&found(json!({})), "c-m-a", false));
    }

    #[test]
    fn a_credential_names_its_host() {
        let credential = |id: &str| Secret {
            data: Some(BTreeMap::from([(
                HARVESTER_CLUSTER_ID_KEY.to_owned(),
                ByteString(id.as_bytes().to_vec()),
            )])),
            ..Secret::default()
        };
        assert_eq!(host(&credential("c-m-h\n")).as_deref(), Some("c-m-h"));
        assert_eq!(host(&credential("")), None);
        assert_eq!(host(&Secret::default()), None);
    }
}
