//! One guest of a Rancher with canned answers.

use std::time::Duration;

use fipd_core::System;
use fipd_crds::labels::CONFIG_NAME;
use serde_json::{Value, json};

use super::*;
use crate::{
    clock,
    clusters::testing,
    config,
    controllers::{
        queue::Next,
        rancher_fip::{
            clusters::{LoadBalancer, RancherCluster},
            second_look::APART,
        },
        remote::{Remote, testing::canned},
    },
    ipam::Ipam,
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
        let (own, board) = (Own::default(), GuestBoard::default());
        let guests = Guests::new(site, data, Arc::new(events), own, board, Some(helm));
        Self { guests, _dir: dir }
    }

    fn map(&self, name: &str, pairs: &[(&str, &str)]) {
        let key = Key::new(self.guests.app_namespace(), name);
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        (self.guests.seen.maps).set(&key, pairs.iter().map(owned).collect());
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
    RancherCluster::slim(serde_json::from_value(object).unwrap())
}

const METALLB: (&str, u16, &str) = (
    "GET",
    200,
    r#"{ "items": [{ "metadata": { "labels": {
        "version": "1", "status": "deployed", "app.kubernetes.io/managed-by": "fipd"
    } } }] }"#,
);
const NO_HELM_CHARTS: (&str, u16, &str) = ("GET", 404, "");
const UNLABELLED: &str = r#"{ "metadata": { "labels": { "rancher-fip": "enabled" } } }"#;

/// Which load balancer holds for a guest that has fipd's MetalLB, and why it is not what the label means.
async fn typed(bench: &Bench, labels: Value) -> (LoadBalancer, Option<&'static str>) {
    let (guest, _) = canned(&[NO_HELM_CHARTS, METALLB]);
    let settings = bench.guests.settings();
    let cluster = cluster(labels);
    let typed = bench.guests.typed("c-1", &cluster, &guest, &settings);
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
    let (guest, calls) = canned(&[NO_HELM_CHARTS]);
    bench.guests.clients.know("c-1", "kube", guest.clone());
    let error = bench.guests.remove_charts("c-1", &guest).await.unwrap_err();
    assert_eq!(error.reason, "LabelChanged");
    assert_eq!((asked.lock().len(), calls.lock().len()), (1, 1));
}

#[tokio::test]
async fn what_the_settings_said_is_known_after_a_restart() {
    let (rancher, asked) = canned(&[("PATCH", 404, "none"), ("POST", 200, "{}")]);
    let bench = Bench::new(rancher).await;
    let said = [("RancherFipApiServerURL", "https://fip.example.net/v1")];
    bench.map(CONFIG_NAME, &said);
    bench
        .guests
        .keep_said()
        .await
        .unwrap_or_else(|stop| panic!("{}", stop.text()));
    bench
        .guests
        .keep_said()
        .await
        .unwrap_or_else(|stop| panic!("{}", stop.text()));
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
async fn the_note_of_a_cluster_goes_only_when_it_is_gone_twice() {
    let answers = [
        ("GET", 200, UNLABELLED),
        ("GET", 404, ""),
        ("PATCH", 200, "{}"),
    ];
    let (rancher, asked) = canned(&answers);
    let bench = Bench::new(rancher).await;
    bench.map("fipd-guests", &[("c-1", "rancher-fip-manager")]);
    tokio::time::pause();
    let waits = Next::After(APART);
    assert_eq!(bench.guests.gone("c-1").await, waits);
    assert_eq!(asked.lock().len(), 0);
    tokio::time::advance(APART).await;
    assert_eq!(bench.guests.gone("c-1").await, waits, "a fresh read has it");
    assert_eq!(bench.guests.gone("c-1").await, waits);
    tokio::time::advance(APART).await;
    assert_eq!(bench.guests.gone("c-1").await, Next::Done);
    let body = asked.lock().pop().unwrap().body;
    assert_eq!(body, json!({ "data": { "c-1": null } }));
}
