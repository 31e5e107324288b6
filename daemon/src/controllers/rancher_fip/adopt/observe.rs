//! Looks at a site: complete lists of what counts, and the originals' other objects as far as fipd may read them.

use std::{collections::BTreeSet, fmt::Debug};

use fipd_core::{KeyBytes, SigningKey, Text};
use fipd_crds::{
    floating_ip::{FloatingIP, FloatingIPPool, FloatingIPProjectQuota},
    labels::{
        API_SERVER_LEASE, API_SERVICE, APP_NAMESPACE, CONFIG_NAME, JWT_KEY, JWT_SECRET,
        MANAGER_LEASE, PROJECT_SECRET_PREFIX, WEBHOOK_CONFIGURATION, WEBHOOK_TLS_SECRET,
    },
    management::{Cluster, Project},
};
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::ValidatingWebhookConfiguration,
        apps::v1::Deployment,
        coordination::v1::Lease,
        core::v1::{ConfigMap, Secret, Service},
    },
};
use kube::{Api, Resource, ResourceExt as _, api::ListParams, core::PartialObjectMeta};
use serde::de::DeserializeOwned;

use super::{
    AdoptError,
    found::{
        ApiService, BETWEEN_LOOKS, DeploymentSeen, Duties, Found, LOOKS_ALONE, LeaseSeen,
        LeaseState, Looked, Webhook,
    },
    guest_url::{self, GuestUrl},
    key,
    leftovers::{CLUSTER_MANAGER, DEPLOYMENTS, WEBHOOK},
    strangers,
};
use crate::{
    clusters::{
        CallError, ClusterSession,
        adoption::{complete_list, complete_metadata},
        lenient::Lenient,
    },
    config::{ClusterManager, RancherFipQuotas},
    controllers::{
        objects::Key,
        rancher_fip::{
            api_service::{self, plan::Door},
            clusters::RancherCluster,
            floating_ip::observe::slim,
            site_of,
        },
        remote::{self, Remote, Target},
    },
};

/// Looks at everything.
pub async fn find(session: &ClusterSession, me: &Text, door: &Door) -> Result<Found, AdoptError> {
    session.verify_identity().await?;
    let settings = &session.settings.rancher_fip;
    let mut found = Found {
        duties: Duties {
            leader_elect: settings.leader_elect,
            cluster_manager: settings.cluster_manager.enabled,
            quotas_required: settings.quotas == RancherFipQuotas::Required,
            app_namespace: Text::clone(&settings.app_namespace),
            api_url: door
                .url
                .as_ref()
                .map(|url| format!("{}/v1", url.trim_end_matches('/'))),
        },
        ..Found::default()
    };
    let lists = Lists { session };
    lists.fill(&mut found).await?;
    let looks = Looks {
        remote: Remote::new(session.client.clone()),
        namespace: &settings.app_namespace,
    };
    found.secrets = Some(lists.secrets().await);
    found.leases = looks.leases(session, me).await;
    found.tokens_over = tokens_over(&found.leases, jiff::Timestamp::now());
    found.webhook = looks.webhook().await.transpose();
    let manager = &settings.cluster_manager;
    found.deployments = Some(looks.deployments(manager.enabled).await);
    found.service = Some(looks.service(settings.api_service, door).await);
    if settings.api_service {
        let strangers = api_service::strangers(&looks.remote, looks.namespace).await;
        found.strangers = Some(strangers.map_err(|error| error.to_string()));
    }
    found.guest_url = looks.guest_url(manager).await.transpose();
    found.remains = looks.remains().await;
    found.key = looks.key().await.transpose();
    found.known_keys = session
        .ipam
        .read(|ledger| ledger.keys().map(|key| key.bytes.clone()).collect());
    session.verify_identity().await?;
    found.held_by_others = strangers::held_by_others(&site_of(session.clone()), &found.fips);
    Ok(found)
}

struct Lists<'a> {
    session: &'a ClusterSession,
}

