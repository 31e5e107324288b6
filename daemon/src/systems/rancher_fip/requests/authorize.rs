//! Who asks. The token alone says nothing: everybody gets one.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use fipd_core::{Text, Timestamp};
use fipd_crds::{
    labels::{
        FLEET_NAMESPACE, HARVESTER_CLUSTER_ID_KEY, PREVIOUS_SECRET_UNTIL, SECRET_CLIENT_SECRET,
        SECRET_PREVIOUS, SECRET_PROJECT, project_secret,
    },
    provisioning::Cluster,
};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use secrecy::ExposeSecret as _;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{Requests, failed, turn::Reading};
use crate::{
    clock::parse_rfc3339,
    controller::{client::CallError, kind::SECRET, store::Key},
    fip_v1::{Asker, Claim, Denied},
    systems::rancher_fip::{kinds::PROVISIONED_CLUSTER, rancher::Data},
};

/// How the client id of a cluster's controller begins.
const CLIENT: &str = "client-";

/// The cluster that the token was given to, if the body names no other.
pub fn cluster_of(claim: &Claim) -> Option<&str> {
    let of_token = claim.client.strip_prefix(CLIENT)?;
    let named = claim.cluster.as_deref().unwrap_or(of_token);
    (!of_token.is_empty() && named == of_token).then_some(of_token)
}

/// Whether the Secret is the project's, and the claim knows what is in it, or what was until a while ago. `now`: the wall clock,
/// by which the Secret was written.
pub fn opens(secret: &Secret, claim: &Claim, now: Timestamp) -> bool {
    let value = |key: &str| {
        let bytes = secret.data.as_ref()?.get(key)?;
        Some(bytes.0.as_slice()).filter(|bytes| !bytes.is_empty())
    };
    let until = secret.annotations().get(PREVIOUS_SECRET_UNTIL);
    let until = until.and_then(|until| parse_rfc3339(until));
    let before = until.filter(|until| *until > now);
    let before = before.and_then(|_| value(SECRET_PREVIOUS));
    let given = Sha256::digest(claim.secret.expose_secret().as_bytes());
    // Of the digests, which have one length.
    let same = |expected: &[u8]| bool::from(given.ct_eq(&Sha256::digest(expected)));
    let accepted = [value(SECRET_CLIENT_SECRET), before];
    value(SECRET_PROJECT) == Some(claim.project.as_bytes())
        && accepted.into_iter().flatten().any(same)
}

impl Requests {
    pub(super) async fn verified(&self, claim: &Claim) -> Result<Asker, Denied> {
        let cluster = cluster_of(claim).ok_or_else(Denied::unauthorized)?;
        let known = self.ranchers.leading();
        let all_read = known.iter().all(|(_, data)| data.projects.is_complete());
        let all_read = all_read && !known.is_empty() && self.ranchers.not_leading() == 0;
        let mut compared = false;
        for (management, data) in known {
            if data.clusters.get(&Key::new("", cluster)).is_none() {
                continue;
            }
            for namespace in data.namespaces_of(&claim.project) {
                compared = true;
                if self.admits(&data, claim, cluster, &namespace).await? {
                    return Ok(Asker {
                        management: Text::clone(&management),
                        project: claim.project.clone(),
                        namespace,
                        cluster: cluster.to_owned(),
                    });
                }
            }
        }
        // Where it is not known yet who asks, that is no guess.
        if compared || all_read {
            Err(Denied::unauthorized())
        } else {
            Err(Denied::elsewhere())
        }
    }

    /// Whether the project in this namespace has this secret and this cluster.
    async fn admits(
        &self,
        data: &Arc<Data>,
        claim: &Claim,
        cluster: &str,
        namespace: &str,
    ) -> Result<bool, Denied> {
        let secret = self.secret(data, &claim.project, namespace).await?;
        if !secret.is_some_and(|secret| opens(&secret, claim, self.ipam.wall())) {
            return Ok(false);
        }
        if cluster == namespace {
            return Ok(true);
        }
        if let Some(home) = data.homes.of(cluster) {
            return Ok(home.harvester == namespace && home.project == claim.project);
        }
        if !data.homes.may_be_of(cluster, &claim.project) {
            return Ok(false);
        }
        let host = self.hosts.host_of(data, cluster).await;
        let host = host.map_err(|error| failed(&error))?;
        Ok(host.as_deref() == Some(namespace))
    }

