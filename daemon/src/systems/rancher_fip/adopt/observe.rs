//! Looks at a site: complete lists of what counts, and the originals' other objects as far as fipd may read them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
};

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
        core::v1::{ConfigMap, Secret},
    },
};
use kube::{Api, Resource, ResourceExt as _, api::ListParams, core::PartialObjectMeta};
use serde::de::DeserializeOwned;

use super::{
    api_service::{self, ApiService, GuestUrl},
    inventory::{Duties, LeaseSeen, SiteInventory, Webhook},
    key, ledger_view,
    leftovers::{DEPLOYMENTS, WEBHOOK},
};
use crate::{
    adopt::{
        Looked, OriginalWorkload, TakeoverError,
        leases::{self, LOOKS_ALONE, LeaseHolder},
    },
    clusters::{
        CallError, ClusterSession,
        adoption::{complete_list, complete_metadata},
        lenient::Lenient,
    },
    controller::{
        attachments::Attachments,
        client::{Remote, Target},
        endpoint::OwnEndpoint,
        kind::{CONFIG_MAP, DEPLOYMENT, LEASE, SECRET, SERVICE, VALIDATING_WEBHOOK_CONFIGURATION},
        store::Key,
    },
    systems::rancher_fip::{
        api_service::{ServiceInCluster, plan::loopback},
        clusters::RancherCluster,
        floating_ip::observe::view,
        settings::{ClusterManager, RancherFipSettings},
        site_of,
    },
};

/// Looks at everything.
pub async fn find(
    session: &ClusterSession,
    me: &Text,
    endpoint: &OwnEndpoint,
    attachments: Option<Arc<Attachments>>,
) -> Result<SiteInventory, TakeoverError> {
    session.verify_identity().await?;
    let settings = session.settings.of::<RancherFipSettings>();
    let mut found = SiteInventory {
        duties: duties(session, endpoint),
        ..SiteInventory::default()
    };
    let looks = Looks {
        session,
        remote: Remote::new(session.client.clone()),
        namespace: &settings.app_namespace,
    };
    looks.fill(&mut found).await?;
    found.secrets = Some(looks.secrets().await);
    found.leases = looks.leases(me).await;
    found.tokens_over = tokens_over(&found.leases, jiff::Timestamp::now());
    found.webhook = looks.webhook().await.transpose();
    let manager = &settings.cluster_manager;
    found.deployments = Some(looks.deployments().await);
    looks
        .service(settings.api_service, endpoint, &mut found)
        .await;
    found.guest_url = looks.guest_url(manager).await.transpose();
    found.remains = looks.remains().await;
    found.key = looks.key().await.transpose();
    found.known_keys = session
        .ipam
        .read(|ledger| ledger.keys().map(|key| key.bytes.clone()).collect());
    session.verify_identity().await?;
    let site = site_of(session.clone());
    let read = move || {
        found.book = ledger_view::read(&site, &found.pools, attachments.as_deref());
        ledger_view::note_holders(&site, &found.fips, &mut found.book);
        found
    };
    // There may be thousands of pools.
    let found = tokio::task::spawn_blocking(read).await;
    found.map_err(TakeoverError::Unmade)
}

fn duties(session: &ClusterSession, endpoint: &OwnEndpoint) -> Duties {
    let settings = session.settings.of::<RancherFipSettings>();
    let url = endpoint.url.as_ref();
    Duties {
        settings: settings.clone(),
        api_url: url.map(|url| format!("{}/v1", url.trim_end_matches('/'))),
        closed: loopback(endpoint).filter(|_| settings.api_service),
    }
}

/// Looks at objects by their names.
struct Looks<'a> {
    session: &'a ClusterSession,
    remote: Remote,
    /// The app namespace. Webhook and key of the originals are in their own whatever it is.
    namespace: &'a str,
}