impl Lists<'_> {
    async fn fill(&self, found: &mut Found) -> Result<(), CallError> {
        let (pools, bad) = self.all::<FloatingIPPool>("list pools").await?;
        found.malformed.extend(bad);
        let named = |pool: FloatingIPPool| (pool.name_any(), pool);
        found.pools = pools.into_iter().map(named).collect();
        let (quotas, bad) = self.all::<FloatingIPProjectQuota>("list quotas").await?;
        found.malformed.extend(bad);
        let named = |quota: FloatingIPProjectQuota| (quota.name_any(), quota);
        found.quotas = quotas.into_iter().map(named).collect();
        let (fips, bad) = self.all::<FloatingIP>("list FloatingIPs").await?;
        found.malformed.extend(bad);
        let keyed = |fip: FloatingIP| (Key::of(&fip.metadata), slim(fip));
        found.fips = fips.into_iter().map(keyed).collect();
        let (clusters, bad) = self.all::<Cluster>("list clusters").await?;
        found.malformed.extend(bad);
        let named = |one: Cluster| (one.name_any(), RancherCluster::slim(one));
        found.clusters = clusters.into_iter().map(named).collect();
        let api: Api<Project> = Api::all(self.session.client.clone());
        let keep = |project: PartialObjectMeta<Project>| Some(Key::of(&project.metadata));
        let projects = complete_metadata(self.session, &api, "list projects", keep).await?;
        found.projects = projects.into_iter().collect();
        Ok(())
    }

    /// The objects of a kind, and what is wrong with those that do not fit it.
    async fn all<K>(&self, what: &str) -> Result<(Vec<K>, Vec<(String, String)>), CallError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let api: Api<Lenient<K>> = Api::all(self.session.client.clone());
        let params = ListParams::default();
        let listed = complete_list(self.session, &api, params, what, |one| Some(one.0)).await?;
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for one in listed {
            match one {
                Ok(object) => good.push(object),
                Err(invalid) => {
                    let key = Key::of(&invalid.metadata);
                    let name = format!("{} {}", K::kind(&()), super::addresses::place(&key));
                    bad.push((name, invalid.error));
                }
            }
        }
        Ok((good, bad))
    }

    /// The Secrets of projects, by name alone.
    async fn secrets(&self) -> Looked<BTreeSet<Key>> {
        let api: Api<Secret> = Api::all(self.session.client.clone());
        let keep = |secret: PartialObjectMeta<Secret>| {
            let ours = secret.name_any().starts_with(PROJECT_SECRET_PREFIX);
            ours.then(|| Key::of(&secret.metadata))
        };
        let listed = complete_metadata(self.session, &api, "list Secrets", keep).await;
        let keys = listed.map_err(|error| error.to_string())?;
        Ok(keys.into_iter().collect())
    }
}

struct Looks<'a> {
    remote: Remote,
    /// The app namespace. Webhook and key of the originals are in [`APP_NAMESPACE`] whatever it is.
    namespace: &'a str,
}

