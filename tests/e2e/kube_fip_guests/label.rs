//! The label of a guest comes, goes and comes again.

use super::*;

const VIP: &str = "guest-vip";

#[tokio::test(flavor = "multi_thread")]
async fn defect_25_charts_come_and_go_with_the_label_and_never_from_under_a_service() {
    // Harvester's own has the name that ours has by default.
    let bed = Bed::start(&[("kubevipReleaseName", VIP)]).await;
    let mut guest = bed.guest("label", "one", json!({}));
    guest.add_harvester_kube_vip().await;
    guest.make().await;
    let address = [("cidr-global", "10.90.0.2/32")];
    guest.wait_map("without the label too", &address).await;
    guest.wait_reason("Ready").await;
    guest.wait_harvester_kube_vip(false).await;
    guest.wait_releases(&[]).await;

    guest.label(Some("true")).await;
    guest.wait_releases(&[VIP, CLOUD_PROVIDER]).await;
    guest.wait_harvester_kube_vip(true).await;
    guest.wait_reason("Ready").await;
    let services = guest.serve_web().await;
    // What says neither changes nothing.
    guest.label(Some("maybe")).await;
    let said = guest.wait_reason("LabelInvalid").await;
    assert!(said["message"].to_string().contains("maybe"), "{said}");

    guest.label(None).await;
    let named = |said: &Value| {
        let said = said["message"].to_string();
        said.contains("default/web") && said.contains("10.90.0.2")
    };
    guest.wait_said("the Service is named", named).await;
    guest.wait_releases(&[VIP, CLOUD_PROVIDER]).await;
    guest.wait_harvester_kube_vip(true).await;
    services.delete("web", &Default::default()).await.unwrap();
    guest.wait_releases(&[]).await;
    guest.wait_harvester_kube_vip(false).await;
    guest.wait_map("it stays", &address).await;
    guest.wait_reason("Ready").await;

    guest.label(Some("true")).await;
    guest.wait_releases(&[VIP, CLOUD_PROVIDER]).await;
    guest.wait_harvester_kube_vip(true).await;
    guest.wait_reason("Ready").await;

    // What somebody uninstalls by hand comes back.
    let helm = bed.ground.charts.helm();
    let kubeconfig = guest.cluster.plane.kubeconfig_path().display().to_string();
    let release = ["--namespace", "kube-system", "--kubeconfig", &kubeconfig];
    let uninstall = [&["uninstall", VIP][..], &release[..]].concat();
    helm.run(&uninstall).await.unwrap();
    guest.wait_releases(&[VIP, CLOUD_PROVIDER]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_harvesters_kube_vip_a_release_needs_another_name_and_harvesters_goes_on_until_then()
{
    let bed = Bed::start(&[]).await;
    let guest = bed.guest("same-name", "one", json!({ "kube-vip": "true" }));
    guest.add_harvester_kube_vip().await;
    guest.make().await;
    let said = guest.wait_reason("HarvesterKubeVip").await;
    let message = said["message"].to_string();
    assert!(message.contains("kubevipReleaseName"), "{said}");
    guest.wait_harvester_kube_vip(false).await;
    let mut settings = bed.settings();
    settings.insert("kubevipReleaseName", VIP.to_owned());
    bed.configure(&settings).await;
    guest.wait_releases(&[VIP, CLOUD_PROVIDER]).await;
    guest.wait_harvester_kube_vip(true).await;
}

impl Bed {
    /// What rancher-fip needs for a guest on bare metal.
    async fn configure_rancher_fip(&self) {
        let charts = self.ground.charts.repository();
        let mut data = BTreeMap::from([(
            "RancherFipApiServerURL".to_owned(),
            "https://fip.example.net/v1".to_owned(),
        )]);
        for (prefix, chart, version) in [
            (
                "RancherFipLBController",
                "rancher-fip-lb-controller",
                "0.4.0",
            ),
            ("PureLBController", "purelb", "0.14.1"),
        ] {
            data.insert(format!("{prefix}ChartName"), chart.to_owned());
            data.insert(format!("{prefix}ChartRef"), charts.clone());
            data.insert(format!("{prefix}ChartVersion"), version.to_owned());
            data.insert(format!("{prefix}Namespace"), RANCHER_FIP.to_owned());
        }
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": RANCHER_FIP } });
        self.apply(namespace).await;
        self.apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "rancher-fip-config", "namespace": RANCHER_FIP }, "data": data,
        }))
        .await;
    }
}

