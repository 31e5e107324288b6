//! A cluster with macvlan as its operator and users leave it, and what is in it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use fipd_crds::MANIFESTS;
use fipd_tests::testbed::{
    CliOutput, ControlPlane, ControlPlaneOptions, Fipd, FipdOptions, wait_until,
};
use kube::Client;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);

/// The definitions of macvlan; their schema keeps whatever is written.
const OLD_DEFINITIONS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: macvlansubnets.macvlan.cluster.cattle.io}
spec:
  group: macvlan.cluster.cattle.io
  scope: Namespaced
  names: {plural: macvlansubnets, singular: macvlansubnet, kind: MacvlanSubnet}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: macvlanips.macvlan.cluster.cattle.io}
spec:
  group: macvlan.cluster.cattle.io
  scope: Namespaced
  names: {plural: macvlanips, singular: macvlanip, kind: MacvlanIP}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// Two subnets, a workload of each kind, a Service with its companion, and an Ingress.
pub const SITE: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: macvlan.cluster.cattle.io/v1
kind: MacvlanSubnet
metadata:
  name: lab
  namespace: kube-system
  labels: {team: net, master: eth0, vlan: "10", mode: bridge}
  annotations: {note: rack 7}
spec:
  master: eth0
  vlan: 10
  cidr: 192.168.1.0/24
  mode: bridge
  gateway: 192.168.1.1
  ranges: [{rangeStart: 192.168.1.10, rangeEnd: 192.168.1.20}]
  routes: [{dst: 10.0.0.0/8, gw: 192.168.1.2, iface: eth1}]
  podDefaultGateway: {enable: true, serviceCidr: 10.43.0.0/16}
  ipDelayReuse: 30
