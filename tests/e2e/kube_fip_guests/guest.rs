//! One guest: what Rancher has of it, and what is in it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::PostParams;

use super::*;

/// Where kube-vip and the ConfigMap of its cloud provider are.
pub const KUBE_SYSTEM: &str = "kube-system";

pub struct Guest<'a> {
    pub bed: &'a Bed,
    /// Rancher's id of it, which is its namespace too.
    pub id: String,
    pub cluster: &'a Downstream,
    pub machines: HarvesterGuest,
}

impl Guest<'_> {
    pub fn name(&self) -> &str {
        &self.machines.name
    }

    /// The FloatingIP that fipd makes for it.
    pub fn fip(&self) -> String {
        format!("{}/{}-kubevip", self.id, self.name())
    }

    /// Has Rancher make it, the namespace last.
    pub async fn make(&self) {
        self.write_machines().await;
        self.make_cluster().await;
        self.make_kubeconfig().await;
        self.make_namespace().await;
    }

    /// Writes what differs of how it is made: machines, credential, labels.
    pub async fn write_machines(&self) {
        let site = &self.bed.ground.site;
        site.make_on_harvester(&self.machines).await.unwrap();
    }

    pub async fn make_cluster(&self) {
        let cluster = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Cluster",
            "metadata": { "name": self.id }, "spec": { "displayName": self.name() },
        });
        self.bed.apply(cluster).await;
    }

    /// By the name that the original looks for.
    pub async fn make_kubeconfig(&self) {
        let (site, client) = (&self.bed.ground.site, &self.bed.objects.client);
        let kubeconfig = match self.bed.restricted {
            true => self.cluster.restricted_kubeconfig(),
            false => self.cluster.kubeconfig().to_owned(),
        };
        site.publish_kubeconfig(client, self.name(), &kubeconfig)
            .await
            .unwrap();
    }

    pub async fn make_namespace(&self) {
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.id } });
        self.bed.apply(namespace).await;
    }

    /// Sets the label, or removes it.
    pub async fn label(&mut self, kube_vip: Option<&str>) {
        self.machines.labels = match kube_vip {
            Some(value) => json!({ "kube-vip": value }),
            None => json!({}),
        };
        self.write_machines().await;
    }

    /// Waits until its FloatingIP has an address.
    pub async fn wait_address(&self) -> String {
        let has = |fip: &Value| {
            let address = &fip["status"]["address"];
            address.is_string() && fip["spec"]["ipaddress"] == *address
        };
        let objects = &self.bed.objects;
        let fip = objects.wait(&self.fip(), "has an address", has).await;
        fip.unwrap()["status"]["address"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Waits for an Event on its provisioning Cluster; its text.
    pub async fn wait_event(&self, reason: &str) -> String {
        let path = format!("{FLEET}/{}", self.name());
        let objects = &self.bed.objects;
        objects.wait_event("Cluster", &path, reason).await.unwrap()
    }

    /// What a system of fipd says of it.
    pub async fn said_by(&self, system: &str) -> Value {
        let asked = match system {
            "kube-fip" => "/api/v1/kube-fip/guests".to_owned(),
            other => format!("/api/v1/guests?system={other}"),
        };
        let reply = self.bed.fipd.get(&asked).await.unwrap();
        let listed: Value = serde_json::from_str(&reply.body).unwrap();
        let guests = listed["guests"].as_array().unwrap().iter();
        let mut named = guests.filter(|guest| guest["id"] == *self.id);
        named.next().cloned().unwrap_or_default()
    }

    pub async fn said(&self) -> Value {
        self.said_by("kube-fip").await
    }

    pub async fn wait_said(&self, what: &str, so: impl Fn(&Value) -> bool) -> Value {
        wait_until(&format!("{}: {what}", self.name()), DEADLINE, || async {
            let said = self.said().await;
            if so(&said) {
                Ok(said)
            } else {
                Err(said.to_string())
            }
        })
        .await
        .unwrap()
    }

    pub async fn wait_reason(&self, reason: &str) -> Value {
        self.wait_said(reason, |said| said["reason"] == reason)
            .await
    }

    pub async fn client(&self) -> Client {
        self.cluster.plane.client().await.unwrap()
    }

    pub async fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client().await, KUBE_SYSTEM)
    }

    /// Waits until the ConfigMap of the cloud provider has exactly these keys; none: or is not there.
    pub async fn wait_map(&self, what: &str, wanted: &[(&str, &str)]) {
        let maps = self.maps().await;
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let wanted: BTreeMap<String, String> = wanted.iter().map(owned).collect();
        wait_until(&format!("{}: {what}", self.name()), DEADLINE, || async {
            let found = texts(&maps, "kubevip").await.unwrap_or_default();
            match found == wanted {
                true => Ok(()),
                false => Err(format!("{found:?}; {}", self.said().await)),
            }
        })
        .await
        .unwrap();
    }

    /// The address that the cloud provider gives a Service of a namespace, by the contract of its ConfigMap.
    pub async fn provided(&self, namespace: &str) -> Option<IpAddr> {
        let map = texts(&self.maps().await, "kubevip").await?;
        let keys = [format!("cidr-{namespace}"), "cidr-global".to_owned()];
        let cidrs = keys.iter().find_map(|key| map.get(key))?;
        let first = cidrs.split(',').next()?;
        let net: ipnet::IpNet = first.parse().ok()?;
        net.hosts().next()
    }

    async fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client().await, KUBE_SYSTEM)
    }

    /// Waits until exactly these releases are deployed.
    pub async fn wait_releases(&self, wanted: &[&str]) {
        let secrets = self.secrets().await;
        let wanted: BTreeSet<&str> = wanted.iter().copied().collect();
        let what = format!("{} has the releases {wanted:?}", self.name());
        wait_until(&what, DEADLINE, || async {
            let have = deployed(&secrets).await;
            match have.keys().map(String::as_str).eq(wanted.iter().copied()) {
                true => Ok(()),
                false => Err(format!("{:?}; {}", have.keys(), self.said().await)),
            }
        })
        .await
        .unwrap();
    }

    /// How often each release was installed or upgraded, by its name.
    pub async fn revisions(&self) -> BTreeMap<String, String> {
        let all = deployed(&self.secrets().await).await.into_iter();
        let revision = |secret: Secret| secret.metadata.labels?.remove("version");
        all.filter_map(|(name, secret)| Some((name, revision(secret)?)))
            .collect()
    }

    pub async fn daemon_set(&self, name: &str) -> Option<DaemonSet> {
        let api: Api<DaemonSet> = Api::namespaced(self.client().await, KUBE_SYSTEM);
        api.get_opt(name).await.unwrap()
    }

    pub async fn deployment(&self, name: &str) -> Option<Deployment> {
        let api: Api<Deployment> = Api::namespaced(self.client().await, KUBE_SYSTEM);
        api.get_opt(name).await.unwrap()
    }

    /// Waits until the image of the DaemonSet has this tag.
    pub async fn wait_image(&self, daemon_set: &str, tag: &str) {
        let what = format!("{}: the image is {tag}", self.name());
        wait_until(&what, DEADLINE, || async {
            let found = self.daemon_set(daemon_set).await;
            let image = found.map(|found| image_of(&found)).unwrap_or_default();
            match image.ends_with(&format!(":{tag}")) {
                true => Ok(()),
                false => Err(format!("{image:?}; {}", self.said().await)),
            }
        })
        .await
        .unwrap();
    }

    /// Makes Service `default/web` and gives it the address that the cloud provider would give it.
    pub async fn serve_web(&self) -> Api<Service> {
        let services: Api<Service> = Api::namespaced(self.client().await, "default");
        let service = json!({
            "metadata": { "name": "web" },
            "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] },
        });
        let service = serde_json::from_value(service).unwrap();
        services
            .create(&PostParams::default(), &service)
            .await
            .unwrap();
        let address = self.provided("default").await.unwrap();
        let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } });
        services
            .patch_status("web", &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
        services
    }

    /// Harvester's own kube-vip, as its cloud provider brings it.
    pub async fn add_harvester_kube_vip(&self) {
        let daemon_set = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {
                "name": KUBE_VIP, "namespace": KUBE_SYSTEM,
                "annotations": { "meta.helm.sh/release-name": "harvester-cloud-provider" },
            },
            "spec": {
                "selector": { "matchLabels": { "app": "kube-vip" } },
                "template": {
                    "metadata": { "labels": { "app": "kube-vip" } },
                    "spec": {
                        "nodeSelector": { "kubernetes.io/os": "linux" },
                        "containers": [{ "name": "kube-vip", "image": "stand-in.invalid/harvester" }],
                    },
                },
            },
        });
        let plane = &self.cluster.plane;
        plane.apply(&daemon_set.to_string()).await.unwrap();
    }

    /// Waits until Harvester's own kube-vip is switched off beside its other selectors, or on again.
    pub async fn wait_harvester_kube_vip(&self, off: bool) {
        let mut wanted = BTreeMap::from([("kubernetes.io/os".to_owned(), "linux".to_owned())]);
        if off {
            let label = "node-role.kubernetes.io/harvester-kube-vip-disabled";
            wanted.insert(label.to_owned(), "true".to_owned());
        }
        let what = format!("{}: Harvester's kube-vip is off: {off}", self.name());
        wait_until(&what, DEADLINE, || async {
            let found = self.daemon_set(KUBE_VIP).await.unwrap();
            let pod = found.spec.template.spec.unwrap();
            let selector = pod.node_selector.unwrap_or_default();
            match selector == wanted {
                true => Ok(()),
                false => Err(format!("{selector:?}; {}", self.said().await)),
            }
        })
        .await
        .unwrap();
    }
}