impl Looks<'_> {
    /// Who holds the originals' Leases. Where it is another, a second look tells whether it lives.
    async fn leases(&self, session: &ClusterSession, me: &Text) -> Vec<LeaseSeen> {
        let settings = &session.settings.rancher_fip;
        let third = settings.cluster_manager.enabled;
        let names = [
            (MANAGER_LEASE, true),
            (API_SERVER_LEASE, true),
            (&*settings.lease_lock_name, third),
        ];
        let namespace = &settings.lease_lock_namespace;
        let mut seen = Vec::new();
        let mut others = Vec::new();
        for (name, rival) in names {
            let target = target("apis/coordination.k8s.io/v1", "leases", namespace, name);
            let first = self.remote.get::<Lease>(&target).await;
            let state = first_look(first, me);
            if let LeaseState::Held { .. } = &state {
                others.push((seen.len(), target));
            }
            let name = format!("{namespace}/{name}");
            seen.push(LeaseSeen { name, rival, state });
        }
        let looks = if settings.leader_elect {
            1
        } else {
            LOOKS_ALONE
        };
        for _ in 0..looks {
            let silent =
                |lease: &LeaseSeen| matches!(&lease.state, LeaseState::Held { alive: false, .. });
            others.retain(|(place, _)| seen.get(*place).is_some_and(silent));
            if others.is_empty() {
                break;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
            for (place, target) in &others {
                let next = first_look(self.remote.get::<Lease>(target).await, me);
                if let Some(lease) = seen.get_mut(*place) {
                    lease.state = second_look(&lease.state, next);
                }
            }
        }
        seen
    }

    async fn webhook(&self) -> Looked<Option<Webhook>> {
        let api = "apis/admissionregistration.k8s.io/v1";
        let plural = "validatingwebhookconfigurations";
        let target = target(api, plural, "", WEBHOOK_CONFIGURATION);
        let found: Option<ValidatingWebhookConfiguration> = self.get(&target).await?;
        Ok(found.map(|found| webhook(&found)))
    }

    /// Whether the in-cluster name of the original API server leads anywhere, and where it is to.
    async fn service(&self, kept: bool, door: &Door) -> Looked<ApiService> {
        let target = target("api/v1", "services", self.namespace, API_SERVICE);
        let found: Option<Service> = self.get(&target).await?;
        Ok(match (kept, found) {
            (true, _) => ApiService::Kept(api_service::want(door).await),
            (false, Some(_)) => ApiService::Abandoned,
            (false, None) => ApiService::Missing,
        })
    }

    /// Where guests are sent: by the ConfigMap, or by fipd's configuration where it is the cluster manager.
    async fn guest_url(&self, given: &ClusterManager) -> Looked<Option<GuestUrl>> {
        let target = target("api/v1", "configmaps", self.namespace, CONFIG_NAME);
        let found: Option<ConfigMap> = match self.get(&target).await {
            Ok(found) => found,
            Err(why) => return Err(format!("ConfigMap {}/{CONFIG_NAME}: {why}", self.namespace)),
        };
        let data = found.and_then(|found| found.data).unwrap_or_default();
        let over = given.api_server_url.as_ref().filter(|_| given.enabled);
        Ok(guest_url::given(over.map(|url| &**url), &data))
    }

    /// `manages`: whether fipd is the cluster manager.
    async fn deployments(&self, manages: bool) -> Looked<Vec<DeploymentSeen>> {
        let mut all = Vec::new();
        for name in DEPLOYMENTS {
            // The webhook's is hard-wired.
            let namespace = if name == WEBHOOK {
                APP_NAMESPACE
            } else {
                self.namespace
            };
            let target = target("apis/apps/v1", "deployments", namespace, name);
            let found: Option<Deployment> = self.get(&target).await?;
            let replicas = found.map(|found| found.spec.replicas.unwrap_or(1));
            all.extend(replicas.map(|replicas| DeploymentSeen {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                replicas,
                rival: name != CLUSTER_MANAGER || manages,
            }));
        }
        Ok(all)
    }

    /// The certificate of the original webhook, which nothing needs any more. Its CertificateSigningRequest goes by itself.
    async fn remains(&self) -> Vec<Looked<String>> {
        let target = target("api/v1", "secrets", APP_NAMESPACE, WEBHOOK_TLS_SECRET);
        let shown = format!("Secret {APP_NAMESPACE}/{WEBHOOK_TLS_SECRET}");
        let found: Looked<Option<Secret>> = self.get(&target).await;
        let found = found.map(|found| found.map(|_| shown));
        found.transpose().into_iter().collect()
    }

    /// The key that signs the original's tokens, as it is in its Secret.
    async fn key(&self) -> Looked<Option<Result<KeyBytes, key::WrongKey>>> {
        let target = target("api/v1", "secrets", APP_NAMESPACE, JWT_SECRET);
        let found: Option<Secret> = self.get(&target).await?;
        Ok(found.map(|found| {
            let data = found.data.unwrap_or_default();
            let bytes = data.get(JWT_KEY).map(|ByteString(bytes)| &**bytes);
            key::read(bytes.unwrap_or_default()).map(|der| KeyBytes(der.into()))
        }))
    }

    async fn get<K: DeserializeOwned>(&self, target: &Target) -> Looked<Option<K>> {
        let found = self.remote.get(target).await;
        found.map_err(|error| error.to_string())
    }
}

