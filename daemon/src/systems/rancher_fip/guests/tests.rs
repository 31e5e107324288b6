//! One guest of a Rancher with canned answers.

mod moves;

use std::time::Duration;

use fipd_core::System;
use fipd_crds::labels::CONFIG_NAME;
use serde_json::{Value, json};

use super::{plan::GuestContents, *};
use crate::{
    clock,
    clusters::testing,
    config,
    controller::{
        client::{Remote, testing::canned},
        confirm_absence::RECHECK_AFTER,
        queue::Next,
    },
    guests::{access::GuestName, charts::InstalledReleases},
    ipam::Ipam,
    systems::rancher_fip::clusters::{LoadBalancer, RancherCluster},
};

/// A cluster manager, without watches and turns.
struct Bench {
    guests: Arc<Guests>,
    _dir: tempfile::TempDir,
}

impl Bench {
    async fn new(rancher: Remote) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).unwrap();
        let client = kube::Client::new(tower::service_fn(never), "default");
        let session = testing::session(client, &ipam).await;
        let site = Arc::new(Site::new(session, System::rancher_fip()));
        let data = Data::new(site.id.clone(), rancher, site.cancel());
        let quiet = || std::future::ready(());
        let events = Events::start(site.session.recorder.clone(), site.cancel(), quiet);
        let helm = Helm::start(&config::Helm::default(), dir.path(), site.cancel());
        let (own, board) = (OwnEndpoint::default(), GuestBoard::default());
        let guests = Guests::new(site, data, Arc::new(events), own, board, Some(helm));
        Self { guests, _dir: dir }
    }

    fn map(&self, name: &str, pairs: &[(&str, &str)]) {
        let key = Key::new(self.guests.app_namespace(), name);
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        (self.guests.maps.seen).set(&key, pairs.iter().map(owned).collect());
    }
}

async fn never(
    _: http::Request<kube::client::Body>,
) -> Result<http::Response<kube::client::Body>, std::convert::Infallible> {
    std::future::pending().await
}

fn cluster(labels: Value) -> RancherCluster {
    let object = json!({
        "apiVersion": "management.cattle.io/v3", "kind": "Cluster",
        "metadata": { "name": "c-1", "labels": labels }, "spec": { "displayName": "prod" },
    });
    RancherCluster::view(serde_json::from_value(object).unwrap())
}

const METALLB: (&str, u16, &str) = (
    "GET",
    200,
    r#"{ "items": [{ "metadata": { "namespace": "old", "labels": {
        "name": "metallb", "version": "1", "status": "deployed", "app.kubernetes.io/managed-by": "fipd"
    } } }] }"#,
);
const NO_HELM_CHARTS: (&str, u16, &str) = ("GET", 404, "");
const NOTED: &str = r#"{
    "metadata": { "uid": "u", "resourceVersion": "7" }, "data": { "c-1": "rancher-fip-manager" }
}"#;
const UNLABELLED: &str = r#"{ "metadata": { "labels": { "rancher-fip": "enabled" } } }"#;

/// Which load balancer holds for a guest that has fipd's MetalLB, in whichever namespace, and why it is not what the
/// label means.
async fn typed(bench: &Bench, labels: Value) -> (LoadBalancer, Option<&'static str>) {
    let (guest, _) = canned(&[NO_HELM_CHARTS, METALLB]);
    let settings = bench.guests.settings();
    let cluster = cluster(labels);
    let marks = InstalledReleases::read(&guest, SYSTEM).await.unwrap().marks;
    let typed = bench.guests.typed("c-1", &cluster, &settings, &marks);
    let (cluster, held) = typed.await.unwrap();
    (cluster.load_balancer, held.map(|wait| wait.reason()))
}

#[tokio::test]
async fn no_typo_and_no_moment_without_the_label_replaces_a_load_balancer() {
    let changed = r#"{ "metadata": { "labels": {
        "rancher-fip": "enabled", "rancher-fip-lbtype": "metallb"
    } } }"#;
    let (rancher, asked) = canned(&[("GET", 200, changed), ("GET", 200, UNLABELLED)]);
    let bench = Bench::new(rancher).await;
    bench.map(
        CONFIG_NAME,
        &[
            ("PureLBControllerChartName", "purelb"),
            ("PureLBControllerChartRef", "https://x"),
        ],
    );
    let labels = |value: &str| json!({ "rancher-fip": "enabled", "rancher-fip-lbtype": value });
    let held = |reason| (LoadBalancer::MetalLb, Some(reason));
    assert_eq!(typed(&bench, labels("metalb")).await, held("LbTypeInvalid"));
    let none = json!({ "rancher-fip": "enabled" });
    assert_eq!(typed(&bench, none.clone()).await, held("LbTypeGone"));
    assert_eq!(asked.lock().len(), 0);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(typed(&bench, none.clone()).await, held("LabelChanged"));
    assert_eq!(typed(&bench, none).await, (LoadBalancer::PureLb, None));
    let said = typed(&bench, labels("purelb")).await;
    assert_eq!(said, (LoadBalancer::PureLb, None), "somebody says so");
}