impl Looks<'_> {
    /// Who holds the originals' Leases.
    async fn leases(&self, me: &Text) -> Vec<LeaseSeen> {
        let settings = self.session.settings.of::<RancherFipSettings>();
        let names = [
            (MANAGER_LEASE, true),
            (API_SERVER_LEASE, true),
            (&*settings.lease_lock_name, settings.cluster_manager.enabled),
        ];
        let namespace = &settings.lease_lock_namespace;
        let targets = names.map(|(name, _)| LEASE.named(namespace, name));
        let looks = match settings.leader_elect {
            true => 1,
            false => LOOKS_ALONE,
        };
        let holders = leases::look(&self.remote, me, &targets, looks).await;
        let seen = names.into_iter().zip(holders);
        let seen = seen.map(|((name, rival), holder)| LeaseSeen {
            name: format!("{namespace}/{name}"),
            rival,
            holder,
        });
        seen.collect()
    }

    /// What there is of the Service of the original API server, and where it is to lead.
    async fn service(&self, kept: bool, endpoint: &OwnEndpoint, found: &mut SiteInventory) {
        if !kept {
            let target = SERVICE.named(self.namespace, API_SERVICE);
            let seen = self.get(&target).await;
            found.service = Some(seen.map(|found| ApiService { found, want: None }));
            return;
        }
        let service = ServiceInCluster {
            remote: &self.remote,
            namespace: self.namespace,
            endpoint,
        };
        let look = service.look().await;
        found.service = Some(look.map_err(|error| error.to_string()).map(|look| {
            found.unseen_ingresses = look.unseen;
            ApiService {
                found: look.found,
                want: Some(look.want),
            }
        }));
        let strangers = service.strangers().await;
        found.strangers = Some(strangers.map_err(|error| error.to_string()));
    }

    async fn get<K: DeserializeOwned>(&self, target: &Target) -> Looked<Option<K>> {
        let found = self.remote.get(target).await;
        found.map_err(|error| error.to_string())
    }
}

/// Whether fipd has served the API for so long that no token of the original counts any more.
fn tokens_over(leases: &[LeaseSeen], now: jiff::Timestamp) -> bool {
    let mut api = leases
        .iter()
        .filter(|lease| lease.name.ends_with(API_SERVER_LEASE));
    let ours = api.find_map(|lease| {
        let LeaseHolder::Ours { since } = lease.holder else {
            return None;
        };
        since
    });
    ours.is_some_and(|since| {
        let led = now.duration_since(since).as_millis();
        u64::try_from(led).is_ok_and(|led| led > SigningKey::OVERLAP)
    })
}

/// Kind and name of objects that do not fit their schema, and why.
type Malformed = BTreeMap<(String, Key), String>;

