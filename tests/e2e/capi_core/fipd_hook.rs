//! fipd's own hook BeforeClusterCreate: the real core manager asks it by the ExtensionConfig that fipd keeps, with the rights of
//! packaging/rbac/cluster-api.yaml.

use std::fs;

use anyhow::Context;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use fipd_tests::cluster_api::IpamObjects;
use fipd_tests::scenario::write_kubeconfig;
use fipd_tests::testbed::cluster_api::{HOOKS, condition};
use fipd_tests::testbed::{
    Fipd, FipdOptions, Method, RESTRICTED_USER, Visitor, free_port, wait_object,
};
use k8s_openapi::jiff::Timestamp;
use kube::api::DeleteParams;

use super::hooks::extension_configs;
use super::ownership::kubectl;
use super::*;

/// Of fipd's ExtensionConfig and of its handler.
const NAME: &str = "fipd-vip";
const POOL: &str = "GlobalInClusterIPPool";
const PAUSED: &str = "cluster.x-k8s.io/paused";
const ENDPOINT_READY: &str = "fipd.io/EndpointReady";
/// fipd looks at its ExtensionConfig every 10 s.
const REPAIRED_WITHIN: Duration = Duration::from_secs(30);

/// Where the core manager asks fipd.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AskedAt {
    /// `[api] listen`.
    Api,
    /// A `[[listener]]` that serves nothing else.
    Listener,
}

struct HookBed {
    // Dropped in this order: fipd ends before the next test has the management cluster.
    fipd: Fipd,
    /// The URL by which the core manager reaches fipd.
    url: String,
    ipam: IpamObjects,
    bed: Bed,
}

impl HookBed {
    /// fipd runs, the core manager has discovered its hook, and asks it about Clusters of this namespace. A class of the same
    /// name declares `clusterVip`.
    async fn start(namespace: &str, at: AskedAt, patience: &str) -> Self {
        let bed = Bed::start(namespace).await;
        let plane = &bed.management.plane;
        plane.forget_leaders().await.unwrap();
        let mut fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
        write_kubeconfig(&fipd, "management", &plane.kubeconfig_of(RESTRICTED_USER)).unwrap();
        let (url, listener) = match at {
            AskedAt::Api => (fipd.url(), String::new()),
            AskedAt::Listener => {
                let address = format!("127.0.0.1:{}", free_port().unwrap());
                let listener =
                    format!("[[listener]]\naddress = \"{address}\"\nserve = [\"hooks\"]\n");
                (format!("https://{address}"), listener)
            }
        };
        fipd.write_config(&format!(
            "[api]\nadvertise = \"{url}\"\n{listener}[[cluster]]\nname = \"management\"\n\
             kubeconfig = \"management.kubeconfig\"\nsystems = [\"cluster-api\"]\n\
             [cluster.cluster-api]\nhook-patience = \"{patience}\"\n\
             [cluster.cluster-api.hook]\nnamespace-labels = {{ \"kubernetes.io/metadata.name\" = \"{namespace}\" }}\n"
        ))
        .unwrap();
        let ipam = IpamObjects {
            client: plane.client().await.unwrap(),
            version: "v1beta2",
        };
        fipd.restart().await.unwrap();
        fipd.wait_ready(DEADLINE).await.unwrap();
        bed.class(Class::with_cluster_vip(namespace)).await;
        let started = Self {
            fipd,
            url,
            ipam,
            bed,
        };
        started.wait_discovered().await;
        started
    }

    /// The core manager knows the handler at the URL of this fipd.
    async fn wait_discovered(&self) {
        let url = format!("{}/hooks/management", self.url);
        self.wait_extension("is discovered", |config| {
            config["spec"]["clientConfig"]["url"] == *url
                && condition(config, "Discovered")["status"] == "True"
                && config["status"]["handlers"][0]["name"] == format!("{NAME}.{NAME}")
        })
        .await;
    }

    async fn wait_extension(&self, what: &str, test: impl Fn(&Value) -> bool) -> Value {
        let configs = extension_configs(&self.bed);
        let what = format!("ExtensionConfig {NAME} {what}");
        let seen = wait_object(&what, DEADLINE, (&configs, NAME), test).await;
        seen.with_context(|| self.fipd.log_tail()).unwrap()
    }