#[tokio::test]
async fn a_guest_that_is_switched_on_again_while_it_is_left_keeps_its_releases() {
    let (rancher, asked) = canned(&[("GET", 200, UNLABELLED)]);
    let bench = Bench::new(rancher).await;
    let (guest, calls) = canned(&[NO_HELM_CHARTS, METALLB]);
    bench.guests.access.keep("c-1", "kube", guest.clone());
    let leave = charts::ChartLeave {
        guests: &bench.guests,
        id: "c-1",
    };
    let error = bench
        .guests
        .charts
        .remove_all(("c-1", ("kube".into(), guest.clone())), &leave)
        .await
        .unwrap_err();
    assert_eq!(error.reason, "LabelChanged");
    assert_eq!((asked.lock().len(), calls.lock().len()), (1, 2));
}

async fn keep_said(bench: &Bench) {
    let kept = bench.guests.keep_said().await;
    kept.unwrap_or_else(|stop| panic!("{}", stop.text()));
}

#[tokio::test]
async fn what_the_settings_said_is_known_after_a_restart() {
    let (rancher, asked) = canned(&[("GET", 404, "none"), ("POST", 200, "{}")]);
    let bench = Bench::new(rancher).await;
    let said = [("RancherFipApiServerURL", "https://fip.example.net/v1")];
    bench.map(CONFIG_NAME, &said);
    keep_said(&bench).await;
    keep_said(&bench).await;
    let body = asked.lock().pop().unwrap().body;
    assert_eq!(body["metadata"]["name"], "fipd-settings");
    assert_eq!(body["data"][said[0].0], said[0].1);

    let bench = Bench::new(canned(&[]).0).await;
    bench.map("fipd-settings", &said);
    bench.map("fipd-guests", &[("c-1", "rancher-fip-manager")]);
    let settings = bench.guests.settings_of("c-1");
    assert_eq!(settings.api_url.as_deref(), Some(said[0].1));
    assert!(settings.held, "whatever the namespace");
    bench.map(CONFIG_NAME, &[]);
    assert!(!bench.guests.settings_of("c-1").held);
}

#[tokio::test]
async fn a_copy_of_the_settings_that_is_gone_or_old_is_made_anew_and_keeps_nothing() {
    let old = r#"{
        "metadata": { "uid": "u", "resourceVersion": "7" },
        "data": { "MetalLBControllerChartName": "metallb" }
    }"#;
    let answers = [
        ("GET", 200, old),
        ("PATCH", 409, "changed"),
        ("GET", 200, old),
        ("PATCH", 200, "{}"),
    ];
    let (rancher, asked) = canned(&answers);
    let bench = Bench::new(rancher).await;
    bench.map(CONFIG_NAME, &[("PureLBControllerChartName", "purelb")]);
    // Somebody deleted it; the look is older than what is there.
    let lost = bench.guests.keep_said().await;
    assert!(lost.is_err(), "nothing is written by what is not kept");
    keep_said(&bench).await;
    let body = asked.lock().pop().unwrap().body;
    let exact =
        json!({ "PureLBControllerChartName": "purelb", "MetalLBControllerChartName": null });
    assert_eq!(body["data"], exact);
    assert_eq!(body["metadata"]["resourceVersion"], "7");
    keep_said(&bench).await;
    assert_eq!(asked.lock().len(), 3, "it is as it should be");
}

#[tokio::test]
async fn the_note_of_a_cluster_goes_only_when_it_is_gone_twice() {
    let answers = [
        ("GET", 200, UNLABELLED),
        ("GET", 404, ""),
        ("GET", 404, ""),
        ("GET", 200, NOTED),
        ("PATCH", 200, "{}"),
    ];
    let (rancher, asked) = canned(&answers);
    let bench = Bench::new(rancher).await;
    bench.map("fipd-guests", &[("c-1", "rancher-fip-manager")]);
    tokio::time::pause();
    let waits = Next::After(RECHECK_AFTER);
    assert_eq!(bench.guests.gone("c-1").await, waits, "a fresh read has it");
    assert_eq!(bench.guests.gone("c-1").await, waits);
    tokio::time::advance(RECHECK_AFTER).await;
    assert_eq!(bench.guests.gone("c-1").await, Next::Done);
    let body = asked.lock().pop().unwrap().body;
    assert_eq!(body["data"], json!({ "c-1": null }));
    assert_eq!(body["metadata"]["resourceVersion"], "7", "nobody's is lost");
}