const RANCHER_FIP: &str = "rancher-fip-manager";

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_of_two_systems_has_one_load_balancer_and_both_say_why() {
    let mut bed = Bed::prepare().await;
    bed.configure(&bed.settings()).await;
    bed.configure_rancher_fip().await;
    let settings = "[cluster.rancher-fip]\nrole = \"management\"\nquotas = \"optional\"\n\
                    [cluster.rancher-fip.cluster-manager]\nenabled = true\n";
    bed.write_config(&["rancher-fip", "kube-fip"], settings);
    bed.restart().await;
    let mut guest = bed.make("both", "one", json!({ "kube-vip": "true" })).await;
    guest.wait_releases(&[KUBE_VIP, CLOUD_PROVIDER]).await;
    guest.wait_reason("Ready").await;

    // rancher-fip looks for the project of a guest in its Harvester.
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": "guests",
            "annotations": { "field.cattle.io/projectId": "c-m-harvester:p-both" },
        },
    });
    let harvester = &bed.cluster("harvester").plane;
    harvester.apply(&namespace.to_string()).await.unwrap();
    bed.switch_rancher_fip(&guest, "enabled").await;
    let why = |said: &Value| {
        let said = said["message"].to_string();
        said.contains("kube-vip") && said.contains("two load balancers would answer")
    };
    wait_until("rancher-fip says why", DEADLINE, || async {
        let said = guest.said_by("rancher-fip").await;
        why(&said).then_some(()).ok_or(said.to_string())
    })
    .await
    .unwrap();
    let kept_out = guest.said().await["kept_out"].to_string();
    assert!(kept_out.contains("rancher-fip: ") && kept_out.contains("kube-vip"));
    let rancher_fip: Api<Secret> = Api::namespaced(guest.client().await, RANCHER_FIP);
    assert!(!deployed(&rancher_fip).await.contains_key("purelb"));
    guest.wait_releases(&[KUBE_VIP, CLOUD_PROVIDER]).await;

    // The other way round: who was there first stays.
    guest.label(Some("false")).await;
    guest.wait_releases(&[]).await;
    wait_until("rancher-fip brings its own", DEADLINE, || async {
        let have = deployed(&rancher_fip).await;
        match have.contains_key("purelb") {
            true => Ok(()),
            false => Err(format!(
                "{:?}; {}",
                have.keys(),
                guest.said_by("rancher-fip").await
            )),
        }
    })
    .await
    .unwrap();
    guest.label(Some("true")).await;
    let said = guest.wait_reason("OtherLoadBalancer").await;
    let named = said["message"].to_string();
    assert!(
        named.contains("purelb") || named.contains("rancher-fip-lb-controller"),
        "{said}"
    );
    guest.wait_event("OtherLoadBalancer").await;
    let other = guest.said_by("rancher-fip").await;
    let kept_out = other["kept_out"].to_string();
    assert!(kept_out.contains("kube-fip: "), "{other}");
    guest.wait_releases(&[]).await;
    assert!(guest.daemon_set(KUBE_VIP).await.is_none());
}

impl Bed {
    async fn switch_rancher_fip(&self, guest: &Guest<'_>, to: &str) {
        let clusters: Api<fipd_crds::management::Cluster> = Api::all(self.objects.client.clone());
        let labels = json!({ "metadata": { "labels": { "rancher-fip": to } } });
        clusters
            .patch(&guest.id, &PatchParams::default(), &Patch::Merge(&labels))
            .await
            .unwrap();
    }
}