    /// A pool for control planes of the namespace's class. A paused one gives nothing yet.
    async fn pool(&self, address: &str, paused: bool) {
        let class = &self.bed.objects.namespace;
        let annotations = if paused {
            json!({ PAUSED: "" })
        } else {
            json!({})
        };
        let metadata = json!({
            "annotations": annotations,
            "labels": {
                "vip.capi.gorizond.io/cluster-class": class,
                "vip.capi.gorizond.io/role": "control-plane",
            },
        });
        let pool =
            json!({ "metadata": metadata, "spec": { "addresses": [address], "prefix": 24 } });
        self.ipam.make(POOL, class, pool).await.unwrap();
    }

    /// `kubectl apply` of a Cluster of the namespace's class, which wants no ingress.
    async fn apply(&self, name: &str, version: ApiVersion) {
        self.apply_at(name, version, Value::Null).await;
    }

    /// The same with an endpoint that was chosen by hand.
    async fn apply_at(&self, name: &str, version: ApiVersion, endpoint: Value) {
        let mut cluster = version.cluster(name, &self.bed.objects.namespace);
        if endpoint.is_object() {
            cluster["spec"]["controlPlaneEndpoint"] = endpoint;
        }
        let annotations = json!({ "vip.capi.gorizond.io/ingress-enabled": "false" });
        cluster["metadata"]["annotations"] = annotations;
        kubectl(&self.bed, &[], &cluster).await;
    }

    /// Waits until core says that it waits for fipd.
    async fn wait_held(&self, cluster: &str) -> Value {
        let why = "fipd has not written spec.controlPlaneEndpoint yet";
        self.bed
            .wait_cluster(cluster, "waits for the hook", |cluster| {
                let message = &condition(cluster, "TopologyReconciled")["message"];
                message.as_str().is_some_and(|text| text.contains(why))
            })
            .await
    }

    /// What core has rendered in the namespace.
    async fn rendered(&self) -> Vec<String> {
        let mut all = Vec::new();
        for kind in [StandIn::Cluster, StandIn::ControlPlane] {
            let list = self.bed.objects.stand_ins(kind);
            let list = list.list(&ListParams::default()).await.unwrap();
            let names = list.items.into_iter().filter_map(|one| one.metadata.name);
            all.extend(names.map(|name| format!("{} {name}", kind.kind())));
        }
        all
    }

    async fn wait_reason(&self, cluster: &str, reason: &str) {
        self.bed
            .wait_cluster(cluster, reason, |cluster| {
                condition(cluster, ENDPOINT_READY)["reason"] == reason
            })
            .await;
    }

    /// What core rendered for the Cluster has its address from the first moment on.
    async fn assert_rendered_with(&self, cluster: &str, address: &str) {
        let (infrastructure, _) = self.bed.objects.wait_rendered(cluster).await.unwrap();
        let seen = self
            .bed
            .wait_infrastructure(&infrastructure, "is there", |_| true)
            .await;
        let endpoint = json!({ "host": address, "port": 6443 });
        assert_eq!(seen["spec"]["controlPlaneEndpoint"], endpoint, "{seen}");
        assert_eq!(seen["metadata"]["generation"], 1, "{seen}");
        let seen = self
            .bed
            .wait_cluster(cluster, "is provisioned", |cluster| {
                cluster["status"]["phase"] == "Provisioned"
            })
            .await;
        assert_eq!(seen["spec"]["controlPlaneEndpoint"], endpoint, "{seen}");
        assert_eq!(variable(&seen, CLUSTER_VIP), address, "{seen}");
    }

    /// Removes what would be in the way of later tests: core does not start while it has an extension that does not answer.
    async fn end(mut self) {
        self.fipd.kill9().unwrap();
        let configs = extension_configs(&self.bed);
        let gone = configs.delete(NAME, &DeleteParams::default()).await;
        assert!(gone.is_ok() || is_missing(&gone), "{gone:?}");
        self.ipam.remove_all().await.unwrap();
    }
}

fn is_missing<T>(answer: &kube::Result<T>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 404)
}