---
apiVersion: macvlan.cluster.cattle.io/v1
kind: MacvlanSubnet
metadata: {name: store, namespace: kube-system}
spec: {master: eth1, cidr: 192.168.2.0/24}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {macvlan.panda.io/macvlanIpType: auto, team: shop}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations:
        macvlan.pandaria.cattle.io/ip: auto
        macvlan.pandaria.cattle.io/subnet: lab
        macvlan.panda.io/ingress: "true"
        k8s.v1.cni.cncf.io/networks: '[{"name":"static-macvlan-cni-attach","interface":"eth1"}]'
    spec: {containers: [{name: a, image: a}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: plain, namespace: shop}
spec:
  selector: {matchLabels: {app: plain}}
  template:
    metadata: {labels: {app: plain}}
    spec: {containers: [{name: a, image: a}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: shop}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata:
      labels: {app: agent}
      annotations:
        macvlan.pandaria.cattle.io/ip: auto
        macvlan.pandaria.cattle.io/subnet: store
        macvlan.panda.io/macvlanService: disabled
        macvlan.panda.io/ipDelayReuseTimestamp: "1700000000"
    spec: {containers: [{name: a, image: a}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata:
      labels: {app: db}
      annotations:
        macvlan.pandaria.cattle.io/ip: 192.168.2.10-192.168.2.11
        macvlan.pandaria.cattle.io/mac: aa:bb:cc:dd:ee:01-aa:bb:cc:dd:ee:02
        macvlan.pandaria.cattle.io/subnet: store
        v1.multus-cni.io/default-network: '[{"name":"static-macvlan-cni-attach","interface":"eth0"}]'
    spec: {containers: [{name: a, image: a}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: shop}
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    spec:
      template:
        metadata:
          annotations: {macvlan.pandaria.cattle.io/ip: auto, macvlan.pandaria.cattle.io/subnet: lab}
        spec: {restartPolicy: Never, containers: [{name: a, image: a}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once, namespace: shop}
spec:
  template:
    metadata:
      annotations: {macvlan.pandaria.cattle.io/ip: auto, macvlan.pandaria.cattle.io/subnet: lab}
    spec: {restartPolicy: Never, containers: [{name: a, image: a}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata:
  name: web-macvlan
  namespace: shop
  annotations: {k8s.v1.cni.cncf.io/networks: static-macvlan-cni-attach}
spec:
  clusterIP: None
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: front
  namespace: shop
  annotations: {macvlan.panda.io/ingress: "true", note: mine}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
"#;

/// Objects that the commands could change, by the paths of their lists.
const LISTS: [&str; 11] = [
    "/api/v1/namespaces",
    "/api/v1/services",
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/statefulsets",
    "/apis/batch/v1/cronjobs",
    "/apis/batch/v1/jobs",
    "/apis/flatnetwork.pandaria.io/v1/flatnetworksubnets",
    "/apis/macvlan.cluster.cattle.io/v1/macvlanips",
    "/apis/macvlan.cluster.cattle.io/v1/macvlansubnets",
    "/apis/networking.k8s.io/v1/ingresses",
];
/// The API server writes the status of these at times of its own.
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A cluster and the command line.
pub struct Bed {
    pub plane: ControlPlane,
    pub fipd: Fipd,
    client: Client,
}

impl Bed {
    /// A cluster with nothing in it.
    pub async fn empty(name: &str) -> Self {
        let plane = ControlPlane::start(name, ControlPlaneOptions::default());
        let plane = plane.await.unwrap();
        let client = plane.client().await.unwrap();
        let fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
        let bed = Self {
            plane,
            fipd,
            client,
        };
        let system = || async {
            match bed.find("/api/v1/namespaces/kube-system").await {
                Some(_) => Ok(()),
                None => Err("no namespace kube-system"),
            }
        };
        wait_until("the API server made its namespaces", SOON, system)
            .await
            .unwrap();
        bed
    }

    /// A cluster with macvlan, the definitions of flat-network and these objects.
    pub async fn with(name: &str, objects: &str) -> Self {
        let bed = Self::empty(name).await;
        let mut definitions = OLD_DEFINITIONS.to_owned();
        let new = MANIFESTS.iter();
        for (_, text) in new.filter(|(name, _)| name.starts_with("flatnetwork.")) {
            definitions.push_str("---\n");
            definitions.push_str(text);
        }
        bed.plane.install_crds(&definitions).await.unwrap();
        bed.plane.apply(objects).await.unwrap();
        bed
    }

    /// A path for a file of the test.
    pub fn file(&self, name: &str) -> PathBuf {
        self.fipd.directory().join(name)
    }

    /// The object at a path of the API, if it is there.
    pub async fn find(&self, path: &str) -> Option<Value> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        match self.client.request::<Value>(request).await {
            Ok(object) => Some(object),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// The object at a path of the API.
    pub async fn get(&self, path: &str) -> Value {
        let found = self.find(path).await;
        found.unwrap_or_else(|| panic!("{path} is not there"))
    }

    /// Deletes the object at a path of the API.
    pub async fn delete(&self, path: &str) {
        let request = http::Request::delete(path).body(Vec::new()).unwrap();
        self.client.request::<Value>(request).await.unwrap();
    }

    /// Waits until nothing is at a path of the API.
    pub async fn wait_gone(&self, path: &str) {
        let gone = || async {
            match self.find(path).await {
                None => Ok(()),
                Some(object) => Err(object.to_string()),
            }
        };
        wait_until(path, SOON, gone).await.unwrap();
    }

    /// The subnet of flat-network of this name.
    pub async fn subnet(&self, name: &str) -> Value {
        let all = "/apis/flatnetwork.pandaria.io/v1/namespaces/cattle-flat-network";
        self.get(&format!("{all}/flatnetworksubnets/{name}")).await
    }

    /// A workload of the namespace `shop`, as `PLURAL/NAME`.
    pub async fn workload(&self, path: &str) -> Value {
        let api = match path.starts_with("cronjobs/") || path.starts_with("jobs/") {
            true => "batch/v1",
            false => "apps/v1",
        };
        self.get(&format!("/apis/{api}/namespaces/shop/{path}"))
            .await
    }

    /// The command line that runs a command of the migrator on this cluster.
    pub fn words(&self, line: &str) -> Vec<String> {
        let mut words = vec!["migrate".to_owned(), "flat-network".to_owned()];
        words.extend(line.split_whitespace().map(str::to_owned));
        words.push("--kubeconfig".to_owned());
        words.push(self.plane.kubeconfig_path().display().to_string());
        words
    }

    /// Runs a command of the migrator.
    pub async fn run(&self, line: &str) -> CliOutput {
        self.fipd.run(self.words(line)).await.unwrap()
    }

    /// Runs a command of the migrator, which must succeed; its report.
    pub async fn report(&self, line: &str) -> Report {
        let ended = self.run(&format!("{line} -o json")).await;
        Report(ended.json().unwrap())
    }

    /// What nobody may have changed: by path and name the version of each object, or of the spec of a definition.
    pub async fn versions(&self) -> BTreeMap<String, String> {
        let mut versions = BTreeMap::new();
        for list in LISTS.iter().chain([&DEFINITIONS]) {
            let field = match *list == DEFINITIONS {
                true => "generation",
                false => "resourceVersion",
            };
            let all = self.get(list).await;
            for object in all["items"].as_array().unwrap() {
                let metadata = &object["metadata"];
                let name = format!("{list} {}/{}", metadata["namespace"], metadata["name"]);
                versions.insert(name, metadata[field].to_string());
            }
        }
        versions
    }
}

/// What a command printed with `-o json`.
#[derive(Debug)]
pub struct Report(pub Value);

impl Report {
    /// What is said of an object.
    pub fn object(&self, kind: &str, name: &str) -> &Value {
        let mut objects = self.0["objects"].as_array().unwrap().iter();
        let found = objects.find(|object| object["kind"] == kind && object["name"] == name);
        found.unwrap_or_else(|| panic!("{kind} {name} is not in {}", self.0))
    }

    /// What became of an object.
    pub fn outcome(&self, kind: &str, name: &str) -> &str {
        self.object(kind, name)["outcome"].as_str().unwrap()
    }

    /// What became of all objects, each once.
    pub fn outcomes(&self) -> Vec<&str> {
        let objects = self.0["objects"].as_array().unwrap().iter();
        let outcomes = objects.map(|object| object["outcome"].as_str().unwrap());
        let mut outcomes: Vec<&str> = outcomes.collect();
        outcomes.sort_unstable();
        outcomes.dedup();
        outcomes
    }
}
