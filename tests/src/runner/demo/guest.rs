//! The guest cluster's way from its label in Rancher to a Service that works.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fipd_crds::labels::{
    APP_NAMESPACE, CA_SECRET, INTERFACE_MAPPINGS, LB_CONTROLLER, project_secret,
};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{
    CLUSTER, Demo, GUEST_SERVICE, NAMESPACE, POOL, create_service, objects, wait_for_address,
};
use crate::say::{progress, say};
use crate::stock::LbController;
use crate::testbed::{Charts, Downstream, Site, wait_until};

/// The stand-in charts with the versions that the originals' chart has as defaults.
pub(super) const CHARTS: [(&str, &str); 2] = [(LB_CONTROLLER, "0.4.1"), ("purelb", "0.14.1")];

const ARRIVES_WITHIN: Duration = Duration::from_secs(90);

/// How the guest came to its Service.
#[derive(Debug, Serialize)]
pub(super) struct Guest {
    cluster: String,
    /// The releases that fipd installed there.
    charts: Vec<String>,
    service: String,
    address: String,
    steps: Vec<Step>,
    /// From the label until the Service's status had the address.
    milliseconds: u64,
}

/// Something that was seen in the guest.
#[derive(Debug, Serialize)]
struct Step {
    what: String,
    /// Since the label was set.
    milliseconds: u64,
}

/// Steps as they are seen.
struct Walk {
    began: Instant,
    steps: Vec<Step>,
}

impl Walk {
    fn seen(&mut self, what: impl Into<String>) -> Result<u64> {
        let milliseconds = u64::try_from(self.began.elapsed().as_millis())?;
        let what = what.into();
        progress(format_args!("  after {}: {what}", human(milliseconds)));
        self.steps.push(Step { what, milliseconds });
        Ok(milliseconds)
    }
}

/// What the admin of the site has done before: the label is not set yet.
pub(super) async fn prepare(site: &Site, charts: &Charts) -> Result<()> {
    label(site, false).await?;
    let app =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": APP_NAMESPACE } });
    progress(format_args!(
        "creating the FloatingIPPool {POOL}, a quota of the project and the ConfigMap with the charts"
    ));
    let cluster = site.cluster(CLUSTER)?;
    for object in [
        app,
        objects::settings(&charts.repository()),
        objects::pool(),
        objects::quota(&cluster.project),
    ] {
        site.rancher.apply(&object.to_string()).await?;
    }
    cluster.add_namespace(NAMESPACE).await
}

async fn label(site: &Site, enabled: bool) -> Result<()> {
    let kind = GroupVersionKind::gvk("management.cattle.io", "v3", "Cluster");
    let api: Api<DynamicObject> =
        Api::all_with(site.rancher.client().await?, &ApiResource::from_gvk(&kind));
    let patch = Patch::Merge(objects::label(enabled));
    let id = &site.cluster(CLUSTER)?.id;
    api.patch(id, &PatchParams::default(), &patch).await?;
    Ok(())
}

impl Demo {
    /// Sets the label and waits for everything that follows from it.
    pub(super) async fn enable(&self, cluster: &Downstream, client: &Client) -> Result<Guest> {
        progress(format_args!(
            "labelling cluster {CLUSTER} in Rancher with rancher-fip=enabled"
        ));
        let mut walk = Walk {
            began: Instant::now(),
            steps: Vec::new(),
        };
        label(&self.site, true).await?;
        arrives::<Secret>(client, CA_SECRET).await?;
        walk.seen(format!("Secret {CA_SECRET} with fipd's CA is in {CLUSTER}"))?;
        arrives::<ConfigMap>(client, INTERFACE_MAPPINGS).await?;
        walk.seen(format!(
            "ConfigMap {INTERFACE_MAPPINGS} maps {POOL} to eth0"
        ))?;
        let secret = project_secret(&cluster.project);
        arrives::<Secret>(client, &secret).await?;
        walk.seen(format!("Secret {secret} opens the API for the project"))?;
        arrives::<Deployment>(client, LB_CONTROLLER).await?;
        walk.seen(format!(
            "helm has installed {LB_CONTROLLER} (a small stand-in chart)"
        ))?;
        arrives::<DaemonSet>(client, "lbnodeagent").await?;
        walk.seen("helm has installed purelb (a small stand-in chart)")?;
        let charts = self.ready().await?;
        walk.seen(format!("fipd shows cluster {CLUSTER} as Ready"))?;
        create_service(client, GUEST_SERVICE, None).await?;
        let name = format!("{NAMESPACE}/{GUEST_SERVICE}");
        walk.seen(format!("Service {name} of type LoadBalancer is created"))?;
        // The testbed has no kubelet: the installed controller has no pod that could do this.
        let served = LbController::new(client.clone())
            .serve(NAMESPACE, GUEST_SERVICE)
            .await
            .context("the stand-in of the stock LB controller")?;
        let address = wait_for_address(client, GUEST_SERVICE).await?;
        anyhow::ensure!(address == served.address.to_string(), "another address");
        let milliseconds = walk.seen(format!(
            "{name} has {address}: a stand-in of the stock LB controller asked /v1/fip/request with the Secret (the first call makes the key of the tokens)"
        ))?;
        Ok(Guest {
            cluster: CLUSTER.to_owned(),
            charts,
            service: format!("{CLUSTER}/{name}"),
            address,
            steps: walk.steps,
            milliseconds,
        })
    }

    /// Waits until fipd has nothing left to do for the cluster; its releases.
    async fn ready(&self) -> Result<Vec<String>> {
        wait_until("the guest is ready", ARRIVES_WITHIN, || async {
            let said = self.fipd.cli(["rancher-fip", "guests", "-o", "json"]);
            let said = said.await.and_then(|said| said.json());
            let said = said.map_err(|error| format!("{error:#}"))?;
            let guest = &said["guests"][0];
            if guest["phase"] != "Ready" {
                return Err(guest.to_string());
            }
            let releases = guest["releases"].as_array().into_iter().flatten();
            Ok(releases
                .map(|release| {
                    let text = |key: &str| release[key].as_str().unwrap_or_default().to_owned();
                    format!("{} {}", text("name"), text("version"))
                })
                .collect())
        })
        .await
    }
}

/// Waits for an object of the app namespace.
async fn arrives<K>(client: &Client, name: &str) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    let api: Api<K> = Api::namespaced(client.clone(), APP_NAMESPACE);
    let what = format!(
        "{} {name} is in the cluster",
        K::kind(&K::DynamicType::default())
    );
    wait_until(&what, ARRIVES_WITHIN, || async {
        match api.get_opt(name).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err("it is not".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await
}

impl Guest {
    pub(super) fn tell(&self) {
        say(format_args!(
            "guest    {}: from its label to a working Service in {}",
            self.cluster,
            human(self.milliseconds)
        ));
        for Step { what, milliseconds } in &self.steps {
            say(format_args!("         {:>7}  {what}", human(*milliseconds)));
        }
        say(format_args!("         charts: {}", self.charts.join(", ")));
    }
}

/// A time as people say it.
pub(super) fn human(milliseconds: u64) -> String {
    if milliseconds < 1_000 {
        format!("{milliseconds} ms")
    } else {
        format!("{:.1} s", Duration::from_millis(milliseconds).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_as_people_say_them() {
        assert_eq!(human(7), "7 ms");
        assert_eq!(human(1_240), "1.2 s");
    }
}
