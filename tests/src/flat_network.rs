//! A cluster with pods on flat networks, for tests: subnets, pods and their addresses as JSON, and a stand-in for the CNI plugin.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::process::Process;
use crate::scenario::write_kubeconfig;
use crate::testbed::{
    ClustersOfTest, ControlPlane, ControlPlaneOptions, Fipd, FipdOptions, Node, RESTRICTED_USER,
    SERVICE_ADDRESS, SharedClusters, SharedSite, TestFipd, fipd_binary, wait_until, with_server,
};

const GROUP: &str = "flatnetwork.pandaria.io";
/// The namespace of subnets.
pub const SUBNETS: &str = "cattle-flat-network";
pub const SUBNET: &str = "FlatNetworkSubnet";
pub const IP: &str = "FlatNetworkIP";
const DEADLINE: Duration = Duration::from_secs(60);

static SITE: SharedSite<PodCluster> = SharedSite::new();

/// An API server with fipd's definitions and the garbage collector.
pub struct PodCluster(pub ControlPlane);

impl PodCluster {
    /// One in which fipd may do what the packaged roles allow.
    pub async fn with(name: &str, options: ControlPlaneOptions) -> Result<Self> {
        let mut plane = ControlPlane::start(name, options).await?;
        plane.install_fipd_crds().await?;
        plane.apply(&namespace(SUBNETS)).await?;
        plane
            .apply(include_str!("../../packaging/rbac/flat-network.yaml"))
            .await?;
        plane.bind_role("fipd-flat-network", None).await?;
        plane.bind_role("fipd-flat-network-adopt", None).await?;
        plane
            .bind_role("fipd-flat-network-lease", Some(SUBNETS))
            .await?;
        plane.grant_identity().await?;
        plane.start_controller_manager().await?;
        Ok(Self(plane))
    }

    pub async fn make_namespace(&self, name: &str) -> Result<()> {
        self.0.apply(&namespace(name)).await
    }

    /// A fipd that may do everything, before its first start.
    pub async fn prepare_admin(&self) -> Result<Fipd> {
        self.prepare_as(self.0.kubeconfig_yaml(), "").await
    }

    async fn prepare_as(&self, kubeconfig: &str, settings: &str) -> Result<Fipd> {
        let mut fipd = Fipd::prepare(FipdOptions::default()).await?;
        configure(&mut fipd, kubeconfig, settings)?;
        Ok(fipd)
    }

    /// Has a fipd, which may do everything, serve this cluster from its next start on.
    pub fn configure_admin(&self, fipd: &mut Fipd, settings: &str) -> Result<()> {
        configure(fipd, self.0.kubeconfig_yaml(), settings)
    }

    pub async fn objects(&self) -> Result<FlatObjects> {
        Ok(FlatObjects {
            client: self.0.client().await?,
        })
    }
}

impl SharedClusters for PodCluster {
    async fn start() -> Result<Self> {
        Self::with("pods", ControlPlaneOptions::default()).await
    }

    async fn clean(&self) -> Result<()> {
        self.objects().await?.remove_all().await?;
        let leases: Api<Lease> = Api::namespaced(self.0.client().await?, SUBNETS);
        let (all, params) = (ListParams::default(), DeleteParams::default());
        leases.delete_collection(&params, &all).await?;
        Ok(())
    }

    async fn prepare_fipd(&self, settings: &str) -> Result<Fipd> {
        self.prepare_as(&self.0.kubeconfig_of(RESTRICTED_USER), settings)
            .await
    }
}

fn configure(fipd: &mut Fipd, kubeconfig: &str, settings: &str) -> Result<()> {
    write_kubeconfig(fipd, "pods", kubeconfig)?;
    let text = format!(
        "[[cluster]]\nname = \"pods\"\nkubeconfig = \"pods.kubeconfig\"\nsystems = [\"flat-network\"]\n\
         [cluster.flat-network]\n{settings}\n"
    );
    fipd.write_config(&text)
}

/// Starts fipd on a node, where it decides nothing. `fipd` is the program there, `folder` has its files, and its sockets are
/// `fipd.sock` and `cni.sock` in `run`.
pub fn start_agent(
    mut fipd: Command,
    node: &str,
    kubeconfig: &str,
    folder: &Path,
    run: &Path,
) -> Result<Process> {
    fs::write(folder.join("agent.kubeconfig"), kubeconfig)?;
    let config = format!(
        "role = \"agent\"\n[host]\nnode = {node:?}\n[[cluster]]\nname = \"pods\"\n\
         kubeconfig = \"agent.kubeconfig\"\nsystems = [\"flat-network\"]\n"
    );
    let path = folder.join("agent.toml");
    fs::write(&path, config)?;
    fipd.args(["serve", "--config"]).arg(path);
    fipd.arg("--data-dir").arg(folder.join("agent"));
    fipd.arg("--socket").arg(run.join("fipd.sock"));
    fipd.arg("--cni-socket").arg(run.join("cni.sock"));
    Process::spawn("the agent", fipd, &folder.join("agent.log"))
}

