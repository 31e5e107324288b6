//! What is left of the original programs beside their Leases.

use fipd_core::KeyBytes;
use fipd_crds::labels::{
    APP_NAMESPACE, CONFIG_NAME, JWT_KEY, JWT_SECRET, WEBHOOK_CONFIGURATION, WEBHOOK_TLS_SECRET,
};
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::ValidatingWebhookConfiguration,
        apps::v1::Deployment,
        core::v1::{ConfigMap, Secret},
    },
};
use kube::ResourceExt as _;

use super::Looks;
use crate::{
    adopt::{Looked, OriginalWorkload},
    controller::kind::{CONFIG_MAP, DEPLOYMENT, SECRET, VALIDATING_WEBHOOK_CONFIGURATION},
    systems::rancher_fip::{
        adopt::{
            guest_url::{self, GuestUrl},
            inventory::Webhook,
            key,
            leftovers::{DEPLOYMENTS, WEBHOOK},
        },
        settings::ClusterManager,
    },
};

impl Looks<'_> {
    pub async fn webhook(&self) -> Looked<Option<Webhook>> {
        let target = VALIDATING_WEBHOOK_CONFIGURATION.named("", WEBHOOK_CONFIGURATION);
        let found: Option<ValidatingWebhookConfiguration> = self.get(&target).await?;
        Ok(found.map(|found| webhook(&found)))
    }

    /// Where guests are sent: by the ConfigMap, or by fipd's configuration where it is the cluster manager.
    pub async fn guest_url(&self, given: &ClusterManager) -> Looked<Option<GuestUrl>> {
        let target = CONFIG_MAP.named(self.namespace, CONFIG_NAME);
        let found: Option<ConfigMap> = match self.get(&target).await {
            Ok(found) => found,
            Err(why) => return Err(format!("ConfigMap {}/{CONFIG_NAME}: {why}", self.namespace)),
        };
        let data = found.and_then(|found| found.data).unwrap_or_default();
        let over = given.api_server_url.as_ref().filter(|_| given.enabled);
        Ok(guest_url::given(over.map(|url| &**url), &data))
    }

    pub async fn deployments(&self) -> Looked<Vec<OriginalWorkload>> {
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
    pub async fn remains(&self) -> Vec<Looked<String>> {
        let target = SECRET.named(APP_NAMESPACE, WEBHOOK_TLS_SECRET);
        let shown = format!("Secret {APP_NAMESPACE}/{WEBHOOK_TLS_SECRET}");
        let found: Looked<Option<Secret>> = self.get(&target).await;
        let found = found.map(|found| found.map(|_| shown));
        found.transpose().into_iter().collect()
    }

    /// The key that signs the original's tokens, as it is in its Secret.
    pub async fn key(&self) -> Looked<Option<Result<KeyBytes, key::WrongKey>>> {
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
