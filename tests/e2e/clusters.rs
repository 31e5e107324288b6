//! Which cluster a kubeconfig leads to, what runs on it, and what becomes of its leases: the registry against real API
//! servers, with a system of the test's own in place of the controllers.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a panic is the verdict"
)]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fipd::clusters::{
    ClusterSession, ClusterState, ClusterView, Clusters, ClustersOptions, SystemRunner, Trust,
    absence::Presence,
    adoption::{self, Inventory, Sighting},
};
use fipd::config::Config;
use fipd::ipam::{Ipam, IpamError};
use fipd_core::{
    Action, Allocate, Answer, ClusterId, Ends, Holder, Identity, LeaseKey, LeaseState, NetworkId,
    PoolId, PoolSpec, Refusal, Request, System, Timestamp, Want,
};
use fipd_tests::testbed::{
    ControlPlane, ControlPlaneOptions, Fault, Site, SiteOptions, wait_until,
};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(40);
/// One cluster's patience is none of another's business: far less than any deadline of a call.
const PROMPT: Duration = Duration::from_secs(8);

/// A system whose objects are ConfigMaps that say which address they use.
struct Maps(ClusterSession);

fn identity(id: &ClusterId, name: &str) -> Identity {
    format!("rancher-fip/{id}/ConfigMap/default/{name}")
        .parse()
        .unwrap()
}

impl Maps {
    fn api(&self) -> Api<ConfigMap> {
        Api::namespaced(self.0.client.clone(), "default")
    }
}

impl Inventory for Maps {
    fn kinds(&self) -> BTreeSet<&'static str> {
        BTreeSet::from(["ConfigMap"])
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Sighting>, fipd::clusters::CallError>> {
        Box::pin(async {
            let keep = |map: ConfigMap| {
                let address = map
                    .data
                    .as_ref()
                    .and_then(|data| data.get("address"))
                    .map(|text| text.parse().unwrap());
                let key = |address| LeaseKey {
                    network: NetworkId::DEFAULT,
                    address,
                };
                Some(Sighting {
                    holder: Holder {
                        identity: identity(&self.0.id, &map.name_any()),
                        instance: map.uid().unwrap().into(),
                    },
                    tenant: None,
                    uses: address.map(|last| key(last).into()).into_iter().collect(),
                    since: Timestamp(1),
                })
            };
            let what = "list ConfigMaps";
            adoption::complete_list(&self.0, &self.api(), ListParams::default(), what, keep).await
        })
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Presence> {
        Box::pin(async move {
            match self
                .0
                .call("read a ConfigMap", self.api().get(&identity.name))
                .await
            {
                Ok(_) => Presence::Present,
                Err(err) if err.status() == Some(404) => Presence::Gone,
                Err(_) => Presence::Unknown,
            }
        })
    }
}

struct Runner;

impl SystemRunner for Runner {
    fn run(&self, session: ClusterSession, system: System) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let maps = Maps(session.clone());
            if adoption::first(&session, &system, &maps).await.is_some() {
                adoption::keep(&session, &system, &maps).await;
            }
        })
    }
}

