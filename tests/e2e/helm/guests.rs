//! The cluster manager installs the charts of the clusters that Rancher manages.

#[path = "objects.rs"]
mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fipd_crds::labels::FLOATINGIP_CLEANUP;
use fipd_tests::scenario::{config_of, write_kubeconfig};
use fipd_tests::testbed::{Charts, Fipd, FipdOptions, Site, SiteOptions, wait_until};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{CONTROLLER, NAMESPACE};

const DEADLINE: Duration = Duration::from_secs(90);

struct Bed {
    site: Site,
    fipd: Fipd,
    charts: Charts,
}

impl Bed {
    async fn start(names: &[&str]) -> Self {
        Self::start_with(&SiteOptions::of(names)).await
    }

    async fn start_with(options: &SiteOptions) -> Self {
        let charts = [
            (CONTROLLER, "0.4.0"),
            ("purelb", "0.14.1"),
            ("metallb", "0.15.3"),
        ];
        let (site, charts) =
            futures::future::try_join(Site::start(options), Charts::start(&charts))
                .await
                .unwrap();
        site.rancher.install_fipd_crds().await.unwrap();
        let fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
        let bed = Self { site, fipd, charts };
        let app =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        bed.site.rancher.apply(&app.to_string()).await.unwrap();
        bed.settings("image: { tag: v0.4.0 }").await;
        bed
    }

    async fn run(&mut self) {
        let kubeconfig = self.site.rancher_kubeconfig().to_owned();
        self.run_as(&kubeconfig).await;
    }

    async fn run_as(&mut self, kubeconfig: &str) {
        write_kubeconfig(&self.fipd, "rancher", kubeconfig).unwrap();
        let config = format!(
            "{}[cluster.rancher-fip.cluster-manager]\nenabled = true\n[helm]\npath = {:?}\ntimeout = \"20s\"\n",
            config_of(&self.site, &[], ""),
            self.charts.helm().binary(),
        );
        self.fipd.write_config(&config).unwrap();
        self.fipd.restart().await.unwrap();
    }

    /// The ConfigMap of the originals.
    async fn settings(&self, values: &str) {
        self.settings_but(values, &[]).await;
    }