#[tokio::test]
async fn no_release_goes_before_the_next_ones_namespace_is_prepared_nor_for_settings_of_before() {
    let (rancher, _) = canned(&[]);
    let bench = Bench::new(rancher).await;
    let namespace = "RancherFipLBControllerNamespace";
    bench.map(CONFIG_NAME, &[(namespace, "new")]);
    let settings = bench.guests.settings_of("c-1");
    let reason = || {
        let may = bench.guests.may_remove("c-1", &settings);
        may.err().map(|error| error.reason)
    };
    assert_eq!(reason(), Some("ReleaseBusy"));
    let prepare = |namespace: &str| bench.guests.charts.prepare("c-1", Some(namespace));
    prepare("old");
    assert_eq!(reason(), Some("ReleaseBusy"));
    prepare("new");
    assert_eq!(reason(), None);
    bench.map(CONFIG_NAME, &[(namespace, "old")]);
    assert_eq!(reason(), Some("SettingsChanged"));
}

/// A guest that moved from "old" to "new", and whose namespace before holds the Secret of a project.
#[tokio::test]
async fn a_namespace_is_cleared_before_it_is_forgotten() {
    let noted = r#"{
        "metadata": { "uid": "u", "resourceVersion": "7" }, "data": { "c-1": "new old\np-1" }
    }"#;
    let (rancher, asked) = canned(&[("GET", 200, noted), ("PATCH", 200, "{}")]);
    let bench = Bench::new(rancher).await;
    bench.map("fipd-guests", &[("c-1", "new old\np-1")]);
    let (no_charts, none) = (("GET", 404, ""), ("GET", 200, r#"{ "items": [] }"#));
    let settings = bench.guests.settings_of("c-1");
    let (guest, calls) = canned(&[no_charts, none, none, ("GET", 503, "down")]);
    let arrived = bench.guests.arrive("c-1", &guest, &settings).await;
    assert!(arrived.is_err());
    assert_eq!((calls.lock().len(), asked.lock().len()), (4, 0));
    let stays = r#"{ "items": [{ "metadata": { "namespace": "old", "labels": {
        "name": "lb", "version": "1", "status": "deployed", "app.kubernetes.io/managed-by": "fipd"
    } } }] }"#;
    let (guest, calls) = canned(&[no_charts, ("GET", 200, stays)]);
    let arrived = bench.guests.arrive("c-1", &guest, &settings).await;
    assert!(arrived.is_ok(), "its controller goes on");
    assert_eq!((calls.lock().len(), asked.lock().len()), (2, 0));
    let unmarked = r#"{ "items": [{ "metadata": { "labels": {
        "name": "rancher-fip-lb-controller", "version": "1", "status": "deployed"
    } } }] }"#;
    let (guest, calls) = canned(&[no_charts, none, ("GET", 200, unmarked)]);
    let arrived = bench.guests.arrive("c-1", &guest, &settings).await;
    assert!(arrived.is_ok(), "another installed it, and it goes on");
    assert_eq!((calls.lock().len(), asked.lock().len()), (3, 0));
    let secret =
        r#"{ "items": [{ "metadata": { "name": "rancher-fip-config-p-1", "uid": "s" } }] }"#;
    let (guest, calls) = canned(&[
        no_charts,
        none,
        none,
        ("GET", 200, secret),
        ("DELETE", 200, "{}"),
        ("GET", 404, ""),
        ("GET", 404, ""),
    ]);
    let arrived = bench.guests.arrive("c-1", &guest, &settings).await;
    assert!(arrived.is_ok());
    let paths: Vec<String> = calls.lock().iter().map(|call| call.path.clone()).collect();
    assert_eq!(
        paths[4],
        "/api/v1/namespaces/old/secrets/rancher-fip-config-p-1"
    );
    assert_eq!(
        asked.lock().pop().unwrap().body["data"],
        json!({ "c-1": "new\np-1" })
    );
}

