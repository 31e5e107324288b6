//! Guest clusters of kube-fip: real API servers as Rancher, its Harvester and three guests, the real helm CLI and stand-in charts.
//!
//! All tests have one site, one after another; each makes guests of its own names on the three clusters, which begin empty,
//! and has a fipd and a store of its own.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "kube_fip_guests/address_map.rs"]
mod address_map;
#[path = "kube_fip_guests/elsewhere.rs"]
mod elsewhere;
#[path = "kube_fip_guests/guest.rs"]
mod guest;
#[path = "kube_fip_guests/label.rs"]
mod label;
#[path = "kube_fip_guests/live_config.rs"]
mod live_config;
#[path = "kube_fip_guests/new_guest.rs"]
mod new_guest;
#[path = "kube_fip_guests/not_served.rs"]
mod not_served;
#[path = "kube_fip_guests/shown.rs"]
mod shown;
#[path = "kube_fip_guests/steps.rs"]
mod steps;
#[path = "kube_fip_guests/takeover.rs"]
mod takeover;

use std::collections::BTreeMap;
use std::time::Duration;

use fipd_tests::alerts::{alerts, holding};
use fipd_tests::kube_fip::{KubeFipObjects, next_second};
use fipd_tests::scenario::write_kubeconfig;
use fipd_tests::testbed::{
    Charts, Downstream, Fault, Fipd, FipdOptions, ForAllTests, HarvesterGuest, Site, SiteOptions,
    wait_until,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::MappedMutexGuard;

use guest::Guest;

const DEADLINE: Duration = Duration::from_secs(90);
/// The namespace of the original's ConfigMap in Rancher.
const NAMESPACE: &str = "kube-fip";
const CONFIG: &str = "kube-fip-config";
const FLEET: &str = "fleet-default";
const KUBE_VIP: &str = "kube-vip";
const CLOUD_PROVIDER: &str = "kube-vip-cloud-provider";
/// The clusters on which guests are made.
const CLUSTERS: [&str; 3] = ["one", "two", "three"];
const CHARTS: [(&str, &str); 6] = [
    (KUBE_VIP, "0.6.3"),
    (KUBE_VIP, "0.6.4"),
    (CLOUD_PROVIDER, "0.2.6"),
    (CLOUD_PROVIDER, "0.2.7"),
    ("rancher-fip-lb-controller", "0.4.0"),
    ("purelb", "0.14.1"),
];

static GROUND: ForAllTests<Ground> = ForAllTests::new();

struct Ground {
    site: Site,
    charts: Charts,
    /// For Rancher, of a user with the rights of the manifests and no other.
    restricted: String,
}

impl Ground {
    async fn start() -> anyhow::Result<Self> {
        let options = SiteOptions {
            proxied: true,
            ..SiteOptions::of(&["harvester", "one", "two", "three"])
        };
        let both = futures::future::try_join(Site::start(&options), Charts::start(&CHARTS));
        let (mut site, charts) = both.await?;
        // For the Jobs of helm-controller.
        let third = &mut site.cluster_mut("three")?.plane;
        third.start_controller_manager().await?;
        site.rancher.install_fipd_crds().await?;
        let labels = json!({ "provider.cattle.io": "harvester", "rancher-fip": null });
        site.label_cluster("harvester", labels).await?;
        Ok(Self {
            restricted: site.restrict_kube_fip().await?,
            site,
            charts,
        })
    }
}

/// The keys of the ConfigMap that differ from the defaults.
type Settings = BTreeMap<&'static str, String>;

struct Bed {
    // Dropped in this order: fipd ends before the next test has the ground.
    fipd: Fipd,
    objects: KubeFipObjects,
    /// fipd has the rights of the manifests and no other, in guests too.
    restricted: bool,
    ground: MappedMutexGuard<'static, Ground>,
}

impl Bed {
    /// fipd runs with charts of the repository, a range for network `vlan-1`, and a look at each guest every ten seconds.
    async fn start(settings: &[(&'static str, &str)]) -> Self {
        let mut bed = Self::prepare().await;
        let mut all = bed.settings();
        all.extend(
            settings
                .iter()
                .map(|(key, value)| (*key, (*value).to_owned())),
        );
        bed.configure(&all).await;
        bed.write_config(&["kube-fip"], "");
        bed.restart().await;
        bed
    }

    /// All but the daemon's process and its configuration.
    async fn prepare() -> Self {
        let ground = GROUND.take(Ground::start).await.unwrap();
        let client = ground.site.rancher.client().await.unwrap();
        let objects = KubeFipObjects { client };
        let bed = Self {
            fipd: Fipd::prepare(FipdOptions::default()).await.unwrap(),
            objects,
            restricted: true,
            ground,
        };
        bed.clean().await;
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        bed.apply(namespace).await;
        let spec = json!({ "iprange": "10.90.0.0/24", "gateway": "10.90.0.1" });
        bed.objects.make_range("vlan-1", spec).await.unwrap();
        bed
    }

    fn write_config(&mut self, systems: &[&str], settings: &str) {
        self.restricted = systems == ["kube-fip"];
        let kubeconfig = match self.restricted {
            true => &*self.ground.restricted,
            false => self.ground.site.rancher_kubeconfig(),
        };
        write_kubeconfig(&self.fipd, "rancher", kubeconfig).unwrap();
        let charts = &self.ground.charts;
        let config = format!(
            "[[cluster]]\nname = \"rancher\"\nkubeconfig = \"rancher.kubeconfig\"\nsystems = {systems:?}\n{settings}\n\
             [helm]\npath = {:?}\ntimeout = \"20s\"\nca-file = {:?}\n",
            charts.helm().binary(),
            charts.ca_file(),
        );
        self.fipd.write_config(&config).unwrap();
    }

    async fn restart(&mut self) {
        self.fipd.restart().await.unwrap();
        self.fipd.wait_ready(DEADLINE).await.unwrap();
    }

    /// Of charts of the repository, for every guest with the label.
    fn settings(&self) -> Settings {
        Settings::from([
            ("operateGuestClusterInterval", "10".to_owned()),
            ("kubevipChartRepoUrl", self.ground.charts.repository()),
        ])
    }

    /// Makes these the keys of the ConfigMap.
    async fn configure(&self, settings: &Settings) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": CONFIG }, "data": settings,
        });
        let manager = PatchParams::apply("admin").force();
        let maps: Api<ConfigMap> = Api::namespaced(self.objects.client.clone(), NAMESPACE);
        maps.patch(CONFIG, &manager, &Patch::Apply(&map))
            .await
            .unwrap();
    }

    async fn apply(&self, object: Value) {
        let rancher = &self.ground.site.rancher;
        rancher.apply(&object.to_string()).await.unwrap();
    }

    fn cluster(&self, name: &str) -> &Downstream {
        self.ground.site.cluster(name).unwrap()
    }

    /// Removes what the test before left.
    async fn clean(&self) {
        self.objects.remove_all().await.unwrap();
        let client = &self.objects.client;
        let all = DeleteParams::default();
        let everything = ListParams::default();
        let clusters: Api<fipd_crds::management::Cluster> = Api::all(client.clone());
        for cluster in clusters.list(&everything).await.unwrap() {
            let name = cluster.metadata.name.unwrap();
            if name != "local" && name != "c-m-harvester" {
                clusters.delete(&name, &all).await.unwrap();
            }
        }
        let made: Api<fipd_crds::provisioning::Cluster> = Api::namespaced(client.clone(), FLEET);
        made.delete_collection(&all, &everything).await.unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
        maps.delete_collection(&all, &everything).await.unwrap();
        let events: Api<Event> = Api::all(client.clone());
        for event in events.list(&everything).await.unwrap() {
            let meta = event.metadata;
            let events: Api<Event> = Api::namespaced(client.clone(), &meta.namespace.unwrap());
            events.delete(&meta.name.unwrap(), &all).await.unwrap();
        }
        for name in CLUSTERS {
            self.cluster(name).proxy.as_ref().unwrap().set(Fault::Pass);
            guest::clean(self.cluster(name)).await;
        }
    }

    /// Has Rancher make a guest on network `vlan-1`: all of it at once.
    async fn make(&self, name: &str, cluster: &str, labels: Value) -> Guest<'_> {
        let guest = self.guest(name, cluster, labels);
        guest.make().await;
        guest
    }

    /// A guest of this name that runs on a cluster of the site.
    fn guest(&self, name: &str, cluster: &str, labels: Value) -> Guest<'_> {
        let id = format!("c-m-{name}");
        let machines = HarvesterGuest {
            id: Some(id.clone()),
            labels,
            ..HarvesterGuest::new(name, "c-m-harvester", "default/vlan-1")
        };
        Guest {
            bed: self,
            id,
            cluster: self.cluster(cluster),
            machines,
        }
    }

    /// Waits for an Event on the ConfigMap of the configuration, which `kubectl describe` finds by its UID; its text.
    async fn wait_config_event(&self, reason: &str, part: &str) -> String {
        let maps: Api<ConfigMap> = Api::namespaced(self.objects.client.clone(), NAMESPACE);
        let uid = maps.get_opt(CONFIG).await.unwrap();
        let uid = uid.and_then(|map| map.metadata.uid);
        let events: Api<Event> = Api::namespaced(self.objects.client.clone(), NAMESPACE);
        let what = format!("Event {reason} about {part:?} on the ConfigMap");
        wait_until(&what, DEADLINE, || async {
            let all = events.list(&ListParams::default()).await;
            let all = all.map_err(|error| error.to_string())?.items.into_iter();
            let notes = all.filter_map(|one| {
                let on = one.regarding.unwrap_or_default();
                let same = on.kind.as_deref() == Some("ConfigMap")
                    && on.name.as_deref() == Some(CONFIG)
                    && on.namespace.as_deref() == Some(NAMESPACE)
                    && (uid.is_none() || on.uid == uid)
                    && one.reason.as_deref() == Some(reason);
                same.then_some(one.note?)
            });
            let notes: Vec<String> = notes.collect();
            let found = notes.iter().find(|note| note.contains(part));
            found.cloned().ok_or(format!("{notes:?}"))
        })
        .await
        .unwrap()
    }

    /// The value of a sample, by its name with all labels in their order.
    async fn sample(&self, name: &str) -> Option<f64> {
        let text = self.fipd.get("/metrics").await.unwrap().body;
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    /// The samples for which an alert fires, if they stay so.
    async fn firing(&self, alert: &str) -> Vec<String> {
        let now = self.fipd.get("/metrics").await.unwrap().body;
        holding(&alerts(alert).unwrap()[alert], &now, &now).unwrap()
    }

    /// The value of a series of a guest, by all labels but the guest's.
    async fn series(&self, name: &str, guest: &str, more: &str) -> Option<f64> {
        let text = self.fipd.get("/metrics").await.unwrap().body;
        let label = format!("guestclustername=\"{guest}\"");
        let mut lines = text.lines().filter(|line| {
            line.starts_with(&format!("{name}{{")) && line.contains(&label) && line.contains(more)
        });
        lines.next()?.rsplit_once(' ')?.1.parse().ok()
    }
}

/// The keys of a ConfigMap; `None`: there is none.
async fn texts(api: &Api<ConfigMap>, name: &str) -> Option<BTreeMap<String, String>> {
    let map = api.get_opt(name).await.unwrap()?;
    Some(map.data.unwrap_or_default())
}

/// Secrets in which helm keeps releases, by the names of those that are deployed.
async fn deployed(api: &Api<Secret>) -> BTreeMap<String, Secret> {
    let labels = ListParams::default().labels("owner=helm,status=deployed");
    let all = api.list(&labels).await.unwrap().items.into_iter();
    all.filter_map(|secret| {
        let name = secret.metadata.labels.as_ref()?.get("name")?.clone();
        Some((name, secret))
    })
    .collect()
}