/// The same on a node of the cluster, once it listens for plugins where they look for it.
pub async fn start_agent_on(node: &Node, name: &str, kubeconfig: &str) -> Result<Process> {
    let server = format!("https://{SERVICE_ADDRESS}:443");
    let kubeconfig = with_server(kubeconfig, &server);
    node.run("mkdir -p /run/fipd /var/lib/fipd").await?;
    let fipd = node.command(&fipd_binary().await?);
    let run = Path::new("/run/fipd");
    let agent = start_agent(fipd, name, &kubeconfig, node.directory(), run)?;
    wait_until("the agent listens for plugins", DEADLINE, || async {
        if let Err(ended) = agent.still_running() {
            return Ok(Err(ended));
        }
        match node.run("test -S /run/fipd/cni.sock").await {
            Ok(_) => Ok(Ok(())),
            Err(error) => Err(error),
        }
    })
    .await
    .with_context(|| agent.log_tail())??;
    Ok(agent)
}

fn namespace(name: &str) -> String {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }).to_string()
}

/// The API group of a kind, of which it is version 1.
fn group_of(kind: &str) -> &'static str {
    match kind {
        "Pod" | "Namespace" | "Service" | "Endpoints" | "Node" => "",
        "Deployment" | "StatefulSet" | "DaemonSet" => "apps",
        "Job" | "CronJob" => "batch",
        "Ingress" => "networking.k8s.io",
        "EndpointSlice" => "discovery.k8s.io",
        "NetworkAttachmentDefinition" => "k8s.cni.cncf.io",
        _ => GROUP,
    }
}

/// The objects of one cluster.
#[derive(Clone)]
pub struct FlatObjects {
    pub client: Client,
}

impl FlatObjects {
    pub fn of(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(group_of(kind), "v1", kind);
        let mut resource = ApiResource::from_gvk(&gvk);
        match kind {
            "Endpoints" => resource.plural = "endpoints".to_owned(),
            "NetworkAttachmentDefinition" => {
                resource.plural = "network-attachment-definitions".to_owned();
            }
            _ => {}
        }
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    fn at<'a>(&self, kind: &str, path: &'a str) -> Result<(Api<DynamicObject>, &'a str)> {
        let (namespace, name) = path
            .split_once('/')
            .with_context(|| format!("{path}: NAMESPACE/NAME"))?;
        Ok((self.of(kind, namespace), name))
    }

    /// Creates the object, which is named `NAMESPACE/NAME`; its UID.
    pub async fn make(&self, kind: &str, path: &str, mut object: Value) -> Result<String> {
        let (api, name) = self.at(kind, path)?;
        let version = match group_of(kind) {
            "" => "v1".to_owned(),
            group => format!("{group}/v1"),
        };
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!(name);
        let object = serde_json::from_value(object)?;
        let made = api.create(&PostParams::default(), &object).await;
        let made = made.with_context(|| format!("create {kind} {path}"))?;
        Ok(made.uid().unwrap_or_default())
    }

    /// A macvlan subnet with these fields beside.
    pub async fn subnet(&self, name: &str, cidr: &str, rest: Value) -> Result<()> {
        let mut spec = json!({ "flatMode": "macvlan", "master": "eth0", "vlan": 10, "cidr": cidr });
        for (key, value) in rest.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let path = format!("{SUBNETS}/{name}");
        self.make(SUBNET, &path, json!({ "spec": spec }))
            .await
            .map(drop)
    }

    /// A pod that asks for an address; its UID. `ip`: `auto` or addresses.
    pub async fn pod(&self, path: &str, subnet: &str, ip: &str, metadata: Value) -> Result<String> {
        let mut object = json!({ "metadata": metadata, "spec": {
            "containers": [{ "name": "c", "image": "none" }], "terminationGracePeriodSeconds": 0,
        } });
        let annotations = &mut object["metadata"]["annotations"];
        annotations["flatnetwork.pandaria.io/ip"] = json!(ip);
        annotations["flatnetwork.pandaria.io/subnet"] = json!(subnet);
        self.make_pod(path, &object).await
    }

    /// The same of any pod: its namespace gets a service account a moment after it is made.
    pub async fn make_pod(&self, path: &str, pod: &Value) -> Result<String> {
        let what = format!("pod {path} is made");
        let made = wait_until(&what, DEADLINE, || async {
            let made = self.make("Pod", path, pod.clone()).await;
            made.map_err(|error| format!("{error:#}"))
        });
        made.await
    }