#[tokio::test]
async fn a_note_takes_up_what_others_had_given_the_guest() {
    let (rancher, asked) = canned(&[("GET", 404, ""), ("POST", 200, "{}")]);
    let bench = Bench::new(rancher).await;
    let secrets = r#"{ "items": [
        { "metadata": { "name": "rancher-fip-config-p-2" } }, { "metadata": { "name": "cacerts" } }
    ] }"#;
    let (guest, _) = canned(&[("GET", 200, secrets)]);
    let desired = GuestContents {
        namespace: "fip".into(),
        ca: None,
        mappings: None,
        label: None,
        access: vec![],
        releases: vec![],
    };
    let noted = bench.guests.note("c-1", &guest, &desired).await;
    noted.unwrap_or_else(|stop| panic!("{}", stop.text()));
    let body = asked.lock().pop().unwrap().body;
    assert_eq!(body["data"], json!({ "c-1": "fip\np-2" }));
}

#[tokio::test]
async fn a_guest_that_is_left_keeps_no_turn_of_others_while_helm_works() {
    let off = r#"{ "metadata": { "labels": { "rancher-fip": "disabled" } } }"#;
    let kubeconfig = r#"{ "data": { "value": "a3ViZQ==" } }"#;
    let one = [("GET", 200, off), ("GET", 200, kubeconfig)];
    let again = [("GET", 200, off), ("GET", 200, NOTED), ("PATCH", 200, "{}")];
    let answers: Vec<_> = one.iter().chain(&one).chain(&again).copied().collect();
    let (rancher, asked) = canned(&answers);
    let bench = Bench::new(rancher).await;
    bench.map("fipd-guests", &[("c-1", "rancher-fip-manager")]);
    let nothing = ("GET", 200, "{}");
    let (guest, calls) = canned(&[
        nothing,        // it answers
        NO_HELM_CHARTS, // the turn of the charts
        nothing,
        nothing, // it answers again, and is cleared
        nothing,
        ("GET", 404, ""),
        ("GET", 404, ""),
    ]);
    bench.guests.access.keep("c-1", "kube", guest);
    let cluster = cluster(json!({ "rancher-fip": "disabled" }));
    let key = Key::new("", "c-1");
    bench.guests.data.clusters.set(&key, cluster.clone());
    let left = bench.guests.leave("c-1", &cluster, true).await;
    assert!(matches!(left, Next::After(_)), "it waits for the charts");
    assert_eq!(calls.lock().len(), 1);
    let charts = Arc::clone(&bench.guests).reconcile_charts(key).await;
    assert_eq!(charts, Next::Done);
    assert_eq!(bench.guests.leave("c-1", &cluster, true).await, Next::Done);
    let body = asked.lock().pop().unwrap().body;
    assert_eq!(body["data"], json!({ "c-1": null }));
}

#[tokio::test]
async fn a_cluster_is_a_guest_by_its_note_once_all_notes_are_read() {
    let bench = Bench::new(canned(&[]).0).await;
    let guests = &bench.guests;
    let put_into = |name: &str| guests.put_into(&[name.into()]);
    let clusters = &guests.data.clusters;
    clusters.set(&Key::new("", "c-1"), cluster(json!({})));
    bench.map(NOTES, &[("c-1", "fip"), ("c-2", "fip")]);
    assert_eq!(put_into("c-1"), None);
    guests.maps.seen.complete();
    assert_eq!(put_into("c-1"), None, "its name may be another");
    clusters.complete();
    for (name, put) in [("c-1", true), ("prod", true), ("c-2", true), ("c-3", false)] {
        assert_eq!(put_into(name), Some(put), "{name}");
    }
}

#[tokio::test]
async fn of_a_broken_kubeconfig_only_the_place_is_told() {
    // users: [{ name: u, user: { token: hunter2 } }], and in line 4 clusters: hunter2
    let secret = r#"{ "data": {
        "value": "dXNlcnM6Ci0gbmFtZTogdQogIHVzZXI6IHt0b2tlbjogaHVudGVyMn0KY2x1c3RlcnM6IGh1bnRlcjIK"
    } }"#;
    let (rancher, _) = canned(&[("GET", 200, secret)]);
    let bench = Bench::new(rancher).await;
    let guests = &bench.guests;
    let stop = guests
        .access
        .client("c-1", GuestName::Displayed("prod"))
        .await
        .err();
    let Some(guests::Stop::Wait(unready)) = stop else {
        panic!("it cannot be used")
    };
    // What the log, Events and pages have of it.
    let says = serve::waiting(&unready.into());
    assert!(says.message.contains("line 4"), "{says:?}");
    assert!(!says.message.contains("hunter2"), "{says:?}");
}
