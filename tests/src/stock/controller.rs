//! A stand-in for the stock LB controller of a guest cluster, and for PureLB behind it: it finds everything in the guest, as
//! the original does, and leaves there what the original leaves.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result, bail, ensure};
use fipd_crds::labels::{
    APP_NAMESPACE, CA_KEY, CA_SECRET, FLOATINGIP, FLOATINGIP_CLEANUP, INTERFACE_MAPPINGS,
    PROJECT_ID, PROJECT_NAME, PURELB_AGGREGATION, PURELB_SERVICE_GROUP, SECRET_API_URL,
    SECRET_CLIENT_SECRET, SECRET_CLUSTER, SECRET_POOL, SERVICE, SERVICE_NAMESPACE_SELECTOR,
    STATIC_IP, STATIC_NETWORK, pool_object, project_secret,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::FipClient;

const MANAGER: &str = "rancher-fip-lb-controller";

/// Serves the Services of one cluster when it is told to.
pub struct LbController {
    client: Client,
}

/// What a Service was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    pub address: IpAddr,
    pub subnet: String,
}

impl LbController {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Asks for the address of a Service through the REST API, and notes in the cluster what was answered.
    pub async fn serve(&self, namespace: &str, name: &str) -> Result<Served> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), namespace);
        let service = services.get(name).await?;
        let project = self.project(namespace).await?;
        let access = self.secret(&project_secret(&project)).await?;
        let field = |key: &str| access.get(key).with_context(|| format!("{key} is missing"));
        let marks = service.annotations();
        let pool = match marks.get(STATIC_NETWORK) {
            Some(named) => named,
            None => field(SECRET_POOL)?,
        };
        let mappings: Api<ConfigMap> = Api::namespaced(self.client.clone(), APP_NAMESPACE);
        let mappings = mappings.get(INTERFACE_MAPPINGS).await?;
        let known = mappings.data.unwrap_or_default().contains_key(pool);
        ensure!(known, "{INTERFACE_MAPPINGS} has no pool {pool}");
        let ca = self.secret(CA_SECRET).await?;
        let ca = ca.get(CA_KEY).context("cacerts has a certificate")?;
        let mut api = FipClient::new(
            field(SECRET_API_URL)?,
            ca.as_bytes(),
            field(SECRET_CLUSTER)?,
            &project,
            field(SECRET_CLIENT_SECRET)?,
        )?;
        api.namespace = namespace.to_owned();
        let wanted = marks.get(STATIC_IP).map_or("", String::as_str);
        let (code, answer) = api
            .request(name, pool, wanted)
            .await
            .map_err(anyhow::Error::msg)?;
        if code != 200 {
            bail!("{code}: {answer}");
        }
        let served = verify(&answer, &api, pool, name)?;
        self.announce(&services, &service, &served).await?;
        Ok(served)
    }

    /// The namespace of the program says it, else that of the Service.
    async fn project(&self, namespace: &str) -> Result<String> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let own = api.get(APP_NAMESPACE).await?;
        if let Some(project) = own.labels().get(PROJECT_NAME) {
            return Ok(project.clone());
        }
        let theirs = api.get(namespace).await?;
        let project = theirs.labels().get(PROJECT_ID).cloned();
        project.with_context(|| format!("namespace {namespace} is in no project"))
    }

    async fn secret(&self, name: &str) -> Result<BTreeMap<String, String>> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), APP_NAMESPACE);
        let data = api.get(name).await?.data.unwrap_or_default().into_iter();
        data.map(|(key, value)| Ok((key, String::from_utf8(value.0)?)))
            .collect()
    }

    /// The controller's part: the object for PureLB, and the marks of the Service.
    async fn announce(
        &self,
        services: &Api<Service>,
        service: &Service,
        served: &Served,
    ) -> Result<()> {
        let group = pool_object(served.address);
        let kind = GroupVersionKind::gvk("purelb.io", "v1", "ServiceGroup");
        let groups: Api<DynamicObject> = Api::namespaced_with(
            self.client.clone(),
            APP_NAMESPACE,
            &ApiResource::from_gvk(&kind),
        );
        let key = match served.address {
            IpAddr::V4(_) => "v4pools",
            IpAddr::V6(_) => "v6pools",
        };
        let pool = json!([{
            "subnet": served.subnet, "pool": host(served.address), "aggregation": PURELB_AGGREGATION,
        }]);
        let object = json!({
            "apiVersion": "purelb.io/v1", "kind": "ServiceGroup", "metadata": { "name": group },
            "spec": { "local": { (key): pool } },
        });
        let manager = PatchParams::apply(MANAGER).force();
        groups
            .patch(&group, &manager, &Patch::Apply(&object))
            .await?;
        let (name, namespace) = (service.name_any(), service.namespace().unwrap_or_default());
        let mut finalizers = service.finalizers().to_vec();
        finalizers.push(FLOATINGIP_CLEANUP.to_owned());
        let marks = json!({ "metadata": {
            "resourceVersion": service.metadata.resource_version,
            "finalizers": finalizers,
            "labels": { (SERVICE): name, (SERVICE_NAMESPACE_SELECTOR): namespace },
            "annotations": { (FLOATINGIP): served.address, (PURELB_SERVICE_GROUP): group },
        } });
        let by = PatchParams::default();
        services.patch(&name, &by, &Patch::Merge(&marks)).await?;
        // From here on it is PureLB, which gives the Service what its group holds.
        let ingress = json!([{ "ip": served.address }]);
        let status = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
        services
            .patch_status(&name, &by, &Patch::Merge(&status))
            .await?;
        Ok(())
    }
}

/// The answer must repeat what was asked, as the original demands.
fn verify(answer: &Value, asked: &FipClient, pool: &str, service: &str) -> Result<Served> {
    for (key, expected) in [
        ("status", "approved"),
        ("clientsecret", &asked.secret),
        ("cluster", &asked.cluster),
        ("project", &asked.project),
        ("floatingippool", pool),
        ("servicenamespace", &asked.namespace),
        ("servicename", service),
    ] {
        ensure!(answer[key] == expected, "the answer has another {key}");
    }
    let text = |key: &str| answer[key].as_str().with_context(|| format!("no {key}"));
    Ok(Served {
        address: text("ipaddr")?.parse()?,
        subnet: text("subnet")?.to_owned(),
    })
}

fn host(address: IpAddr) -> String {
    let length = if address.is_ipv4() { 32 } else { 128 };
    format!("{address}/{length}")
}