    /// A pod with its address as the original's operator leaves them; the pod's UID.
    pub async fn make_original(
        &self,
        path: &str,
        subnet: &str,
        address: &str,
        mac: &str,
    ) -> Result<String> {
        let (_, name) = self.at("Pod", path)?;
        let uid = self.pod(path, subnet, "auto", json!({})).await?;
        let owner = json!([{
            "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": true,
        }]);
        let object = json!({
            "metadata": {
                "ownerReferences": owner, "labels": { "subnet": subnet },
                "finalizers": ["wrangler.cattle.io/rancher-flat-network-ip-remove"],
            },
            "spec": { "subnet": subnet, "podId": uid },
        });
        self.make(IP, path, object).await?;
        let status = json!({ "phase": "Active", "addr": address, "mac": mac });
        self.merge_status(IP, path, status).await?;
        Ok(uid)
    }

    pub async fn get(&self, kind: &str, path: &str) -> Result<Option<Value>> {
        let (api, name) = self.at(kind, path)?;
        let found = api.get_opt(name).await?;
        found
            .map(|found| Ok(serde_json::to_value(found)?))
            .transpose()
    }

    /// All objects of a namespace.
    pub async fn list(&self, kind: &str, namespace: &str) -> Result<Vec<Value>> {
        let all = self
            .of(kind, namespace)
            .list(&ListParams::default())
            .await?;
        let all = all.items.iter().map(serde_json::to_value);
        Ok(all.collect::<serde_json::Result<_>>()?)
    }

    /// The names of all objects of a namespace.
    pub async fn names(&self, kind: &str, namespace: &str) -> Result<Vec<String>> {
        let api = self.of(kind, namespace);
        let all = api.list(&ListParams::default()).await?;
        Ok(all.items.iter().map(ResourceExt::name_any).collect())
    }

    pub async fn merge(&self, kind: &str, path: &str, patch: Value) -> Result<()> {
        let (api, name) = self.at(kind, path)?;
        let patch = api
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patch.with_context(|| format!("patch {kind} {path}"))?;
        Ok(())
    }

    pub async fn merge_status(&self, kind: &str, path: &str, status: Value) -> Result<()> {
        let (api, name) = self.at(kind, path)?;
        let patch = Patch::Merge(json!({ "status": status }));
        let patch = api
            .patch_status(name, &PatchParams::default(), &patch)
            .await;
        patch.with_context(|| format!("patch the status of {kind} {path}"))?;
        Ok(())
    }