/// An address book and a registry over a configuration file of the test's.
struct Bed {
    dir: tempfile::TempDir,
    ipam: Ipam,
    clusters: Clusters,
    cancel: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Bed {
    async fn start(files: &[(&str, &str)], config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        std::fs::write(dir.path().join("fipd.toml"), config).unwrap();
        let clock = || Timestamp(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64);
        let (ipam, _writer) = Ipam::start(&dir.path().join("data"), Arc::new(clock)).unwrap();
        let cancel = CancellationToken::new();
        let path = dir.path().join("fipd.toml");
        let config = Config::load_with(*fipd::systems::SYSTEMS, &path).unwrap();
        let options = ClustersOptions {
            config,
            trust: Trust::default(),
            data_dir: None,
        };
        let (clusters, task) =
            Clusters::start(options, ipam.clone(), Arc::new(Runner), cancel.clone())
                .await
                .unwrap();
        Self {
            dir,
            ipam,
            clusters,
            cancel,
            task: Some(task),
        }
    }

    /// As an editor or a Secret's mount does it: a rename over the file.
    fn write(&self, name: &str, text: &str) {
        let half = self.dir.path().join("half");
        std::fs::write(&half, text).unwrap();
        std::fs::rename(half, self.dir.path().join(name)).unwrap();
    }

    /// Another configuration, as the daemon puts it in force; one with errors changes nothing.
    async fn configure(&self, text: &str) -> Result<(), String> {
        self.write("fipd.toml", text);
        let config = Config::load_with(*fipd::systems::SYSTEMS, &self.dir.path().join("fipd.toml"));
        let config = config.map_err(|error| error.to_string())?;
        self.clusters.configure(config).await;
        Ok(())
    }

    async fn until(&self, what: &str, within: Duration, so: impl Fn(&Clusters) -> bool) {
        let look = || async {
            if so(&self.clusters) {
                Ok(())
            } else {
                Err(format!("{:#?}", self.clusters.views()))
            }
        };
        wait_until(what, within, look).await.unwrap();
    }

    async fn until_state(&self, name: &str, state: ClusterState) -> ClusterView {
        self.until(&format!("{name} is {}", state.as_str()), SOON, |clusters| {
            clusters.view(name).is_some_and(|view| view.state == state)
        })
        .await;
        self.clusters.view(name).unwrap()
    }

    async fn until_lease(
        &self,
        what: &str,
        address: &str,
        so: impl Fn(Option<(LeaseState, String)>) -> bool,
    ) {
        self.until(what, SOON, |_| so(self.lease(address))).await;
    }

    /// State and owner's name of the lease of an address.
    fn lease(&self, address: &str) -> Option<(LeaseState, String)> {
        let key = LeaseKey {
            network: NetworkId::DEFAULT,
            address: address.parse::<IpAddr>().unwrap(),
        };
        self.ipam.read(|ledger| {
            ledger.lease(key).map(|lease| {
                (
                    lease.state,
                    lease.owner().unwrap().identity.name.to_string(),
                )
            })
        })
    }

    async fn pool(&self) -> PoolId {
        self.pool_of("10.7.0.0/24").await
    }

    async fn pool_of(&self, addresses: &str) -> PoolId {
        let spec = PoolSpec {
            ends: Ends::own_default(fipd_core::Family::V4),
            ..PoolSpec::own("own", vec![addresses.to_owned().try_into().unwrap()])
        };
        let actor = "test".into();
        let request = Request::CreatePool { spec, actor };
        let answer = self.ipam.submit(request).await.unwrap();
        let Answer::Pool(pool) = answer else {
            panic!("{answer:?}");
        };
        pool.id
    }

    async fn allocate(&self, pool: PoolId) -> Result<Answer, IpamError> {
        self.allocate_to("fipd/Test/ns/one", pool, None).await
    }

    async fn allocate_to(
        &self,
        owner: &str,
        pool: PoolId,
        waiting_since: Option<Timestamp>,
    ) -> Result<Answer, IpamError> {
        let holder = Holder {
            identity: owner.parse().unwrap(),
            instance: "".into(),
        };
        let wants = vec![Want {
            pool: pool.into(),
            address: None,
            count: 1,
        }];
        let request = Allocate {
            holder,
            tenant: None,
            wants,
            waiting_since,
            by_admin: false,
            share: None,
            probe: false,
            actor: "test".into(),
        };
        self.ipam.submit(Request::Allocate(request)).await
    }

    /// Names of the clusters the default network waits for.
    fn holds(&self) -> Vec<String> {
        self.ipam.read(|ledger| {
            ledger
                .holds(NetworkId::DEFAULT)
                .iter()
                .map(ToString::to_string)
                .collect()
        })
    }

    async fn stop(mut self) {
        self.cancel.cancel();
        tokio::time::timeout(Duration::from_secs(10), self.task.take().unwrap())
            .await
            .expect("a prompt stop")
            .unwrap();
    }
}

fn cluster(name: &str) -> String {
    format!(
        "[[cluster]]\nname = \"{name}\"\nkubeconfig = \"{name}.kubeconfig\"\nsystems = [\"rancher-fip\"]\nsightings = \"off\"\n\n"
    )
}

async fn planes(names: &[&str]) -> Vec<ControlPlane> {
    ControlPlane::start_many(names, &ControlPlaneOptions::default())
        .await
        .unwrap()
}

async fn use_address(client: &Client, name: &str, address: &str) {
    let map: ConfigMap = serde_json::from_value(
        json!({ "metadata": { "name": name }, "data": { "address": address } }),
    )
    .unwrap();
    Api::namespaced(client.clone(), "default")
        .create(&PostParams::default(), &map)
        .await
        .unwrap();
}

async fn remove(client: &Client, name: &str) {
    Api::<ConfigMap>::namespaced(client.clone(), "default")
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_names_of_one_cluster_are_one_and_a_stranger_under_a_known_name_is_stopped() {
    let planes = planes(&["one", "two"]).await;
    let (one, two) = (&planes[0], &planes[1]);
    use_address(&one.client().await.unwrap(), "a", "10.7.0.9").await;
    let files = [
        ("a.kubeconfig", one.kubeconfig_yaml()),
        ("b.kubeconfig", one.kubeconfig_yaml()),
    ];
    let bed = Bed::start(&files, &cluster("a")).await;

    let first = bed.until_state("a", ClusterState::Ready).await;
    // Whose name is known first leads, wherever the other stands.
    let both = cluster("b") + &cluster("a");
    bed.configure(&both).await.unwrap();
    let second = bed.until_state("b", ClusterState::Joined).await;
    assert_eq!(first.id, second.id);
    assert!(second.last_error.unwrap().contains("the same cluster as a"));
    bed.until_lease("adopted", "10.7.0.9", |lease| {
        lease == Some((LeaseState::Allocated, "a".into()))
    })
    .await;
    bed.until("nothing waits", SOON, |_| bed.holds().is_empty())
        .await;
    let names: BTreeSet<String> = bed.ipam.read(|ledger| {
        let record = ledger.cluster_by_name("b").unwrap();
        record.names.iter().map(ToString::to_string).collect()
    });
    assert_eq!(names, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    assert_eq!(bed.clusters.sessions().len(), 1);

    // Both kubeconfigs now lead to an empty cluster.
    bed.write("a.kubeconfig", two.kubeconfig_yaml());
    bed.write("b.kubeconfig", two.kubeconfig_yaml());
    let conflict = bed.until_state("a", ClusterState::IdentityConflict).await;
    let why = conflict.last_error.unwrap();
    assert!(
        why.contains(&*first.id.clone().unwrap().0) && why.contains("fipd clusters forget a"),
        "{why}"
    );
    bed.until("no session", SOON, |clusters| {
        clusters.sessions().is_empty()
    })
    .await;
    assert_eq!(
        bed.lease("10.7.0.9"),
        Some((LeaseState::Allocated, "a".into()))
    );

    // Back again: as if nothing had been.
    bed.write("a.kubeconfig", one.kubeconfig_yaml());
    bed.until_state("a", ClusterState::Ready).await;
    let refused = bed.clusters.forget("a", "test".into()).await.unwrap_err();
    assert!(refused.to_string().contains("in use"), "{refused}");

    // The old cluster is gone for good: the new one may have the name.
    bed.write("a.kubeconfig", two.kubeconfig_yaml());
    bed.until_state("a", ClusterState::IdentityConflict).await;
    bed.until("no session", SOON, |clusters| {
        clusters.sessions().is_empty()
    })
    .await;
    assert_eq!(bed.clusters.forget("a", "test".into()).await.unwrap(), 1);
    // Neither name is known any more: the first of the configuration leads.
    let new = bed.until_state("b", ClusterState::Ready).await;
    bed.until_state("a", ClusterState::Joined).await;
    assert_ne!(new.id, first.id);
    assert_eq!(bed.lease("10.7.0.9"), None);
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_never_answers_costs_the_others_nothing_but_is_waited_for() {
    let planes = planes(&["well", "mute"]).await;
    let proxy = planes[1].fault_proxy().unwrap();
    proxy.set(Fault::BlackHole);
    use_address(&planes[1].client().await.unwrap(), "m", "10.7.0.1").await;
    let files = [
        ("well.kubeconfig", planes[0].kubeconfig_yaml()),
        ("mute.kubeconfig", proxy.kubeconfig_yaml()),
    ];
    let bed = Bed::start(&files, &(cluster("mute") + &cluster("well"))).await;
    let pool = bed.pool().await;
    assert_eq!(
        bed.holds(),
        ["cluster mute (rancher-fip)", "cluster well (rancher-fip)"],
        "known before anything connects"
    );

    bed.until("the other is adopted", PROMPT, |_| {
        bed.holds() == ["cluster mute (rancher-fip)"]
    })
    .await;
    let held = bed.allocate(pool).await.unwrap_err();
    assert!(
        matches!(&held, IpamError::Refused(Refusal::NetworkHeld { .. }))
            && held.to_string().contains("mute"),
        "{held}"
    );
    let mute = bed.until_state("mute", ClusterState::Connecting).await;
    assert_eq!(mute.id, None);
    bed.until("its error says why", SOON, |clusters| {
        clusters
            .view("mute")
            .unwrap()
            .last_error
            .is_some_and(|error| error.contains("no answer"))
    })
    .await;

    // It answers: it is adopted before anything is given, and what it uses is not given.
    proxy.set(Fault::Pass);
    bed.until("adopted", Duration::from_secs(90), |_| {
        bed.holds().is_empty()
    })
    .await;
    let answer = bed.allocate(pool).await.unwrap();
    let Answer::Granted { leases, .. } = &answer else {
        panic!("{answer:?}");
    };
    assert_eq!(leases[0].key.address.to_string(), "10.7.0.2");

    // Silent again, it is degraded and holds nobody back.
    proxy.set(Fault::Cut);
    bed.until_state("mute", ClusterState::Degraded).await;
    assert!(bed.holds().is_empty());
    assert_eq!(
        bed.lease("10.7.0.1"),
        Some((LeaseState::Allocated, "m".into()))
    );
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_may_skip_a_cluster_that_cannot_be_reached() {
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: m\ncontexts: [{name: m, context: {cluster: c, user: u}}]\n\
                clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: x}}]\n";
    let bed = Bed::start(&[("gone.kubeconfig", text)], &cluster("gone")).await;
    let pool = bed.pool().await;
    assert!(bed.allocate(pool).await.is_err());
    assert!(
        bed.clusters
            .skip_adoption("gone", "nowhere", "test".into())
            .await
            .is_err()
    );
    assert!(
        bed.clusters
            .skip_adoption("other", "default", "test".into())
            .await
            .is_err()
    );
    bed.clusters
        .skip_adoption("gone", "default", "test".into())
        .await
        .unwrap();
    assert!(bed.allocate(pool).await.is_ok());
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_come_change_and_go_with_the_files() {
    let planes = planes(&["a", "b"]).await;
    let (a, b) = (&planes[0], &planes[1]);
    use_address(&a.client().await.unwrap(), "ma", "10.7.0.11").await;
    use_address(&b.client().await.unwrap(), "mb", "10.7.0.12").await;
    let with_user = |key: &str, value: serde_json::Value| {
        let mut kubeconfig: serde_json::Value =
            serde_saphyr::from_str(a.kubeconfig_yaml()).unwrap();
        kubeconfig["users"][0]["user"] = json!({ key: value });
        kubeconfig.to_string()
    };
    let stale = with_user("token", json!("stale"));
    let files = [
        ("a.kubeconfig", &*stale),
        ("b.kubeconfig", b.kubeconfig_yaml()),
    ];
    let bed = Bed::start(&files, &cluster("a")).await;

    // A rotated credential is picked up from the file.
    bed.until("refused by the API server", SOON, |clusters| {
        clusters
            .view("a")
            .unwrap()
            .last_error
            .is_some_and(|error| error.contains("nauthorized"))
    })
    .await;
    bed.write("a.kubeconfig", a.kubeconfig_yaml());
    let ready = bed.until_state("a", ClusterState::Ready).await;
    bed.until_lease("adopted", "10.7.0.11", |lease| lease.is_some())
        .await;

    // A kubeconfig that would run a program is refused and breaks nothing that runs.
    bed.write(
        "a.kubeconfig",
        &with_user("exec", json!({ "command": "evil" })),
    );
    bed.until("refused", SOON, |clusters| {
        clusters
            .view("a")
            .unwrap()
            .last_error
            .is_some_and(|error| error.contains("exec"))
    })
    .await;
    assert_eq!(bed.clusters.sessions().len(), 1);
    bed.write("a.kubeconfig", a.kubeconfig_yaml());
    bed.until_state("a", ClusterState::Ready).await;

    // A second cluster is added, a broken file changes nothing, the first is removed.
    bed.configure(&(cluster("a") + &cluster("b")))
        .await
        .unwrap();
    bed.until_state("b", ClusterState::Ready).await;
    bed.until_lease("adopted", "10.7.0.12", |lease| lease.is_some())
        .await;
    let wrong = bed.configure("[[cluster]]\nnam = \"a\"\n").await;
    assert!(wrong.unwrap_err().contains("line 2"));
    assert_eq!(bed.clusters.sessions().len(), 2);

    // What it waited for is waited for no more when it is gone.
    let pool = bed.pool_of("10.9.0.1/32").await;
    bed.allocate(pool).await.unwrap();
    let gone = format!("rancher-fip/{}/Test/ns/a", ready.id.as_ref().unwrap());
    for (since, owner) in [(1, &*gone), (2, "fipd/Test/ns/behind")] {
        let full = bed.allocate_to(owner, pool, Some(Timestamp(since))).await;
        assert!(full.is_err(), "{full:?}");
    }
    assert_eq!(bed.ipam.read(|ledger| ledger.waiters(pool, 9).len()), 2);
    bed.configure(&cluster("b")).await.unwrap();
    bed.until("its place is left", SOON, |_| {
        let waiters = bed.ipam.read(|ledger| ledger.waiters(pool, 9));
        waiters.len() == 1 && &*waiters[0].1.name == "behind"
    })
    .await;
    bed.until_lease("orphaned", "10.7.0.11", |lease| {
        lease == Some((LeaseState::Orphaned, "ma".into()))
    })
    .await;
    let left = bed.until_state("a", ClusterState::Stopped).await;
    assert_eq!((left.id, left.leases), (ready.id, 1));

    // A system that is switched off leaves its leases behind as well.
    bed.configure(&cluster("b").replace("\"rancher-fip\"", ""))
        .await
        .unwrap();
    bed.until_lease("orphaned", "10.7.0.12", |lease| {
        lease == Some((LeaseState::Orphaned, "mb".into()))
    })
    .await;

    // Whoever returns gets what it had.
    bed.configure(&(cluster("a") + &cluster("b")))
        .await
        .unwrap();
    for (address, name) in [("10.7.0.11", "ma"), ("10.7.0.12", "mb")] {
        bed.until_lease("adopted again", address, |lease| {
            lease == Some((LeaseState::Allocated, name.into()))
        })
        .await;
    }
    bed.stop().await;
}

fn rancher_clusters(client: Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("management.cattle.io", "v3", "Cluster");
    Api::all_with(
        client,
        &ApiResource::from_gvk_with_plural(&kind, "clusters"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_are_found_through_ranchers_secrets() {
    let site = Site::start(&SiteOptions::of(&["blue", "green"]))
        .await
        .unwrap();
    let rancher = site.rancher.client().await.unwrap();
    let blue = site.cluster("blue").unwrap();
    use_address(&blue.plane.client().await.unwrap(), "m", "10.7.0.21").await;
    // Rancher keeps a second Secret for it, by display name.
    site.publish_kubeconfig(&rancher, "blue", blue.kubeconfig())
        .await
        .unwrap();
    // People name clusters as they like; no object can have such a name.
    let green = site.cluster("green").unwrap();
    use_address(&green.plane.client().await.unwrap(), "g", "10.7.0.22").await;
    let awkward = json!({ "spec": { "displayName": "Green Hills / Site 2" } });
    rancher_clusters(rancher.clone())
        .patch("c-m-green", &PatchParams::default(), &Patch::Merge(awkward))
        .await
        .unwrap();
    // And a Secret that would run a program.
    let evil = "apiVersion: v1\nkind: Config\ncurrent-context: m\ncontexts: [{name: m, context: {cluster: c, user: u}}]\n\
                clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {exec: {command: evil}}}]\n";
    site.publish_kubeconfig(&rancher, "evil", evil)
        .await
        .unwrap();

    let config =
        cluster("rancher") + "[discovery]\ncluster = \"rancher\"\nsystems = [\"rancher-fip\"]\n";
    let bed = Bed::start(
        &[("rancher.kubeconfig", site.rancher_kubeconfig())],
        &config,
    )
    .await;
    assert!(
        bed.holds()
            .contains(&"cluster rancher (discovery)".to_owned()),
        "{:?}",
        bed.holds()
    );
    let view = bed.until_state("c-m-blue", ClusterState::Ready).await;
    let awkward = bed.until_state("c-m-green", ClusterState::Ready).await;
    assert!(
        awkward
            .names
            .iter()
            .any(|name| &**name == "Green Hills / Site 2"),
        "{awkward:?}"
    );
    assert!(
        view.discovered && view.names.iter().any(|name| &**name == "blue"),
        "{view:?}"
    );
    assert_eq!(
        bed.clusters.sessions().len(),
        3,
        "two Secrets of one cluster are one session"
    );
    for address in ["10.7.0.21", "10.7.0.22"] {
        bed.until_lease("adopted", address, |lease| lease.is_some())
            .await;
    }
    let evil = bed.until_state("evil", ClusterState::Refused).await;
    assert!(evil.last_error.unwrap().contains("exec"));
    bed.until("only the refused one is waited for", SOON, |_| {
        bed.holds() == ["cluster evil (rancher-fip)"]
    })
    .await;
    bed.clusters
        .skip_adoption("evil", "default", "test".into())
        .await
        .unwrap();
    bed.until("the source counts as adopted", SOON, |_| {
        let discovery = "discovery".parse().unwrap();
        let id = bed.clusters.view("rancher").unwrap().id.unwrap();
        bed.ipam
            .read(|ledger| ledger.adopted(NetworkId::DEFAULT, &id, &discovery))
    })
    .await;

    // One Secret goes, the other still leads there; both go: the leases stay as they are.
    let secrets: Api<Secret> = Api::namespaced(rancher.clone(), "fleet-default");
    secrets
        .delete("c-m-blue-kubeconfig", &DeleteParams::default())
        .await
        .unwrap();
    secrets
        .delete("evil-kubeconfig", &DeleteParams::default())
        .await
        .unwrap();
    bed.until("the refused one is gone", SOON, |clusters| {
        clusters.view("evil").is_none()
    })
    .await;
    bed.until_state("c-m-blue", ClusterState::Ready).await;
    secrets
        .delete("blue-kubeconfig", &DeleteParams::default())
        .await
        .unwrap();
    bed.until_state("c-m-blue", ClusterState::Stopped).await;
    bed.until("its session ends", SOON, |clusters| {
        clusters.sessions().len() == 2
    })
    .await;
    assert_eq!(
        bed.lease("10.7.0.21"),
        Some((LeaseState::Allocated, "m".into()))
    );

    // Its Cluster object goes too: it has left. So does all of the one with the awkward name.
    secrets
        .delete("c-m-green-kubeconfig", &DeleteParams::default())
        .await
        .unwrap();
    for id in ["c-m-green", "c-m-blue"] {
        rancher_clusters(rancher.clone())
            .delete(id, &DeleteParams::default())
            .await
            .unwrap();
    }
    for (address, name) in [("10.7.0.21", "m"), ("10.7.0.22", "g")] {
        bed.until_lease("orphaned", address, |lease| {
            lease == Some((LeaseState::Orphaned, name.into()))
        })
        .await;
    }
    assert_eq!(bed.clusters.discovery().unwrap().last_error, None);
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vanished_owner_is_released_late_and_many_only_by_an_admins_word() {
    let planes = planes(&["a", "b"]).await;
    let (few, many) = (
        planes[0].client().await.unwrap(),
        planes[1].client().await.unwrap(),
    );
    use_address(&few, "gone", "10.7.0.31").await;
    use_address(&few, "stays", "10.7.0.32").await;
    for n in 0..6 {
        use_address(&many, &format!("m{n}"), &format!("10.7.0.{}", 40 + n)).await;
    }
    let files = [
        ("a.kubeconfig", planes[0].kubeconfig_yaml()),
        ("b.kubeconfig", planes[1].kubeconfig_yaml()),
    ];
    let bed = Bed::start(&files, &(cluster("a") + &cluster("b"))).await;
    for address in ["10.7.0.31", "10.7.0.45"] {
        bed.until_lease("adopted", address, |lease| lease.is_some())
            .await;
    }
    let begin = std::time::Instant::now();
    remove(&few, "gone").await;
    for n in 0..6 {
        remove(&many, &format!("m{n}")).await;
    }
    let late = Duration::from_secs(120);
    bed.until("released", late, |_| bed.lease("10.7.0.31").is_none())
        .await;
    assert!(
        begin.elapsed() >= Duration::from_secs(60),
        "released after {:?}",
        begin.elapsed()
    );
    assert!(bed.lease("10.7.0.32").is_some());
    bed.until("held back", late, |clusters| {
        !clusters.view("b").unwrap().held_back.is_empty()
    })
    .await;
    let held = bed.clusters.view("b").unwrap().held_back.remove(0);
    assert_eq!((held.leases, held.limit), (6, 5));
    assert!(
        (40..46).all(|n| bed.lease(&format!("10.7.0.{n}")).is_some()),
        "all or none"
    );
    assert!(bed.clusters.confirm_release("a", &"test".into()).is_err());
    assert_eq!(
        bed.clusters
            .confirm_release("b", &"user:ada".into())
            .unwrap(),
        6
    );
    bed.until("released by the admin's word", SOON, |_| {
        (40..46).all(|n| bed.lease(&format!("10.7.0.{n}")).is_none())
    })
    .await;
    let audited = bed.ipam.reader().audit_page(None, 6).unwrap();
    assert!(
        audited
            .iter()
            .all(|(_, row)| row.action == Action::Released && &*row.actor == "user:ada"),
        "{audited:?}"
    );
    bed.until("nothing is held back", SOON, |clusters| {
        clusters.view("b").unwrap().held_back.is_empty()
    })
    .await;
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mounted_secret_changes_by_a_swapped_link() {
    let planes = planes(&["a"]).await;
    let bed = Bed::start(&[], &cluster("a")).await;
    bed.until_state("a", ClusterState::Refused).await;
    let swap = |version: &str, text: &str| {
        let at = |name: &str| -> PathBuf { bed.dir.path().join(name) };
        std::fs::create_dir(at(version)).unwrap();
        std::fs::write(at(version).join("a.kubeconfig"), text).unwrap();
        std::os::unix::fs::symlink(version, at("data-next")).unwrap();
        std::fs::rename(at("data-next"), at("data-now")).unwrap();
    };
    swap("v1", "not a kubeconfig");
    std::os::unix::fs::symlink("data-now/a.kubeconfig", bed.dir.path().join("a.kubeconfig"))
        .unwrap();
    bed.until("read", SOON, |clusters| {
        clusters
            .view("a")
            .unwrap()
            .last_error
            .is_some_and(|error| !error.contains("cannot be read"))
    })
    .await;
    swap("v2", planes[0].kubeconfig_yaml());
    bed.until_state("a", ClusterState::Ready).await;
    bed.stop().await;
}
