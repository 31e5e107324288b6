//! The leader-election Leases of the original programs: fipd does nothing while another holds one, and gives them up as
//! the originals do.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::time::Duration;

use fipd_crds::floating_ip::FloatingIP;
use fipd_tests::scenario::{self, Scenario};
use fipd_tests::testbed::{Fipd, FipdOptions, SiteOptions, wait_until};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

const SOON: Duration = Duration::from_secs(40);
const APP: &str = "rancher-fip-manager";
const MANAGER: &str = "rancher-fip-manager-lock";
const API_SERVER: &str = "rancher-fip-api-server-lock";
const CLUSTER_MANAGER: &str = "rancher-fip-cluster-manager-lock";

struct Bed {
    scenario: Scenario,
    leases: Api<Lease>,
    fips: Api<FloatingIP>,
}

impl Bed {
    /// fipd is not started yet.
    async fn prepare(downstream: &[&str]) -> Self {
        let scenario = Scenario::prepare(&SiteOptions::of(downstream))
            .await
            .unwrap();
        let client = scenario.site.rancher.client().await.unwrap();
        let project = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"c-m-a"}}"#;
        scenario.site.rancher.apply(project).await.unwrap();
        scenario
            .add_pool("net", "10.60.0.0/24", "10.60.0.10", "10.60.0.19")
            .await
            .unwrap();
        Self {
            leases: Api::namespaced(client.clone(), APP),
            fips: Api::namespaced(client, "c-m-a"),
            scenario,
        }
    }

    async fn fip(&self, name: &str) {
        let labels = json!({ "rancher.k8s.binbash.org/project-name": "p-a" });
        let fip = json!({
            "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIP",
            "metadata": { "name": name, "namespace": "c-m-a", "labels": labels },
            "spec": { "floatingIPPool": "net" },
        });
        self.scenario
            .site
            .rancher
            .apply(&fip.to_string())
            .await
            .unwrap();
    }

    async fn address(&self, name: &str) -> Option<String> {
        let fip = self.fips.get(name).await.unwrap();
        let address = fip.status.unwrap_or_default().ip_addr;
        Some(address).filter(|address| !address.is_empty())
    }

    async fn wait_address(&self, name: &str) {
        wait_until(&format!("{name} has an address"), SOON, || async {
            self.address(name).await.ok_or_else(String::new)
        })
        .await
        .unwrap();
    }

    async fn holder(&self, lease: &str) -> String {
        let lease = self.leases.get_opt(lease).await.unwrap();
        let spec = lease.and_then(|lease| lease.spec).unwrap_or_default();
        spec.holder_identity.unwrap_or_default()
    }

    async fn wait_holder(&self, lease: &str, so: impl Fn(&str) -> bool) -> String {
        wait_until(&format!("{lease} changes hands"), SOON, || async {
            let holder = self.holder(lease).await;
            if so(&holder) { Ok(holder) } else { Err(holder) }
        })
        .await
        .unwrap()
    }

    /// An original program takes or renews a lease, or lets go of it where `holder` is empty.
    async fn original(&self, lease: &str, holder: &str) {
        let now = MicroTime(k8s_openapi::jiff::Timestamp::now());
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": lease },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": now },
        });
        let name = lease["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::apply("original").force();
        self.leases
            .patch(name, &params, &Patch::Apply(&lease))
            .await
            .unwrap();
    }

    async fn wait_shown(&self, fipd: &Fipd, cluster: &str, part: &str) {
        wait_until(&format!("{cluster} shows {part:?}"), SOON, || async {
            let shown = fipd.cli(["clusters", "show", cluster]).await;
            let shown = shown.and_then(fipd_tests::testbed::CliOutput::success);
            match shown {
                Ok(text) if text.contains(part) => Ok(()),
                Ok(text) => Err(text),
                Err(error) => Err(format!("{error:#}")),
            }
        })
        .await
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fipd_does_nothing_while_an_original_leads_and_gives_way_when_it_stops() {
    let mut bed = Bed::prepare(&["a"]).await;
    bed.scenario
        .site
        .rancher
        .apply(
            r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"rancher-fip-manager"}}"#,
        )
        .await
        .unwrap();
    // Its clock may be wrong, and it may hold only one of them.
    bed.original(API_SERVER, "original").await;
    bed.fip("one").await;
    let services: Api<Service> =
        Api::namespaced(bed.scenario.client("a").await.unwrap(), "default");
    let service = scenario::service("web", "net").unwrap();
    services
        .create(&PostParams::default(), &service)
        .await
        .unwrap();
    bed.scenario.fipd.restart().await.unwrap();
    let wait = format!("waiting for lease {APP}/{API_SERVER} held by original");
    bed.wait_shown(&bed.scenario.fipd, "rancher", &wait).await;
    bed.wait_shown(
        &bed.scenario.fipd,
        "a",
        "waiting until fipd leads in cluster rancher",
    )
    .await;
    // It goes on renewing.
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_secs(4)).await;
        bed.original(API_SERVER, "original").await;
    }
    assert_eq!(bed.address("one").await, None);
    assert!(scenario::assigned(&services).await.unwrap().is_empty());
    assert_eq!(bed.holder(API_SERVER).await, "original");

    let begun = std::time::Instant::now();
    bed.original(API_SERVER, "").await;
    bed.wait_address("one").await;
    scenario::wait_assigned(&services, 1, SOON).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "{begun:?}");
    let ours = bed.holder(API_SERVER).await;
    assert!(ours.starts_with("fipd_"), "{ours}");
    assert_eq!(bed.holder(MANAGER).await, ours);
    // That program may go on: it is none of what fipd was told to do.
    assert_eq!(bed.holder(CLUSTER_MANAGER).await, "");

    // A program that takes one by force ends what fipd does.
    bed.original(MANAGER, "thief").await;
    let wait = format!("waiting for lease {APP}/{MANAGER} held by thief");
    bed.wait_shown(&bed.scenario.fipd, "rancher", &wait).await;
    bed.fip("two").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(bed.address("two").await, None);
    assert_eq!(bed.holder(API_SERVER).await, "", "let go of the other");
    bed.original(MANAGER, "").await;
    bed.wait_address("two").await;

    // A clean stop lets go of all.
    bed.scenario
        .fipd
        .terminate(Duration::from_secs(15))
        .await
        .unwrap();
    for lease in [MANAGER, API_SERVER] {
        assert_eq!(bed.holder(lease).await, "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_daemons_one_leads_and_the_other_follows_when_it_dies() {
    let mut bed = Bed::prepare(&[]).await;
    bed.scenario.fipd.restart().await.unwrap();
    // The namespace is made, and nobody is waited for.
    let first = bed
        .wait_holder(API_SERVER, |holder| !holder.is_empty())
        .await;
    bed.fip("one").await;
    bed.wait_address("one").await;

    let manages = "[cluster.rancher-fip.cluster-manager]\nenabled = true\n";
    let options = FipdOptions {
        config: Some(scenario::config(&bed.scenario.site, "") + manages),
        arguments: vec!["--lease-lock-name=second-lock".to_owned()],
        ..FipdOptions::default()
    };
    let mut second = Fipd::prepare(options).await.unwrap();
    let kubeconfig = bed.scenario.site.rancher_kubeconfig();
    scenario::write_kubeconfig(&second, "rancher", kubeconfig).unwrap();
    second.restart().await.unwrap();
    let wait = format!("waiting for lease {APP}/{MANAGER} held by {first}");
    bed.wait_shown(&second, "rancher", &wait).await;

    // Killed and started again on the same host, it goes on at once.
    bed.scenario.fipd.restart().await.unwrap();
    let begun = std::time::Instant::now();
    bed.fip("two").await;
    bed.wait_address("two").await;
    assert!(begun.elapsed() < Duration::from_secs(8), "{begun:?}");
    assert_eq!(bed.holder(MANAGER).await, first);

    bed.scenario.fipd.kill9().unwrap();
    let lease = bed.leases.get(MANAGER).await.unwrap().spec.unwrap();
    assert_eq!(lease.lease_duration_seconds, Some(15));
    assert_eq!(lease.holder_identity.as_deref(), Some(&*first));
    let begun = std::time::Instant::now();
    let next = bed
        .wait_holder("second-lock", |holder| !holder.is_empty())
        .await;
    assert_ne!(next, first);
    let waited = begun.elapsed().as_secs();
    assert!((10..=22).contains(&waited), "{waited} s");
    assert_eq!(bed.holder(MANAGER).await, next);
    bed.fip("three").await;
    bed.wait_address("three").await;
}
