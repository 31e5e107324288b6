//! Objects that rules come of, as users make them.

use anyhow::Result;
use fipd_crds::ip_rule::IPRule;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Makes an object.
pub async fn create<K>(api: &Api<K>, object: Value) -> Result<()>
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let object: K = serde_json::from_value(object)?;
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

/// Makes an `IPRule`.
pub async fn rule(rules: &Api<IPRule>, name: &str, spec: Value) -> Result<()> {
    let object = json!({
        "apiVersion": "api.operator.brtrm.dev/v1alpha1", "kind": "IPRule", "metadata": { "name": name }, "spec": spec,
    });
    create(rules, object).await
}

/// Makes a Service with an address of its own that a load balancer gave it.
pub async fn service(
    services: &Api<Service>,
    name: &str,
    cluster_ip: &str,
    vip: &str,
) -> Result<()> {
    let object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "test/none", "clusterIP": cluster_ip, "ports": [{ "port": 80 }],
        },
    });
    create(services, object).await?;
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": vip }] } } });
    let patch = Patch::Merge(status);
    services
        .patch_status(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}
