//! Guests that do not run on Harvester, networks that a Harvester says, and charts by helm-controller.

use fipd_crds::helm_chart::HelmChart;
use fipd_tests::testbed::HelmController;

use super::*;

const ATTACHMENTS: &str = include_str!("../../crds/network_attachments.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn defect_13_a_guest_on_bare_metal_waits_for_its_range_for_as_long_as_it_takes() {
    let bed = Bed::start(&[]).await;
    let guest = bed.guest("metal", "one", json!({}));
    guest.make_cluster().await;
    guest.make_kubeconfig().await;
    let made = |range: Option<&str>| {
        let range = range.map(|range| ("fipd.io/floating-ip-range".to_owned(), range.to_owned()));
        let annotations: BTreeMap<String, String> = range.into_iter().collect();
        json!({
            "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
            "metadata": {
                "name": "metal", "namespace": FLEET,
                "annotations": annotations,
            },
            "spec": {},
        })
    };
    bed.apply(made(None)).await;
    let clusters: Api<fipd_crds::provisioning::Cluster> =
        Api::namespaced(bed.objects.client.clone(), FLEET);
    let status = Patch::Merge(json!({ "status": { "clusterName": guest.id } }));
    clusters
        .patch_status("metal", &PatchParams::default(), &status)
        .await
        .unwrap();
    guest.make_namespace().await;
    // Nobody says a range: it is left alone.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let fips = bed.objects.fips(&guest.id);
    let none = fips.list(&ListParams::default()).await.unwrap();
    assert!(none.items.is_empty(), "{none:?}");
    bed.apply(made(Some("nowhere"))).await;
    let why = guest.wait_event("UnknownRange").await;
    assert!(why.contains("nowhere"), "{why}");
    bed.apply(made(Some("vlan-1"))).await;
    assert_eq!(guest.wait_address().await, "10.90.0.2");
    guest
        .wait_map("its address", &[("cidr-global", "10.90.0.2/32")])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn its_network_says_the_vlan_of_a_range_and_the_gateway_that_is_never_given() {
    let mut bed = Bed::prepare().await;
    let harvester = &bed.cluster("harvester").plane;
    harvester.install_crds(ATTACHMENTS).await.unwrap();
    let definition = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {
            "name": "vlan-1", "namespace": "default",
            "annotations": { "network.harvesterhci.io/route": r#"{"mode":"auto","cidr":"10.90.1.0/29","gateway":"10.90.1.1"}"# },
        },
        "spec": { "config": r#"{"cniVersion":"0.3.1","type":"bridge","bridge":"mgmt-br","vlan":7}"# },
    });
    harvester.apply(&definition.to_string()).await.unwrap();
    let client = &bed.objects.client;
    let kubeconfig = bed.cluster("harvester").restricted_kubeconfig();
    let site = &bed.ground.site;
    site.publish_kubeconfig(client, "c-m-harvester", &kubeconfig)
        .await
        .unwrap();
    let silent = json!({ "iprange": "10.90.1.0/29" });
    bed.objects.make_range("silent", silent).await.unwrap();
    bed.configure(&bed.settings()).await;
    bed.write_config(
        &["kube-fip"],
        "[[network]]\nname = \"blue\"\nmatch = [{ vlan = 7 }]\n",
    );
    bed.restart().await;
    // The first has a gateway of its own, outside of which Harvester knows one.
    for (range, gateway) in [("vlan-1", "10.90.0.1"), ("silent", "10.90.1.1")] {
        let what = format!("{range} is in the network of its VLAN, with its gateway");
        wait_until(&what, DEADLINE, || async {
            let pool = format!("kube-fip/rancher/{range}");
            let shown = bed.fipd.cli(["pool", "show", &pool, "-o", "json"]).await;
            let shown = shown.unwrap();
            let pool: Value = serde_json::from_str(&shown.stdout).unwrap_or_default();
            let is_so = pool["network"] == "blue" && pool["gateway"] == gateway;
            is_so.then_some(()).ok_or(shown.stdout)
        })
        .await
        .unwrap();
    }
    let guest = bed.guest("gateway", "one", json!({}));
    guest.write_machines().await;
    guest.make_cluster().await;
    guest.make_namespace().await;
    let first = guest.wait_address().await;
    assert_eq!(first, "10.90.1.2", "of the first range by name");
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_controller_brings_the_charts_where_the_engine_says_so() {
    let mut bed = Bed::prepare().await;
    bed.configure(&bed.settings()).await;
    bed.write_config(
        &["kube-fip"],
        "[cluster.kube-fip]\nengine = \"helm-chart\"\n",
    );
    bed.restart().await;
    let _controller = {
        let plane = &bed.cluster("three").plane;
        let helm = bed.ground.charts.helm().clone();
        HelmController::start(plane, helm).await.unwrap()
    };
    let mut guest = bed
        .make("object", "three", json!({ "kube-vip": "true" }))
        .await;
    guest.wait_releases(&[KUBE_VIP, CLOUD_PROVIDER]).await;
    guest.wait_reason("Ready").await;
    let objects: Api<HelmChart> = Api::namespaced(guest.client().await, "kube-system");
    let names = async || {
        let all = objects.list(&ListParams::default()).await.unwrap().items;
        let names = all.into_iter().filter_map(|one| one.metadata.name);
        names.collect::<std::collections::BTreeSet<String>>()
    };
    assert_eq!(
        names().await,
        [KUBE_VIP, CLOUD_PROVIDER].map(str::to_owned).into()
    );
    guest.label(None).await;
    guest.wait_releases(&[]).await;
    guest.wait_reason("Ready").await;
    assert!(names().await.is_empty());
}