/// Row 85. Asked at a listener of its own; a namespace that the selector leaves out is not asked about.
#[tokio::test(flavor = "multi_thread")]
async fn e_7_row_85_nothing_of_a_cluster_is_rendered_before_its_address_is_written() {
    let hook = HookBed::start("gated", AskedAt::Listener, "10m").await;
    hook.pool("10.30.0.15", true).await;
    hook.apply("one", ApiVersion::V1Beta2).await;
    hook.wait_held("one").await;
    hook.wait_reason("one", "ClaimPending").await;

    // Core renders a Cluster of another namespace meanwhile.
    let plane = &hook.bed.management.plane;
    let others = ClusterApiObjects::of(plane, "ungated").await.unwrap();
    let class = Class::with_cluster_vip("ungated");
    others.make_class(&class).await.unwrap();
    let clusters = others.clusters(ApiVersion::V1Beta2);
    let cluster = ApiVersion::V1Beta2.cluster("other", "ungated");
    others.create(&clusters, cluster).await.unwrap();
    others.wait_rendered("other").await.unwrap();

    let seen = hook.wait_held("one").await;
    let nothing = (&Value::Null, &Value::Null);
    let spec = &seen["spec"];
    let rendered = (&spec["infrastructureRef"], &spec["controlPlaneRef"]);
    assert_eq!(rendered, nothing, "{seen}");
    assert_eq!(hook.rendered().await, [""; 0]);

    let unpause = hook.ipam.annotate(POOL, "gated", PAUSED, Value::Null);
    unpause.await.unwrap();
    hook.assert_rendered_with("one", "10.30.0.15").await;
    hook.end().await;
}

/// An endpoint that is chosen by hand reaches the variable, for which core would wait otherwise; a name cannot.
#[tokio::test(flavor = "multi_thread")]
async fn e_5_a_cluster_with_an_endpoint_of_its_own_does_not_wait() {
    let hook = HookBed::start("chosen", AskedAt::Api, "10m").await;
    let at = |host: &str| json!({ "host": host, "port": 6443 });
    hook.apply_at("one", ApiVersion::V1Beta2, at("10.30.4.15"))
        .await;
    hook.assert_rendered_with("one", "10.30.4.15").await;
    hook.apply_at("named", ApiVersion::V1Beta2, at("api.example.com"))
        .await;
    hook.bed.objects.wait_rendered("named").await.unwrap();
    let is_there = |_: &Value| true;
    let seen = hook.bed.wait_cluster("named", "is there", is_there).await;
    assert_eq!(variable(&seen, CLUSTER_VIP), "", "{seen}");
    hook.end().await;
}