    /// The same with other values of some keys.
    async fn settings_but(&self, values: &str, others: &[(&str, &str)]) {
        let mut data = BTreeMap::from([
            (
                "RancherFipApiServerURL".to_owned(),
                "https://fip.example.net/v1".to_owned(),
            ),
            ("RancherFipLBControllerValues".to_owned(), values.to_owned()),
        ]);
        let charts = [
            ("RancherFipLBController", CONTROLLER, "0.4.0"),
            ("PureLBController", "purelb", "0.14.1"),
            ("MetalLBController", "metallb", "0.15.3"),
        ];
        for (prefix, chart, version) in charts {
            data.insert(format!("{prefix}ChartName"), chart.to_owned());
            data.insert(format!("{prefix}ChartRef"), self.charts.repository());
            data.insert(format!("{prefix}ChartVersion"), version.to_owned());
            data.insert(format!("{prefix}Namespace"), NAMESPACE.to_owned());
        }
        for (key, value) in others {
            data.insert((*key).to_owned(), (*value).to_owned());
        }
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "rancher-fip-config" }, "data": data,
        });
        let api: Api<ConfigMap> =
            Api::namespaced(self.site.rancher.client().await.unwrap(), NAMESPACE);
        let manager = PatchParams::apply("admin").force();
        api.patch("rancher-fip-config", &manager, &Patch::Apply(&map))
            .await
            .unwrap();
    }

    async fn label(&self, name: &str, labels: Value) {
        let cluster = self.site.cluster(name).unwrap();
        let object = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Cluster",
            "metadata": { "name": cluster.id, "labels": labels }, "spec": { "displayName": name },
        });
        self.site.rancher.apply(&object.to_string()).await.unwrap();
    }

    /// Names of the releases in a namespace of a cluster.
    async fn releases(&self, name: &str, namespace: &str) -> BTreeSet<String> {
        let secrets = self.secrets(name, namespace).await;
        let deployed = ListParams::default().labels("owner=helm,status=deployed");
        let all = secrets.list(&deployed).await.unwrap().items.into_iter();
        all.filter_map(|secret| secret.metadata.labels?.remove("name"))
            .collect()
    }

    async fn secrets(&self, name: &str, namespace: &str) -> Api<Secret> {
        let plane = &self.site.cluster(name).unwrap().plane;
        Api::namespaced(plane.client().await.unwrap(), namespace)
    }

    async fn wait_releases(&self, name: &str, wanted: &[&str]) {
        self.wait_releases_in(name, NAMESPACE, wanted).await;
    }

    async fn wait_releases_in(&self, name: &str, namespace: &str, wanted: &[&str]) {
        let wanted: BTreeSet<String> = wanted.iter().map(|one| (*one).to_owned()).collect();
        wait_until(&format!("{name} has {wanted:?}"), DEADLINE, || async {
            let have = self.releases(name, namespace).await;
            if have == wanted {
                Ok(())
            } else {
                Err(format!("{have:?}; {}", self.guest(name).await))
            }
        })
        .await
        .unwrap();
    }

    /// A Service with an address, which the LB controller has to let go of.
    async fn hold_service(&self, name: &str) -> Api<Service> {
        let plane = &self.site.cluster(name).unwrap().plane;
        let service = json!({
            "metadata": { "name": "web", "finalizers": [FLOATINGIP_CLEANUP] },
            "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] },
        });
        let services: Api<Service> = Api::namespaced(plane.client().await.unwrap(), "default");
        let service = serde_json::from_value(service).unwrap();
        services
            .create(&PostParams::default(), &service)
            .await
            .unwrap();
        services
    }

    /// Other settings bring the charts of `a` into another namespace, the controller by another name; what another
    /// installed in `b` stays.
    async fn move_away(&self, values: &str) {
        for object in [
            json!({
                "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIPPool",
                "metadata": {
                    "name": "a--vlan-1", "annotations": { "rancher-fip-default-network": "true" },
                },
                "spec": {
                    "ipConfig": {
                        "subnet": "10.60.0.0/24",
                        "pool": { "start": "10.60.0.10", "end": "10.60.0.20" },
                    },
                    "targetCluster": "a", "targetNetwork": "vlan-1", "targetNetworkInterface": "eth1",
                },
            }),
            json!({
                "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIPProjectQuota",
                "metadata": { "name": "p-a" }, "spec": { "floatingIPQuota": { "a--vlan-1": 5 } },
            }),
        ] {
            self.site.rancher.apply(&object.to_string()).await.unwrap();
        }
        let old = self.secrets("a", NAMESPACE).await;
        let secret = "rancher-fip-config-p-a";
        wait_until("a has its Secret", DEADLINE, || async {
            let found = old.get(secret).await;
            found.map(drop).map_err(|error| error.to_string())
        })
        .await
        .unwrap();
        let local = Charts::local(CONTROLLER).display().to_string();
        let others = [
            ("RancherFipLBControllerChartName", "fip-controller"),
            ("RancherFipLBControllerChartRef", &local),
            ("RancherFipLBControllerNamespace", "fip"),
            ("PureLBControllerNamespace", "fip"),
            ("MetalLBControllerNamespace", "fip"),
        ];
        self.settings_but(values, &others).await;
        self.wait_releases_in("a", "fip", &["fip-controller", "metallb"])
            .await;
        wait_until("nothing is left behind", DEADLINE, || async {
            let all = old.list(&ListParams::default()).await.unwrap().items;
            match (all.is_empty(), self.guest("a").await) {
                (true, guest) if guest["phase"] == "Ready" => Ok(()),
                (_, guest) => Err(format!("{} Secrets; {guest}", all.len())),
            }
        })
        .await
        .unwrap();
        let new = self.secrets("a", "fip").await;
        assert!(new.get_opt(secret).await.unwrap().is_some());
        wait_until("what is in the way is told", DEADLINE, || async {
            let guest = self.guest("b").await;
            if guest["reason"] == "ReleaseElsewhere" {
                Ok(())
            } else {
                Err(guest.to_string())
            }
        })
        .await
        .unwrap();
        assert_eq!(self.releases("b", "fip").await, BTreeSet::new());
    }

    /// What fipd says of a cluster.
    async fn guest(&self, name: &str) -> Value {
        let said = self
            .fipd
            .cli(["rancher-fip", "guests", "-o", "json"])
            .await
            .unwrap();
        let said = said.json().unwrap();
        let guests = said["guests"].as_array().unwrap().iter();
        let mut named = guests.filter(|guest| guest["display_name"] == name);
        named.next().cloned().unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_20_guests_get_their_charts_and_change_their_load_balancer() {
    let mut bed = Bed::start(&["a", "b"]).await;
    // Somebody else's MetalLB, where PureLB is to be.
    let kubeconfig = bed
        .site
        .cluster("b")
        .unwrap()
        .plane
        .kubeconfig_path()
        .display()
        .to_string();
    let repository = bed.charts.repository();
    let by_hand = [
        "install",
        "metallb",
        "metallb",
        "--repo",
        &repository,
        "--namespace",
        NAMESPACE,
        "--create-namespace",
        "--kubeconfig",
        &kubeconfig,
    ];
    bed.charts.helm().run(&by_hand).await.unwrap();
    // As the original cluster manager leaves it.
    let mut original = by_hand;
    original[1] = CONTROLLER;
    original[2] = CONTROLLER;
    bed.charts.helm().run(&original).await.unwrap();
    bed.run().await;

    bed.wait_releases("a", &[CONTROLLER, "purelb"]).await;
    bed.wait_releases("b", &[CONTROLLER, "metallb"]).await;
    wait_until("what is in the way is told", DEADLINE, || async {
        let guest = bed.guest("b").await;
        if guest["message"]
            .as_str()
            .is_some_and(|said| said.contains("not installed by fipd"))
            || guest["last_error"]
                .as_str()
                .is_some_and(|said| said.contains("not installed by fipd"))
        {
            Ok(())
        } else {
            Err(guest.to_string())
        }
    })
    .await
    .unwrap();
    let shown = bed.guest("a").await["releases"].clone();
    assert_eq!(shown[0]["state"], "deployed", "{shown}");

    // Only values change.
    let values = "{ image: { tag: patched }, standIn: { clusterWide: true } }";
    bed.settings(values).await;
    let client = bed.site.cluster("a").unwrap().plane.client().await.unwrap();
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> =
        Api::namespaced(client, NAMESPACE);
    wait_until("the values arrive", DEADLINE, || async {
        let deployment = deployments
            .get(CONTROLLER)
            .await
            .map_err(|error| error.to_string())?;
        let image = deployment.spec.template.spec.unwrap().containers[0]
            .image
            .clone()
            .unwrap();
        if image.ends_with(":patched") {
            Ok(())
        } else {
            Err(image)
        }
    })
    .await
    .unwrap();

    bed.label(
        "a",
        json!({ "rancher-fip": "enabled", "rancher-fip-lbtype": "metallb" }),
    )
    .await;
    bed.wait_releases("a", &[CONTROLLER, "metallb"]).await;
    bed.move_away(values).await;
    let there = bed.releases("a", "fip").await;
    let services = bed.hold_service("a").await;
    bed.label("a", json!({ "rancher-fip": "disabled" })).await;
    wait_until("the Service is named", DEADLINE, || async {
        let guest = bed.guest("a").await;
        match guest["message"].to_string().contains("default/web") {
            true => Ok(()),
            false => Err(guest.to_string()),
        }
    })
    .await
    .unwrap();
    assert_eq!(bed.releases("a", "fip").await, there);
    let free: Patch<Value> = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    services
        .patch("web", &PatchParams::default(), &free)
        .await
        .unwrap();
    bed.wait_releases_in("a", "fip", &[]).await;
    bed.label("b", json!({ "rancher-fip": "disabled" })).await;
    wait_until("what stays is told", DEADLINE, || async {
        let guest = bed.guest("b").await;
        let said = guest["message"].as_str().unwrap_or_default();
        if guest["phase"] == "Left" && said.contains(CONTROLLER) && !said.contains("metallb") {
            Ok(())
        } else {
            Err(guest.to_string())
        }
    })
    .await
    .unwrap();
    bed.wait_releases("b", &[CONTROLLER, "metallb"]).await;
    // The release is gone a moment before helm ends.
    let private = bed.fipd.data_dir().join("helm/run");
    wait_until("no kubeconfig is left", DEADLINE, || async {
        match std::fs::read_dir(&private).unwrap().count() {
            0 => Ok(()),
            some => Err(format!("{some} files")),
        }
    })
    .await
    .unwrap();
}