impl Looks<'_> {
    async fn fill(&self, found: &mut SiteInventory) -> Result<(), CallError> {
        let bad = &mut found.malformed;
        let named = |pool: FloatingIPPool| (pool.name_any(), pool);
        found.pools = self.all("list pools", bad, named).await?;
        let named = |quota: FloatingIPProjectQuota| (quota.name_any(), quota);
        found.quotas = self.all("list quotas", bad, named).await?;
        let keyed = |fip: FloatingIP| (Key::of(&fip.metadata), view(fip));
        found.fips = self.all("list FloatingIPs", bad, keyed).await?;
        let named = |one: Cluster| (one.name_any(), RancherCluster::view(one));
        found.clusters = self.all("list clusters", bad, named).await?;
        let api: Api<Project> = Api::all(self.session.client.clone());
        let keep = |project: PartialObjectMeta<Project>| Some(Key::of(&project.metadata));
        let projects = complete_metadata(self.session, &api, "list projects", keep).await?;
        found.projects = projects.into_iter().collect();
        Ok(())
    }

    /// The objects of a kind, as `entry` keeps them; `bad` gets those that do not fit it.
    async fn all<K, N, V>(
        &self,
        what: &str,
        bad: &mut Malformed,
        entry: impl Fn(K) -> (N, V),
    ) -> Result<BTreeMap<N, V>, CallError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
        N: Ord,
    {
        let api: Api<Lenient<K>> = Api::all(self.session.client.clone());
        let params = ListParams::default();
        let listed = complete_list(self.session, &api, params, what, |one| Some(one.0)).await?;
        let good = listed.into_iter().filter_map(|one| match one {
            Ok(object) => Some(entry(object)),
            Err(invalid) => {
                let what = (K::kind(&()).into_owned(), Key::of(&invalid.metadata));
                bad.insert(what, invalid.error);
                None
            }
        });
        Ok(good.collect())
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

    async fn webhook(&self) -> Looked<Option<Webhook>> {
        let target = VALIDATING_WEBHOOK_CONFIGURATION.named("", WEBHOOK_CONFIGURATION);
        let found: Option<ValidatingWebhookConfiguration> = self.get(&target).await?;
        Ok(found.map(|found| webhook(&found)))
    }

    /// Where guests are sent: by the ConfigMap, or by fipd's configuration where it is the cluster manager.
    async fn guest_url(&self, given: &ClusterManager) -> Looked<Option<GuestUrl>> {
        let target = CONFIG_MAP.named(self.namespace, CONFIG_NAME);
        let found: Option<ConfigMap> = match self.get(&target).await {
            Ok(found) => found,
            Err(why) => return Err(format!("ConfigMap {}/{CONFIG_NAME}: {why}", self.namespace)),
        };
        let data = found.and_then(|found| found.data).unwrap_or_default();
        let over = given.api_server_url.as_ref().filter(|_| given.enabled);
        Ok(api_service::given(over.map(|url| &**url), &data))
    }

    async fn deployments(&self) -> Looked<Vec<OriginalWorkload>> {
        let mut all = Vec::new();
        for name in DEPLOYMENTS {
            // The webhook's is hard-wired.
            let namespace = if name == WEBHOOK {
                APP_NAMESPACE
            } else {
                self.namespace
            };
            let target = DEPLOYMENT.named(namespace, name);
            let found: Option<Deployment> = self.get(&target).await?;
            all.extend(found.as_ref().map(OriginalWorkload::deployment));
        }
        Ok(all)
    }

    /// The certificate of the original webhook, which nothing needs any more. Its CertificateSigningRequest goes by itself.
    async fn remains(&self) -> Vec<Looked<String>> {
        let target = SECRET.named(APP_NAMESPACE, WEBHOOK_TLS_SECRET);
        let shown = format!("Secret {APP_NAMESPACE}/{WEBHOOK_TLS_SECRET}");
        let found: Looked<Option<Secret>> = self.get(&target).await;
        let found = found.map(|found| found.map(|_| shown));
        found.transpose().into_iter().collect()
    }

    /// The key that signs the original's tokens, as it is in its Secret.
    async fn key(&self) -> Looked<Option<Result<KeyBytes, key::WrongKey>>> {
        let target = SECRET.named(APP_NAMESPACE, JWT_SECRET);
        let found: Option<Secret> = self.get(&target).await?;
        Ok(found.map(|found| {
            let data = found.data.unwrap_or_default();
            let bytes = data.get(JWT_KEY).map(|ByteString(bytes)| &**bytes);
            key::read(bytes.unwrap_or_default()).map(|der| KeyBytes(der.into()))
        }))
    }
}

fn webhook(found: &ValidatingWebhookConfiguration) -> Webhook {
    let mut webhooks = found.webhooks.iter().flatten();
    let mut services = webhooks.clone().map(|one| &one.client_config.service);
    Webhook {
        uid: found.uid().unwrap_or_default(),
        version: found.resource_version().unwrap_or_default(),
        original: services.clone().next().is_some()
            && services.all(|service| {
                let service = service.as_ref();
                service.is_some_and(|one| one.name == WEBHOOK && one.namespace == APP_NAMESPACE)
            }),
        fails: webhooks.any(|one| one.failure_policy.as_deref() != Some("Ignore")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