/// The creation time of an object.
fn created(object: &Value) -> Timestamp {
    let text = object["metadata"]["creationTimestamp"].as_str().unwrap();
    text.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_gets_no_address_is_rendered_after_the_configured_time() {
    const PATIENCE: i64 = 8;
    let hook = HookBed::start("patience", AskedAt::Api, &format!("{PATIENCE}s")).await;
    hook.apply("one", ApiVersion::V1Beta1).await;
    hook.wait_held("one").await;
    let (infrastructure, _) = hook.bed.objects.wait_rendered("one").await.unwrap();
    let rendered = hook
        .bed
        .wait_infrastructure(&infrastructure, "is there", |_| true)
        .await;
    let endpoint = &rendered["spec"]["controlPlaneEndpoint"];
    assert_eq!(endpoint["host"], Value::Null, "{rendered}");
    let cluster = hook.bed.wait_cluster("one", "is there", |_| true).await;
    let waited = created(&rendered).as_second() - created(&cluster).as_second();
    assert!(waited >= PATIENCE, "rendered after {waited} s");
    hook.wait_reason("one", "PoolNotFound").await;

    // It says so to whoever asks.
    let request = json!({
        "apiVersion": HOOKS, "kind": "BeforeClusterCreateRequest", "cluster": cluster,
    });
    let path = format!("/hooks/management/{HOOKS}/beforeclustercreate/{NAME}?timeout=5s");
    let mut visitor = Visitor::connect(&hook.fipd).await.unwrap();
    let answer = visitor
        .send(Method::POST, &path, &request.to_string())
        .await;
    let (answer, _) = answer.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["retryAfterSeconds"], 0, "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("no address in time"), "{message}");

    // From here on it goes without the hook: once there is a pool, the address reaches the infrastructure.
    hook.pool("10.30.1.15", false).await;
    hook.bed
        .wait_infrastructure(&infrastructure, "has the address", |one| {
            one["spec"]["controlPlaneEndpoint"]["host"] == "10.30.1.15"
        })
        .await;
    hook.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fipd_keeps_its_extension_config_and_removes_it_when_it_leaves() {
    let hook = HookBed::start("kept", AskedAt::Api, "10m").await;
    let configs = extension_configs(&hook.bed);
    let made = json!(configs.get(NAME).await.unwrap());
    let authority = fs::read(hook.fipd.data_dir().join("tls/ca.crt")).unwrap();
    let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": "kept" } });
    let spec = json!({
        "clientConfig": {
            "url": format!("{}/hooks/management", hook.url), "caBundle": STANDARD.encode(authority),
        },
        "namespaceSelector": selector,
    });
    assert_eq!(made["spec"], spec, "{made}");
    assert_eq!(
        made["metadata"]["labels"]["app.kubernetes.io/managed-by"],
        "fipd"
    );

    // Somebody sends core elsewhere, and for all namespaces.
    let edit = json!({
        "metadata": { "labels": { "team": "one" } },
        "spec": {
            "clientConfig": { "url": "https://127.0.0.1:1/elsewhere" },
            "namespaceSelector": { "matchLabels": null },
        },
    });
    let params = PatchParams::default();
    configs
        .patch(NAME, &params, &Patch::Merge(&edit))
        .await
        .unwrap();
    let what = "ExtensionConfig is repaired";
    let is_so = |config: &Value| config["spec"] == spec;
    let seen = wait_object(what, REPAIRED_WITHIN, (&configs, NAME), is_so).await;
    let seen = seen.with_context(|| hook.fipd.log_tail()).unwrap();
    assert_eq!(seen["metadata"]["labels"]["team"], "one", "{seen}");

    configs
        .delete(NAME, &DeleteParams::default())
        .await
        .unwrap();
    let what = "ExtensionConfig is there again";
    let is_new = |config: &Value| {
        config["spec"] == spec && config["metadata"]["uid"] != made["metadata"]["uid"]
    };
    let seen = wait_object(what, REPAIRED_WITHIN, (&configs, NAME), is_new).await;
    seen.with_context(|| hook.fipd.log_tail()).unwrap();
    // Core asks the new one.
    hook.wait_discovered().await;
    hook.pool("10.30.2.15", true).await;
    hook.apply("one", ApiVersion::V1Beta2).await;
    hook.wait_held("one").await;

    let detach = ["clusters", "detach", "management"];
    hook.fipd.cli(detach).await.unwrap().success().unwrap();
    assert!(is_missing(&configs.get(NAME).await));
    // Nobody holds the Cluster any more.
    hook.bed.objects.wait_rendered("one").await.unwrap();
    hook.end().await;
}

/// Core's manager does not begin to work before its extensions have answered, and gives up after a minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_starts_while_fipd_is_down_works_once_fipd_is_up() {
    let mut hook = HookBed::start("restarted", AskedAt::Api, "10m").await;
    hook.pool("10.30.3.15", false).await;
    hook.fipd.kill9().unwrap();
    let Management { manager, plane, .. } = &mut *hook.bed.management;
    manager.kill().unwrap();
    let log = manager.log();
    let before = fs::read_to_string(&log).unwrap().len();
    let fipd = &mut hook.fipd;
    let fipd_is_up = async {
        wait_until("the manager has asked in vain", DEADLINE, || async {
            let text = fs::read_to_string(&log).map_err(|error| error.to_string())?;
            let text = text.get(before..).unwrap_or_default();
            match text.contains("ExtensionConfig registry warmup failed") {
                true => Ok(()),
                false => Err("it has not".to_owned()),
            }
        })
        .await?;
        fipd.restart().await?;
        fipd.wait_ready(DEADLINE).await
    };
    tokio::try_join!(manager.restart(plane), fipd_is_up).unwrap();
    hook.wait_discovered().await;
    hook.apply("one", ApiVersion::V1Beta2).await;
    hook.assert_rendered_with("one", "10.30.3.15").await;
    hook.end().await;
}