    /// The project's Secret as it is. Calls that wait for one another share a reading that began after they did, also one
    /// that failed.
    async fn secret(
        &self,
        data: &Data,
        project: &str,
        namespace: &str,
    ) -> Result<Option<Secret>, Denied> {
        let target = SECRET.named(namespace, &project_secret(project));
        let key = (
            Text::clone(&data.cluster.0),
            format!("{namespace}/{project}"),
        );
        let mut turn = self.secrets.next(key).await;
        let reading = match turn.take() {
            Some(reading) => reading,
            None => {
                let at = Instant::now();
                let what = data.remote.get(&target).await;
                let what = what.map_err(|error| failed(&error));
                Reading { at, what }
            }
        };
        let secret = reading.what.clone();
        turn.pass_on(reading);
        secret
    }
}

/// What was found counts so long: a guest does not move.
const FRESH: Duration = Duration::from_secs(300);

/// Remembers for a while.
#[derive(Default)]
pub struct HostsOfGuests(Mutex<BTreeMap<(Text, String), Seen>>);

struct Seen {
    host: String,
    at: Instant,
}

impl HostsOfGuests {
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

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn claim(client: &str, cluster: Option<&str>) -> Claim {
        Claim {
            client: client.to_owned(),
            project: "p-a".to_owned(),
            secret: SECRET.into(),
            cluster: cluster.map(str::to_owned),
        }
    }

    fn secret(project: &str, secret: &str) -> Secret {
        let data = [("project", project), ("clientSecret", secret)];
        let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
        Secret {
            data: Some(
                data.into_iter()
                    .map(|(key, value)| (key.to_owned(), bytes(value)))
                    .collect(),
            ),
            ..Secret::default()
        }
    }

    #[test]
    fn defect_27_the_cluster_in_the_body_is_that_of_the_token() {
        let of = |client, cluster| cluster_of(&claim(client, cluster)).map(str::to_owned);
        assert_eq!(of("client-c-m-a", Some("c-m-a")).as_deref(), Some("c-m-a"));
        assert_eq!(of("client-c-m-a", None).as_deref(), Some("c-m-a"));
        assert_eq!(of("client-c-m-a", Some("c-m-b")), None);
        assert_eq!(of("client-c-m-a", Some("")), None);
        assert_eq!(of("c-m-a", Some("c-m-a")), None);
        assert_eq!(of("client-", Some("")), None);
    }

    #[test]
    fn defect_26_the_secret_is_compared_whole_and_with_its_project() {
        let asked = claim("client-c-m-a", None);
        let opens = |secret: &Secret, claim: &Claim| opens(secret, claim, Timestamp(1_000));
        assert!(opens(&secret("p-a", SECRET), &asked));
        assert!(!opens(&secret("p-b", SECRET), &asked));
        assert!(!opens(&secret("p-a", "0123456789abcdef"), &asked));
        assert!(!opens(&Secret::default(), &asked));
        let mut empty = asked;
        empty.secret = String::new().into();
        assert!(!opens(&secret("p-a", ""), &empty));
    }

    #[test]
    fn the_secret_before_counts_for_a_while() {
        let asked = claim("client-c-m-a", None);
        let mut rotated = secret("p-a", "another");
        let data = rotated.data.as_mut().unwrap();
        let before = ByteString(SECRET.as_bytes().to_vec());
        data.insert(SECRET_PREVIOUS.to_owned(), before);
        assert!(!opens(&rotated, &asked, Timestamp(0)), "without an end");
        let until = "1970-01-01T00:00:10Z".to_owned();
        let annotations = [(PREVIOUS_SECRET_UNTIL.to_owned(), until)];
        rotated.metadata.annotations = Some(annotations.into());
        assert!(opens(&rotated, &asked, Timestamp(9_999)));
        assert!(!opens(&rotated, &asked, Timestamp(10_000)));
    }

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
