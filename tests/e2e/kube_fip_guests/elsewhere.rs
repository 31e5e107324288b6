//! Guests that do not run on Harvester, networks that a Harvester says, and charts by helm-controller.

use fipd_crds::helm_chart::HelmChart;
use fipd_tests::testbed::HelmController;

use super::*;

const ATTACHMENTS: &str = include_str!("../../crds/network_attachments.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_on_bare_metal_gets_an_address_of_the_range_that_its_annotation_names() {
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
async fn the_vlan_of_its_network_decides_in_which_network_a_range_is() {
    let mut bed = Bed::prepare().await;
    let harvester = &bed.cluster("harvester").plane;
    harvester.install_crds(ATTACHMENTS).await.unwrap();
    let definition = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": { "name": "vlan-1", "namespace": "default" },
        "spec": { "config": r#"{"cniVersion":"0.3.1","type":"bridge","bridge":"mgmt-br","vlan":7}"# },
    });
    harvester.apply(&definition.to_string()).await.unwrap();
    let client = &bed.objects.client;
    let kubeconfig = bed.cluster("harvester").restricted_kubeconfig();
    let site = &bed.ground.site;
    site.publish_kubeconfig(client, "c-m-harvester", &kubeconfig)
        .await
        .unwrap();
    bed.configure(&bed.settings()).await;
    bed.write_config(
        &["kube-fip"],
        "[[network]]\nname = \"blue\"\nmatch = [{ vlan = 7 }]\n",
    );
    bed.restart().await;
    wait_until(
        "the range is in the network of its VLAN",
        DEADLINE,
        || async {
            let pools = bed.fipd.cli(["pool", "list", "-o", "json"]).await.unwrap();
            let pools = pools.json().unwrap().to_string();
            let pool = ["pool", "show", "kube-fip/rancher/vlan-1", "-o", "json"];
            let shown = bed.fipd.cli(pool).await.unwrap();
            let shown: Value = serde_json::from_str(&shown.stdout).unwrap_or_default();
            (shown["network"] == "blue").then_some(()).ok_or(pools)
        },
    )
    .await
    .unwrap();
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