pub fn image_of(found: &DaemonSet) -> String {
    let pod = found.spec.template.spec.as_ref();
    let image = pod.and_then(|pod| pod.containers.first()?.image.clone());
    image.unwrap_or_default()
}

/// The version of the chart that an object is of.
pub fn chart_version(labels: Option<&BTreeMap<String, String>>) -> Option<&str> {
    labels?.get("stand-in/chart-version").map(String::as_str)
}

/// Removes all that a test can leave in a cluster.
pub async fn clean(cluster: &Downstream) {
    let client = cluster.plane.client().await.unwrap();
    let (all, everything) = (DeleteParams::default(), ListParams::default());
    for namespace in [KUBE_SYSTEM, "rancher-fip-manager"] {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let releases = ListParams::default().labels("owner=helm");
        secrets.delete_collection(&all, &releases).await.unwrap();
        let daemon_sets: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
        daemon_sets
            .delete_collection(&all, &everything)
            .await
            .unwrap();
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        deployments
            .delete_collection(&all, &everything)
            .await
            .unwrap();
    }
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), KUBE_SYSTEM);
    if maps.get_opt("kubevip").await.unwrap().is_some() {
        maps.delete("kubevip", &all).await.unwrap();
    }
    let services: Api<Service> = Api::namespaced(client, "default");
    if services.get_opt("web").await.unwrap().is_some() {
        services.delete("web", &all).await.unwrap();
    }
}
