//! The cluster manager: what clusters that Rancher manages are given, and that it stays in step.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::BTreeMap;
use std::time::Duration;

use fipd_tests::scenario::{config_of, write_kubeconfig};
use fipd_tests::testbed::{
    Downstream, Fault, Fipd, FipdOptions, HarvesterGuest, Site, SiteOptions, wait_until,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(40);
const APP: &str = "rancher-fip-manager";
const MAPPINGS: &str = "network-interface-mappings";

type Texts = BTreeMap<String, String>;

/// A site whose clusters are not switched on yet, and fipd as its cluster manager.
struct Bed {
    site: Site,
    fipd: Fipd,
    rancher: Client,
}

impl Bed {
    /// fipd has the rights of the manifests and no other, where clusters are not proxied.
    async fn start(names: &[&str], proxied: bool) -> Self {
        let options = SiteOptions {
            proxied,
            ..SiteOptions::of(names)
        };
        let site = Site::start(&options).await.unwrap();
        site.rancher.install_fipd_crds().await.unwrap();
        let rancher = site.rancher.client().await.unwrap();
        let mut bed = Self {
            site,
            fipd: Fipd::prepare(FipdOptions::default()).await.unwrap(),
            rancher,
        };
        bed.apply(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": APP } }))
            .await;
        for name in names {
            bed.label(name, json!({ "rancher-fip": null })).await;
        }
        let kubeconfig = if proxied {
            bed.site.rancher_kubeconfig().to_owned()
        } else {
            bed.site.restrict_cluster_manager(APP).await.unwrap()
        };
        write_kubeconfig(&bed.fipd, "rancher", &kubeconfig).unwrap();
        let config = format!(
            "{}[cluster.rancher-fip.cluster-manager]\nenabled = true\n[api]\nadvertise = \"{}\"\n",
            config_of(&bed.site, &[], ""),
            bed.fipd.url()
        );
        bed.fipd.write_config(&config).unwrap();
        bed.fipd.restart().await.unwrap();
        bed
    }

    fn cluster(&self, name: &str) -> &Downstream {
        self.site.cluster(name).unwrap()
    }

    /// What is in a cluster.
    async fn guest(&self, name: &str) -> Guest {
        let client = self.cluster(name).plane.client().await.unwrap();
        Guest(client)
    }

    async fn apply(&self, object: Value) {
        self.site.rancher.apply(&object.to_string()).await.unwrap();
    }

    /// Sets labels of Rancher's object for a cluster.
    async fn label(&self, name: &str, labels: Value) {
        self.site.label_cluster(name, labels).await.unwrap();
    }

    fn foreign(&self, kind: &GroupVersionKind) -> Api<DynamicObject> {
        let plural = format!("{}s", kind.kind.to_lowercase());
        let resource = ApiResource::from_gvk_with_plural(kind, &plural);
        Api::all_with(self.rancher.clone(), &resource)
    }

    async fn pool(&self, name: &str, target: &str, network: &str, nic: &str, default: bool) {
        let annotations = json!({ "rancher-fip-default-network": default.to_string() });
        self.apply(json!({
            "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIPPool",
            "metadata": { "name": name, "annotations": annotations },
            "spec": {
                "ipConfig": {
                    "subnet": "10.60.0.0/24", "pool": { "start": "10.60.0.10", "end": "10.60.0.20" },
                },
                "targetCluster": target, "targetNetwork": network, "targetNetworkInterface": nic,
            },
        }))
        .await;
    }

    async fn remove_pool(&self, name: &str) {
        let kind = GroupVersionKind::gvk("rancher.k8s.binbash.org", "v1beta2", "FloatingIPPool");
        let api = self.foreign(&kind);
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    async fn quota(&self, project: &str) {
        self.apply(json!({
            "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIPProjectQuota",
            "metadata": { "name": project }, "spec": { "floatingIPQuota": { "any": 5 } },
        }))
        .await;
    }

    /// Makes `guest` a cluster whose machines run in namespace `guests` of `harvester`, on network `vlan-1`.
    async fn put_on_harvester(&self) {
        let labels = json!({ "provider.cattle.io": "harvester", "rancher-fip": "enabled" });
        self.label("harvester", labels).await;
        let harvester = self.cluster("harvester");
        self.move_machines(&harvester.project).await;
        let made = HarvesterGuest::new("guest", &harvester.id, "default/vlan-1");
        self.site.make_on_harvester(&made).await.unwrap();
    }

    /// Puts the namespace of the machines into a project.
    async fn move_machines(&self, project: &str) {
        let harvester = self.cluster("harvester");
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {
                "name": "guests",
                "annotations": { "field.cattle.io/projectId": format!("{}:{project}", harvester.id) },
            },
        });
        harvester.plane.apply(&namespace.to_string()).await.unwrap();
    }

    /// Waits until a guest is in a state for this reason; its message.
    async fn wait_said(&self, name: &str, reason: &str) -> String {
        wait_until(&format!("{name}: {reason}"), DEADLINE, || async {
            let list = self.fipd.cli(["rancher-fip", "guests", "-o", "json"]).await;
            let list = list.unwrap().json().unwrap();
            let guests = list["guests"].as_array().unwrap().clone();
            let mut named = guests.into_iter().filter(|one| one["display_name"] == name);
            match named.next() {
                Some(one) if one["reason"] == reason => {
                    Ok(one["message"].to_string().replace("\\\"", "\""))
                }
                found => Err(format!("{found:?}")),
            }
        })
        .await
        .unwrap()
    }

    /// Leaves Rancher: the exit code and the report.
    async fn detach(&self) -> (i32, Value) {
        let command = ["clusters", "detach", "rancher", "-o", "json"];
        let output = self.fipd.cli(command).await.unwrap();
        let report = serde_json::from_str(&output.stdout);
        (output.code, report.unwrap_or_else(|_| json!(output.stderr)))
    }

    /// The clusters in which something of fipd's may be.
    fn attached(&self) -> String {
        std::fs::read_to_string(self.fipd.data_dir().join("attached-clusters")).unwrap()
    }

    async fn local_secret(&self, namespace: &str, project: &str) -> Texts {
        let api: Api<Secret> = Api::namespaced(self.rancher.clone(), namespace);
        let secret = api.get(&format!("rancher-fip-config-{project}")).await;
        texts(&secret.unwrap())
    }
}

/// One cluster of the site.
struct Guest(Client);

impl Guest {
    async fn secret(&self, name: &str) -> Option<Secret> {
        let api: Api<Secret> = Api::namespaced(self.0.clone(), APP);
        api.get_opt(name).await.unwrap()
    }

    async fn mappings(&self) -> Option<Texts> {
        let api: Api<ConfigMap> = Api::namespaced(self.0.clone(), APP);
        let map = api.get_opt(MAPPINGS).await.unwrap();
        map.map(|map| map.data.unwrap_or_default())
    }

    async fn wait_mappings(&self, what: &str, expected: &[(&str, &str)]) {
        let expected = pairs(expected);
        wait_until(what, DEADLINE, || async {
            match self.mappings().await {
                Some(found) if found == expected => Ok(()),
                found => Err(format!("{found:?}")),
            }
        })
        .await
        .unwrap();
    }

    /// Waits until the project's Secret is as it should be.
    async fn wait_secret(&self, project: &str, what: &str, so: impl Fn(&Texts) -> bool) -> Texts {
        let name = format!("rancher-fip-config-{project}");
        self.wait_texts(&name, what, so).await
    }

    async fn wait_texts(&self, name: &str, what: &str, so: impl Fn(&Texts) -> bool) -> Texts {
        wait_until(&format!("Secret {name}: {what}"), DEADLINE, || async {
            let found = self.secret(name).await.as_ref().map(texts);
            match found {
                Some(found) if so(&found) => Ok(found),
                found => Err(format!("{found:?}")),
            }
        })
        .await
        .unwrap()
    }

    async fn wait_gone(&self, name: &str) {
        wait_until(&format!("Secret {name} is gone"), DEADLINE, || async {
            match self.secret(name).await {
                None => Ok(()),
                Some(_) => Err("it is there".to_owned()),
            }
        })
        .await
        .unwrap();
    }

    async fn label(&self) -> Option<String> {
        let api: Api<Namespace> = Api::all(self.0.clone());
        let labels = api
            .get(APP)
            .await
            .unwrap()
            .metadata
            .labels
            .unwrap_or_default();
        labels.get("rancher.k8s.binbash.org/project-name").cloned()
    }
}

fn texts(secret: &Secret) -> Texts {
    let data = secret.data.clone().unwrap_or_default().into_iter();
    data.map(|(key, value)| (key, String::from_utf8(value.0).unwrap()))
        .collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Texts {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

fn ca_of(fipd: &Fipd) -> String {
    std::fs::read_to_string(fipd.data_dir().join("tls/ca.crt")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_on_harvester_gets_everything_and_what_it_made_goes_when_it_is_switched_off() {
    let bed = Bed::start(&["harvester", "guest"], false).await;
    let guest = bed.guest("guest").await;
    bed.put_on_harvester().await;
    bed.pool("harvester--vlan-1", "harvester", "vlan-1", "eth1", false)
        .await;
    bed.quota("p-harvester").await;
    bed.label("guest", json!({ "rancher-fip": "enabled" }))
        .await;

    let found = guest.wait_secret("p-harvester", "is there", |_| true).await;
    let local = bed.local_secret("c-m-harvester", "p-harvester").await;
    assert_eq!(local["clientSecret"].len(), 32);
    assert_eq!(local["project"], "p-harvester");
    let url = format!("{}/v1", bed.fipd.url());
    let expected = pairs(&[
        ("apiUrl", &url),
        ("cluster", "c-m-guest"),
        ("clientSecret", &local["clientSecret"]),
        ("project", "p-harvester"),
        ("floatingIPPool", "harvester--vlan-1"),
        ("loadBalancerType", "purelb"),
    ]);
    assert_eq!(found, expected);
    assert_eq!(
        guest.mappings().await,
        Some(pairs(&[("harvester--vlan-1", "eth1")]))
    );
    assert_eq!(guest.label().await.as_deref(), Some("p-harvester"));
    let ca = guest.wait_texts("cacerts", "is there", |_| true).await;
    assert_eq!(ca["ca.crt"], ca_of(&bed.fipd));

    // A user's own Secret stays, what fipd made goes; the project keeps its secret.
    let theirs = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "theirs", "namespace": APP } });
    bed.cluster("guest")
        .plane
        .apply(&theirs.to_string())
        .await
        .unwrap();
    // A typo changes nothing, and a label that is missing nothing at once.
    bed.label("guest", json!({ "rancher-fip": "enabeld" }))
        .await;
    let typo = bed.wait_said("guest", "LabelInvalid").await;
    assert!(typo.contains("\"enabeld\"") && typo.contains("\"disabled\""));
    bed.label("guest", json!({ "rancher-fip": null })).await;
    bed.wait_said("guest", "LabelGone").await;
    assert!(
        guest
            .secret("rancher-fip-config-p-harvester")
            .await
            .is_some()
    );
    bed.label("guest", json!({ "rancher-fip": "disabled" }))
        .await;
    guest.wait_gone("rancher-fip-config-p-harvester").await;
    guest.wait_gone("cacerts").await;
    wait_until("mappings and label are gone", DEADLINE, || async {
        match (guest.mappings().await, guest.label().await) {
            (None, None) => Ok(()),
            found => Err(format!("{found:?}")),
        }
    })
    .await
    .unwrap();
    assert!(guest.secret("theirs").await.is_some());

    // And again, with the same secret.
    bed.label("guest", json!({ "rancher-fip": "enabled" }))
        .await;
    let again = guest
        .wait_secret("p-harvester", "is there again", |_| true)
        .await;
    assert_eq!(again, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_23_pools_url_ca_and_load_balancer_that_change_later_arrive() {
    let bed = Bed::start(&["harvester", "guest"], false).await;
    let guest = bed.guest("guest").await;
    bed.put_on_harvester().await;
    bed.quota("p-harvester").await;
    // As the originals leave it: without mark, with a key of an older release, an old address and a stale mapping.
    let old = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": APP },
    });
    let plane = &bed.cluster("guest").plane;
    plane.apply(&old.to_string()).await.unwrap();
    let old = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": MAPPINGS, "namespace": APP },
        "data": { "harvester--gone": "eth9" },
    });
    plane.apply(&old.to_string()).await.unwrap();
    let old = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "rancher-fip-config-p-harvester", "namespace": APP },
        "stringData": { "apiUrl": "http://old.example.net/v1", "clientSecret": "old", "note": "kept" },
    });
    plane.apply(&old.to_string()).await.unwrap();
    let local = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "rancher-fip-config-p-harvester", "namespace": "c-m-harvester" },
        "stringData": { "clientSecret": "kept-as-it-is", "project": "p-harvester" },
    });
    bed.apply(local).await;
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "rancher-fip-lb-controller", "namespace": APP },
        "spec": {
            "selector": { "matchLabels": { "a": "b" } },
            "template": {
                "metadata": { "labels": { "a": "b" } },
                "spec": { "containers": [{ "name": "c", "image": "registry.example.net/i:1" }] },
            },
        },
    });
    plane.apply(&deployment.to_string()).await.unwrap();
    bed.label("guest", json!({ "rancher-fip": "enabled" }))
        .await;

    let taken = |found: &Texts| found["clientSecret"] == "kept-as-it-is" && found["note"] == "kept";
    guest
        .wait_secret("p-harvester", "is taken over", taken)
        .await;
    guest
        .wait_mappings("defect 24: no pool, no mapping", &[])
        .await;
    let deployments: Api<Deployment> = Api::namespaced(guest.0.clone(), APP);
    wait_until(
        "the controller is restarted for its project",
        DEADLINE,
        || async {
            let found = deployments.get("rancher-fip-lb-controller").await.unwrap();
            let annotations = found.spec.template.metadata.unwrap().annotations;
            let key = "rancher.k8s.binbash.org/lb-controller-restarted-at";
            match annotations.unwrap_or_default().get(key) {
                Some(_) => Ok(()),
                None => Err("it is not".to_owned()),
            }
        },
    )
    .await
    .unwrap();

    bed.pool("tenants", "c-m-harvester", "vlan-1", "eth1", false)
        .await;
    bed.pool("other", "harvester", "vlan-2", "eth2", false)
        .await;
    guest
        .wait_mappings(
            "defect 24: by id and by name",
            &[("tenants", "eth1"), ("other", "eth2")],
        )
        .await;
    let real = |found: &Texts| found["floatingIPPool"] == "tenants";
    guest
        .wait_secret("p-harvester", "defect 33: the pool's real name", real)
        .await;
    bed.remove_pool("other").await;
    guest
        .wait_mappings("one is gone", &[("tenants", "eth1")])
        .await;

    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "rancher-fip-config", "namespace": APP },
        "data": { "RancherFipApiServerURL": "https://fip.example.net/v1" },
    });
    bed.apply(config).await;
    let moved = |found: &Texts| found["apiUrl"] == "https://fip.example.net/v1";
    guest
        .wait_secret("p-harvester", "the URL arrives", moved)
        .await;
    let site_ca = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "cacerts", "namespace": APP },
        "stringData": { "ca.crt": "SITE\n" },
    });
    bed.apply(site_ca).await;
    let both = format!("SITE\n{}", ca_of(&bed.fipd));
    guest
        .wait_texts("cacerts", "the site's CA arrives", |found| {
            found["ca.crt"] == both
        })
        .await;
    bed.label("guest", json!({ "rancher-fip-lbtype": "metallb" }))
        .await;
    let metallb = |found: &Texts| found["loadBalancerType"] == "metallb";
    guest
        .wait_secret("p-harvester", "the load balancer arrives", metallb)
        .await;

    // No watch tells that the machines moved to another project; the next look, here for a pool, finds it.
    bed.quota("p-two").await;
    bed.apply(json!({
        "apiVersion": "management.cattle.io/v3", "kind": "Project",
        "metadata": { "name": "p-two", "namespace": "c-m-harvester" }, "spec": { "clusterName": "c-m-harvester" },
    }))
    .await;
    bed.move_machines("p-two").await;
    bed.remove_pool("tenants").await;
    guest
        .wait_secret("p-two", "is there", |found| found["project"] == "p-two")
        .await;
    assert_eq!(guest.label().await.as_deref(), Some("p-two"));
    // Services may still hold addresses of the project before.
    assert!(
        guest
            .secret("rancher-fip-config-p-harvester")
            .await
            .is_some()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_22_bare_metal_is_served_whichever_comes_last_and_a_dead_guest_delays_none() {
    let bed = Bed::start(&["dead", "before", "after"], true).await;
    let dead = bed.cluster("dead").proxy.as_ref().unwrap();
    dead.set(Fault::BlackHole);
    for name in ["dead", "before", "after"] {
        let pool = format!("{name}--vlan-1");
        bed.pool(&pool, &format!("c-m-{name}"), "vlan-1", "eth1", true)
            .await;
    }
    bed.quota("p-dead").await;
    bed.quota("p-before").await;
    for name in ["dead", "before", "after"] {
        bed.label(name, json!({ "rancher-fip": "enabled" })).await;
    }
    let before = bed.guest("before").await;
    let found = before.wait_secret("p-before", "is there", |_| true).await;
    assert_eq!(found["floatingIPPool"], "before--vlan-1");
    assert_eq!(
        before.label().await,
        None,
        "only guests on Harvester have the label"
    );
    let after = bed.guest("after").await;
    after
        .wait_mappings("all but the Secret", &[("after--vlan-1", "eth1")])
        .await;
    assert!(after.secret("rancher-fip-config-p-after").await.is_none());
    bed.quota("p-after").await;
    after
        .wait_secret("p-after", "the quota wakes it", |_| true)
        .await;

    bed.cluster("dead").proxy.as_ref().unwrap().set(Fault::Pass);
    let back = bed.guest("dead").await;
    back.wait_secret("p-dead", "it is served once it answers", |_| true)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_go_with_the_quota_and_left_behind_ones_only_where_there_is_any_quota() {
    let mut bed = Bed::start(&["one"], false).await;
    let one = bed.guest("one").await;
    bed.pool("one--vlan-1", "one", "vlan-1", "eth1", true).await;
    bed.label("one", json!({ "rancher-fip": "enabled" })).await;
    one.wait_mappings("it is served", &[("one--vlan-1", "eth1")])
        .await;
    let (old, new) = ("rancher-fip-config-p-old", "rancher-fip-config-p-one");
    let left = |namespace: &str| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": old, "namespace": namespace } });
    bed.apply(left("c-m-one")).await;
    bed.cluster("one")
        .plane
        .apply(&left(APP).to_string())
        .await
        .unwrap();

    bed.fipd.restart().await.unwrap();
    wait_until("it is not swept", DEADLINE, || async {
        let log = bed.fipd.log().unwrap();
        if log.contains("there is no FloatingIPProjectQuota at all") {
            Ok(())
        } else {
            Err("nothing is said".to_owned())
        }
    })
    .await
    .unwrap();
    assert!(one.secret(old).await.is_some());

    bed.quota("p-one").await;
    one.wait_secret("p-one", "is there", |_| true).await;
    bed.fipd.restart().await.unwrap();
    one.wait_gone(old).await;
    let local: Api<Secret> = Api::namespaced(bed.rancher.clone(), "c-m-one");
    assert!(local.get_opt(old).await.unwrap().is_none());
    assert!(local.get_opt(new).await.unwrap().is_some());
    let shown = || async {
        let list = bed
            .fipd
            .cli(["rancher-fip", "guests", "-o", "json"])
            .await
            .unwrap();
        list.json().unwrap()["guests"][0].clone()
    };
    wait_until("the guest is shown as ready", DEADLINE, || async {
        let guest = shown().await;
        if guest["phase"] == "Ready" && guest["projects"]["p-one"] == "one--vlan-1" {
            Ok(())
        } else {
            Err(guest.to_string())
        }
    })
    .await
    .unwrap();

    let before = bed.local_secret("c-m-one", "p-one").await["clientSecret"].clone();
    let rotate = ["rancher-fip", "rotate-secret", "p-one"];
    bed.fipd.cli(rotate).await.unwrap().success().unwrap();
    let rotated = bed.local_secret("c-m-one", "p-one").await;
    assert_ne!(rotated["clientSecret"], before);
    assert_eq!(rotated["previousClientSecret"], before);
    let is_new = |found: &Texts| found["clientSecret"] == rotated["clientSecret"];
    one.wait_secret("p-one", "defect 23: the new secret arrives", is_new)
        .await;
    let unknown = ["rancher-fip", "rotate-secret", "p-none"];
    assert_eq!(bed.fipd.cli(unknown).await.unwrap().code, 3);

    let kind = GroupVersionKind::gvk(
        "rancher.k8s.binbash.org",
        "v1beta2",
        "FloatingIPProjectQuota",
    );
    let quotas = bed.foreign(&kind);
    quotas
        .delete("p-one", &DeleteParams::default())
        .await
        .unwrap();
    one.wait_gone(new).await;
    wait_until("the quota is gone", DEADLINE, || async {
        match quotas.get_opt("p-one").await.unwrap() {
            None => Ok(()),
            Some(quota) => Err(json!(quota).to_string()),
        }
    })
    .await
    .unwrap();
    assert!(local.get_opt(new).await.unwrap().is_none());
    wait_until("it waits for a quota", DEADLINE, || async {
        match shown().await {
            guest if guest["reason"] == "NoQuota" => Ok(()),
            guest => Err(guest.to_string()),
        }
    })
    .await
    .unwrap();
    assert!(one.secret(new).await.is_none(), "nothing brings it back");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_are_gone_move_no_guest() {
    let mut bed = Bed::start(&["one"], false).await;
    let settings = |namespace: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "rancher-fip-config", "namespace": APP },
            "data": {
                "RancherFipApiServerURL": "https://fip.example.net/v1",
                "RancherFipLBControllerNamespace": namespace,
            },
        })
    };
    bed.apply(settings("fip")).await;
    bed.pool("one--vlan-1", "one", "vlan-1", "eth1", true).await;
    bed.quota("p-one").await;
    bed.label("one", json!({ "rancher-fip": "enabled" })).await;
    bed.wait_said("one", "Ready").await;
    let client = bed.cluster("one").plane.client().await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "fip");
    let name = "rancher-fip-config-p-one";
    let url = async || {
        let found = texts(&secrets.get(name).await.unwrap());
        found["apiUrl"].clone()
    };
    assert_eq!(url().await, "https://fip.example.net/v1");

    let maps: Api<ConfigMap> = Api::namespaced(bed.rancher.clone(), APP);
    maps.delete("rancher-fip-config", &DeleteParams::default())
        .await
        .unwrap();
    let said = bed.wait_said("one", "SettingsGone").await;
    assert!(
        said.contains("rancher-fip-manager/rancher-fip-config"),
        "{said}"
    );
    assert_eq!(url().await, "https://fip.example.net/v1");
    // A daemon that never saw them knows from its notes where the guest is.
    bed.fipd.restart().await.unwrap();
    bed.wait_said("one", "SettingsGone").await;
    assert_eq!(url().await, "https://fip.example.net/v1");
    let usual: Api<Secret> = Api::namespaced(client, APP);
    assert!(usual.get_opt(name).await.unwrap().is_none());

    bed.apply(settings("other")).await;
    bed.wait_said("one", "Ready").await;
    wait_until("it moves when it is told to", DEADLINE, || async {
        match secrets.get_opt(name).await.unwrap() {
            None => Ok(()),
            Some(_) => Err("it is still there".to_owned()),
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rancher_is_not_left_cleanly_until_its_guests_are_however_often_fipd_starts() {
    let mut bed = Bed::start(&["one"], false).await;
    let one = bed.guest("one").await;
    bed.pool("one--vlan-1", "one", "vlan-1", "eth1", true).await;
    bed.quota("p-one").await;
    bed.label("one", json!({ "rancher-fip": "enabled" })).await;
    one.wait_secret("p-one", "is there", |_| true).await;
    let secret = "rancher-fip-config-p-one";
    let local = bed.local_secret("c-m-one", "p-one").await;

    let maps: Api<ConfigMap> = Api::namespaced(bed.rancher.clone(), APP);
    let note = || async {
        let map = maps.get_opt("fipd-guests").await.unwrap();
        map.and_then(|map| map.data?.remove("c-m-one"))
    };
    for when in ["at first", "after a restart"] {
        let (code, report) = bed.detach().await;
        assert_eq!((code, &report["clean"]), (1, &json!(false)), "{report}");
        let left = report["left"].to_string();
        assert!(
            left.contains("guest c-m-one of rancher") && left.contains("p-one"),
            "{when}: {left}"
        );
        assert_eq!(bed.attached(), "rancher\n", "{when}");
        assert!(note().await.is_some(), "{when}: it is all that says so");
        bed.fipd.restart().await.unwrap();
        wait_until("Rancher is reached", DEADLINE, || async {
            let shown = bed.fipd.cli(["clusters", "show", "rancher", "-o", "json"]);
            let shown = shown.await.unwrap().json().unwrap();
            let reached = shown["state"] == "ready";
            reached.then_some(()).ok_or(shown.to_string())
        })
        .await
        .unwrap();
    }
    assert!(one.secret(secret).await.is_some());

    // What is said in Rancher meanwhile counts once fipd is there again.
    bed.label("one", json!({ "rancher-fip": "disabled" })).await;
    let attach = ["clusters", "attach", "rancher"];
    bed.fipd.cli(attach).await.unwrap().success().unwrap();
    one.wait_gone(secret).await;
    wait_until("its note is gone", DEADLINE, || async {
        note().await.map_or(Ok(()), Err)
    })
    .await
    .unwrap();
    let (code, report) = bed.detach().await;
    assert_eq!((code, &report["clean"]), (0, &json!(true)), "{report}");
    assert_eq!(bed.attached(), "");
    assert!(maps.get_opt("fipd-guests").await.unwrap().is_none());
    let secrets: Api<Secret> = Api::namespaced(bed.rancher.clone(), "c-m-one");
    let kept = secrets.get(secret).await.unwrap();
    assert_eq!(texts(&kept), local, "it is the project's");
    assert_eq!(kept.metadata.labels.unwrap_or_default(), Texts::new());
}