    pub async fn delete(&self, kind: &str, path: &str) -> Result<()> {
        let (api, name) = self.at(kind, path)?;
        api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until the object passes a test.
    pub async fn wait(
        &self,
        kind: &str,
        path: &str,
        what: &str,
        test: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        wait_until(&format!("{kind} {path}: {what}"), DEADLINE, || async {
            let seen = self
                .get(kind, path)
                .await
                .map_err(|error| format!("{error:#}"))?;
            match seen {
                Some(object) if test(&object) => Ok(object),
                Some(object) => Err(object.to_string()),
                None => Err("there is none".to_owned()),
            }
        })
        .await
    }

    pub async fn wait_gone(&self, kind: &str, path: &str) -> Result<()> {
        wait_until(&format!("{kind} {path} is gone"), DEADLINE, || async {
            let seen = self
                .get(kind, path)
                .await
                .map_err(|error| format!("{error:#}"))?;
            seen.map_or(Ok(()), |object| Err(object.to_string()))
        })
        .await
    }

    /// Waits until the pod of this path has an address; what it is.
    pub async fn wait_address(&self, path: &str) -> Result<String> {
        let has = |ip: &Value| {
            ip["status"]["addr"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        };
        let ip = self.wait(IP, path, "has an address", has).await?;
        Ok(ip["status"]["addr"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits for a phase of an object.
    pub async fn wait_phase(&self, kind: &str, path: &str, phase: &str) -> Result<Value> {
        self.wait(kind, path, &format!("is {phase}"), |one| {
            one["status"]["phase"] == phase
        })
        .await
    }

    /// Waits for an Event of this reason about the object; its note.
    pub async fn wait_event(&self, path: &str, reason: &str) -> Result<String> {
        let (namespace, name) = path.split_once('/').context("NAMESPACE/NAME")?;
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        wait_until(&format!("{path}: an Event {reason}"), DEADLINE, || async {
            let all = api
                .list(&ListParams::default())
                .await
                .map_err(|error| error.to_string())?;
            let mut all = all.items.into_iter();
            let of = |event: &Event| {
                let about = event.regarding.as_ref().and_then(|one| one.name.as_deref());
                about == Some(name) && event.reason.as_deref() == Some(reason)
            };
            let found = all.find(of).and_then(|event| event.note);
            found.ok_or_else(|| "there is none".to_owned())
        })
        .await
    }

    /// Stands in for the CNI plugin: the pod has the address that its object shows.
    pub async fn attach(&self, path: &str) -> Result<()> {
        let ip = self
            .get(IP, path)
            .await?
            .with_context(|| format!("{path} has no address"))?;
        let mac = ip["status"]["mac"].as_str().filter(|mac| !mac.is_empty());
        let mac = mac.unwrap_or("02:00:00:00:00:01");
        self.merge_status(IP, path, json!({ "phase": "Active", "mac": mac }))
            .await
    }

    /// Takes pods, addresses and subnets away, with their finalizers.
    pub async fn remove_all(&self) -> Result<()> {
        let pods: Api<Pod> = Api::all(self.client.clone());
        for pod in pods.list(&ListParams::default()).await? {
            let path = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
            let _ = self.delete("Pod", &path).await;
        }
        let operator = format!("{SUBNETS}/rancher-flat-network-operator");
        let _ = self.delete("Deployment", &operator).await;
        for kind in [IP, SUBNET] {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind));
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            for object in api.list(&ListParams::default()).await? {
                let path = format!(
                    "{}/{}",
                    object.namespace().unwrap_or_default(),
                    object.name_any()
                );
                let none = json!({ "metadata": { "finalizers": null } });
                let _ = self.merge(kind, &path, none).await;
                let _ = self.delete(kind, &path).await;
            }
        }
        Ok(())
    }
}

/// What a test works with.
pub struct PodBed {
    // Dropped in this order: fipd ends before another test has the server.
    pub fipd: TestFipd,
    pub objects: FlatObjects,
    pub cluster: ClustersOfTest<PodCluster>,
}

impl PodBed {
    /// With the fipd of all tests. Namespaces, subnets and VLANs are the test's own.
    pub async fn share(namespaces: &[&str]) -> Result<Self> {
        let (fipd, cluster) = SITE.share("").await?;
        Self::of(fipd, cluster, namespaces).await
    }

    /// With a fipd of its own, which runs, with these lines in `[cluster.flat-network]`.
    pub async fn alone(settings: &str, namespaces: &[&str]) -> Result<Self> {
        let mut bed = Self::prepare(settings, namespaces).await?;
        bed.restart().await?;
        Ok(bed)
    }

    /// The same before the first start of fipd.
    pub async fn prepare(settings: &str, namespaces: &[&str]) -> Result<Self> {
        let (fipd, cluster) = SITE.alone(settings).await?;
        Self::of(fipd, cluster, namespaces).await
    }

    async fn of(
        fipd: TestFipd,
        cluster: ClustersOfTest<PodCluster>,
        namespaces: &[&str],
    ) -> Result<Self> {
        for name in namespaces {
            cluster.make_namespace(name).await?;
        }
        let objects = cluster.objects().await?;
        Ok(Self {
            fipd,
            objects,
            cluster,
        })
    }

    pub async fn restart(&mut self) -> Result<()> {
        let fipd = self.fipd.own()?;
        fipd.restart().await?;
        fipd.wait_ready(DEADLINE).await
    }

    /// A node that nobody runs, and that takes pods.
    pub async fn node(&self, name: &str) -> Result<()> {
        let labels = json!({ "kubernetes.io/hostname": name });
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels },
        });
        self.cluster.0.apply(&node.to_string()).await?;
        // A new node is tainted, and the controller that would see it ready does not run.
        let ready = Patch::Merge(json!({ "spec": { "taints": null } }));
        let nodes = self.nodes();
        nodes.patch(name, &PatchParams::default(), &ready).await?;
        Ok(())
    }

    pub async fn remove_node(&self, name: &str) -> Result<()> {
        self.nodes().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    fn nodes(&self) -> Api<NodeObject> {
        Api::all(self.objects.client.clone())
    }

    /// The owner of each leased address that begins so.
    pub async fn leases(&self, prefix: &str) -> Result<BTreeMap<String, String>> {
        let listed = self
            .fipd
            .cli(["lease", "list", "-o", "json"])
            .await?
            .json()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let leases = listed["leases"].as_array().into_iter().flatten();
        let pairs = leases.map(|lease| (text(&lease["address"]), text(&lease["owner"])));
        Ok(pairs
            .filter(|(address, _)| address.starts_with(prefix))
            .collect())
    }
}