fn target(api: &'static str, plural: &'static str, namespace: &str, name: &str) -> Target {
    Target {
        api,
        plural,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn first_look(lease: Result<Option<Lease>, remote::CallError>, me: &Text) -> LeaseState {
    let spec = match lease {
        Ok(Some(lease)) => lease.spec.unwrap_or_default(),
        Ok(None) => return LeaseState::Missing,
        Err(error) => return LeaseState::Unknown(error.to_string()),
    };
    match spec.holder_identity.unwrap_or_default() {
        holder if holder.is_empty() => LeaseState::Free,
        holder if *holder == **me => LeaseState::Ours {
            since: spec.acquire_time.map(|time| time.0),
        },
        by => LeaseState::Held {
            by,
            renewed: spec.renew_time.map(|time| time.0.to_string()),
            alive: false,
        },
    }
}

/// Whether fipd has served the API for so long that no token of the original counts any more.
fn tokens_over(leases: &[LeaseSeen], now: jiff::Timestamp) -> bool {
    let mut api = leases
        .iter()
        .filter(|lease| lease.name.ends_with(API_SERVER_LEASE));
    let ours = api.find_map(|lease| {
        if let LeaseState::Ours { since } = &lease.state {
            return *since;
        }
        None
    });
    ours.is_some_and(|since| {
        let led = now.duration_since(since).as_millis();
        u64::try_from(led).is_ok_and(|led| led > SigningKey::OVERLAP)
    })
}

/// A holder that has written meanwhile lives.
fn second_look(first: &LeaseState, second: LeaseState) -> LeaseState {
    match second {
        LeaseState::Held { by, renewed, .. } => {
            let now = LeaseState::Held {
                by: by.clone(),
                renewed: renewed.clone(),
                alive: false,
            };
            let alive = now != *first;
            LeaseState::Held { by, renewed, alive }
        }
        LeaseState::Missing
        | LeaseState::Free
        | LeaseState::Ours { .. }
        | LeaseState::Unknown(_) => second,
    }
}

fn webhook(found: &ValidatingWebhookConfiguration) -> Webhook {
    let webhooks = found.webhooks.iter().flatten();
    let is_original = |service: &Option<_>| {
        let service: &Option<k8s_openapi::api::admissionregistration::v1::ServiceReference> =
            service;
        service
            .as_ref()
            .is_some_and(|service| service.name == WEBHOOK && service.namespace == APP_NAMESPACE)
    };
    let mut services = webhooks.clone().map(|one| &one.client_config.service);
    Webhook {
        uid: found.uid().unwrap_or_default(),
        version: found.resource_version().unwrap_or_default(),
        original: services.clone().next().is_some() && services.all(is_original),
        fails: webhooks
            .into_iter()
            .any(|one| one.failure_policy.as_deref() != Some("Ignore")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_holder_lives_that_writes_between_two_looks() {
        let lease = |holder: &str, renewed: &str| {
            let lease = json!({ "metadata": {}, "spec": { "holderIdentity": holder, "renewTime": renewed } });
            first_look(
                serde_json::from_value(lease)
                    .map(Some)
                    .map_err(|_| unreachable!()),
                &"me".into(),
            )
        };
        let (early, late) = ("2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:02.000000Z");
        let alive = |state: LeaseState| matches!(state, LeaseState::Held { alive: true, .. });
        assert!(!alive(lease("other", early)));
        assert!(!alive(second_look(
            &lease("other", early),
            lease("other", early)
        )));
        assert!(alive(second_look(
            &lease("other", early),
            lease("other", late)
        )));
        assert!(alive(second_look(
            &lease("other", early),
            lease("third", early)
        )));
        assert_eq!(
            second_look(&lease("other", early), lease("", late)),
            LeaseState::Free
        );
        assert!(matches!(lease("me", early), LeaseState::Ours { .. }));
        assert_eq!(first_look(Ok(None), &"me".into()), LeaseState::Missing);
    }

    #[test]
    fn only_a_configuration_that_is_all_at_the_originals_service_is_the_originals() {
        let of = |webhooks: serde_json::Value| {
            let object = json!({ "metadata": { "name": "v", "uid": "u", "resourceVersion": "7" }, "webhooks": webhooks });
            webhook(&serde_json::from_value(object).expect("an object"))
        };
        let one = |config: serde_json::Value| json!({ "name": "a.b.c", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": config });
        let service = |name: &str| {
            one(json!({ "service": { "name": name, "namespace": "rancher-fip-manager" } }))
        };
        let url = one(json!({ "url": "https://fipd.example.net/" }));
        let seen = of(json!([service(WEBHOOK), service(WEBHOOK)]));
        assert!(seen.original && seen.fails);
        assert!(!of(json!([service(WEBHOOK), url])).original);
        assert!(!of(json!([service("other")])).original);
        assert!(!of(json!([])).original);
    }
}
