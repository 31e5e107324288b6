//! A guest that Rancher makes gets its address, the ConfigMap and both releases by itself.

use std::time::Instant;

use super::guest::chart_version;
use super::*;

impl Guest<'_> {
    /// Waits for both releases, of these versions of their charts.
    async fn wait_charts(&self, kube_vip: &str, cloud_provider: &str) {
        self.wait_releases(&[KUBE_VIP, CLOUD_PROVIDER]).await;
        let daemon_set = self.daemon_set(KUBE_VIP).await.unwrap();
        let version = chart_version(daemon_set.metadata.labels.as_ref());
        assert_eq!(version, Some(kube_vip), "{}", self.name());
        let deployment = self.deployment(CLOUD_PROVIDER).await.unwrap();
        let version = chart_version(deployment.metadata.labels.as_ref());
        assert_eq!(version, Some(cloud_provider), "{}", self.name());
        self.wait_reason("Ready").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_guest_gets_its_address_and_charts_of_a_repository_a_registry_and_a_path() {
    let bed = Bed::start(&[]).await;
    let on = || json!({ "kube-vip": "true" });
    let first = bed.guest("new-first", "one", on());
    first.write_machines().await;
    first.make_cluster().await;
    first.make_kubeconfig().await;
    let begun = Instant::now();
    first.make_namespace().await;
    assert_eq!(first.wait_address().await, "10.90.0.2");
    println!("namespace to address: {:?}", begun.elapsed());
    let fip = bed.objects.get(&first.fip()).await.unwrap();
    let annotations = json!({
        "clustername": "new-first", "fiprange": "vlan-1", "updateConfigMap": "true",
    });
    assert_eq!(fip["metadata"]["annotations"], annotations);
    let made = first.wait_event("FloatingIPMade").await;
    assert!(made.contains("vlan-1"), "{made}");
    first
        .wait_map("its address", &[("cidr-global", "10.90.0.2/32")])
        .await;
    let provided = first.provided("any").await.map(|one| one.to_string());
    assert_eq!(provided.as_deref(), Some("10.90.0.2"));
    // Of the newest version where none is named.
    first.wait_charts("0.6.4", "0.2.7").await;
    first.wait_event("KubeVipReady").await;

    let charts = &bed.ground.charts;
    let mut settings = bed.settings();
    settings.extend([
        ("kubevipChartRef", charts.oci(KUBE_VIP)),
        ("kubevipChartVersion", "0.6.3".to_owned()),
        ("kubevipCloudProviderChartRef", charts.oci(CLOUD_PROVIDER)),
        ("kubevipCloudProviderChartVersion", "0.2.6".to_owned()),
    ]);
    bed.configure(&settings).await;
    let second = bed.make("new-second", "two", on()).await;
    assert_eq!(second.wait_address().await, "10.90.0.3");
    second.wait_charts("0.6.3", "0.2.6").await;

    let path = |chart: &str| Charts::local(chart).display().to_string();
    let mut settings = bed.settings();
    settings.extend([
        ("kubevipChartRef", path(KUBE_VIP)),
        ("kubevipCloudProviderChartRef", path(CLOUD_PROVIDER)),
    ]);
    bed.configure(&settings).await;
    let third = bed.make("new-third", "three", on()).await;
    third
        .wait_map("its address", &[("cidr-global", "10.90.0.4/32")])
        .await;
    third.wait_charts("0.6.4", "0.2.7").await;

    // Without `kubevipUpdate` what is installed stays as it is.
    let once = [CLOUD_PROVIDER, KUBE_VIP].map(|name| (name.to_owned(), "1".to_owned()));
    for guest in [&first, &second] {
        assert_eq!(guest.revisions().await, BTreeMap::from(once.clone()));
    }
    second.wait_charts("0.6.3", "0.2.6").await;
    let installs =
        |more: &'static str| bed.series("kubefipoperator_guestcluster_events", "new-first", more);
    assert_eq!(
        installs("event=\"kubevip_install\",status=\"success\"").await,
        Some(1.0)
    );
    assert_eq!(
        installs("event=\"configmap_management\",status=\"success\"").await,
        Some(1.0)
    );

    // On a network that no range is of.
    let mut other = bed.guest("new-other", "one", json!({}));
    let interfaces = json!([{ "networkName": "default/vlan-9" }]);
    other.machines.network_info = json!({ "interfaces": interfaces }).to_string();
    other.write_machines().await;
    other.make_cluster().await;
    other.make_namespace().await;
    let made = other.wait_event("FloatingIPMade").await;
    assert!(
        made.contains("the first one by name is taken: vlan-1"),
        "{made}"
    );
}
