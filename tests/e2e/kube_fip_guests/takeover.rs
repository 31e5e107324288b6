//! A site as kube-fip-operator leaves it is taken over, and left again.

use super::guest::KUBE_SYSTEM;
use super::*;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::DynamicObject;

const VIP: &str = "guest-vip";
const OPERATOR: &str = "kube-fip-operator";
const DISABLED: &str = "node-role.kubernetes.io/harvester-kube-vip-disabled";

impl Bed {
    /// The program, which is to have so many pods. No controller manager runs here, so that it has none.
    async fn scale_operator(&self, replicas: i32) {
        let rancher = &self.ground.site.rancher;
        let scaled = rancher.scale_original(NAMESPACE, OPERATOR, replicas);
        scaled.await.unwrap();
    }

    async fn remove_operator(&self) {
        let programs: Api<Deployment> = Api::namespaced(self.objects.client.clone(), NAMESPACE);
        programs
            .delete(OPERATOR, &Default::default())
            .await
            .unwrap();
    }

    /// A FloatingIP as the original writes it.
    async fn original_fip(&self, guest: &Guest<'_>, address: &str) {
        let annotations = json!({
            "clustername": guest.name(), "fiprange": "vlan-1", "updateConfigMap": "true",
        });
        let fip = json!({
            "metadata": { "creationTimestamp": null, "annotations": annotations },
            "spec": { "ipaddress": address }, "status": {},
        });
        self.objects.create(&guest.fip(), fip).await.unwrap();
    }

    /// What `fipd adopt` says, and its exit code.
    async fn adopt(&self, more: &[&str]) -> (i32, Value) {
        let fixed = ["adopt", "kube-fip", "--cluster", "rancher", "-o", "json"];
        let output = self.fipd.cli(fixed.iter().chain(more)).await.unwrap();
        let report = serde_json::from_str(&output.stdout);
        (output.code, report.unwrap_or_else(|_| json!(output.stderr)))
    }
}

impl Guest<'_> {
    /// What the original writes into a guest, by the real helm: its releases without marks, one key in the ConfigMap, and one
    /// selector in the place of all.
    async fn as_the_original_leaves_it(&self, address: &str) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "kubevip", "namespace": KUBE_SYSTEM },
            "data": { "cidr-global": format!("{address}/32") },
        });
        self.cluster.plane.apply(&map.to_string()).await.unwrap();
        for (release, chart) in [
            ("harvester-cloud-provider", "harvester-cloud-provider"),
            (VIP, KUBE_VIP),
            (CLOUD_PROVIDER, CLOUD_PROVIDER),
        ] {
            self.install(release, chart).await;
        }
        let pod = json!({ "nodeSelector": { "$patch": "replace", DISABLED: "true" } });
        let blank = json!({ "spec": { "template": { "spec": pod } } });
        let api: Api<k8s_openapi::api::apps::v1::DaemonSet> =
            Api::namespaced(self.client().await, KUBE_SYSTEM);
        api.patch(KUBE_VIP, &PatchParams::default(), &Patch::Strategic(&blank))
            .await
            .unwrap();
    }

    async fn install(&self, release: &str, chart: &str) {
        let chart = Charts::local(chart).display().to_string();
        let kubeconfig = self.cluster.plane.kubeconfig_path().display().to_string();
        let name = format!("nameOverride={release}");
        let install = [
            "install",
            release,
            &chart,
            "--namespace",
            KUBE_SYSTEM,
            "--kubeconfig",
            &kubeconfig,
            "--set",
            &name,
        ];
        self.bed.ground.charts.helm().run(&install).await.unwrap();
    }

    /// The version of everything in it that fipd could write to.
    async fn versions(&self) -> BTreeMap<String, String> {
        let mut versions = BTreeMap::new();
        for (group, kind, plural) in [
            ("", "ConfigMap", "configmaps"),
            ("", "Secret", "secrets"),
            ("apps", "DaemonSet", "daemonsets"),
            ("apps", "Deployment", "deployments"),
        ] {
            let gvk = kube::core::GroupVersionKind::gvk(group, "v1", kind);
            let resource = kube::core::ApiResource::from_gvk_with_plural(&gvk, plural);
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.client().await, KUBE_SYSTEM, &resource);
            for object in api.list(&Default::default()).await.unwrap() {
                let meta = object.metadata;
                let name = format!("{kind} {}", meta.name.unwrap());
                versions.insert(name, meta.resource_version.unwrap());
            }
        }
        versions
    }
}

/// Name and text of each finding of a sort.
fn findings(report: &Value, fine: bool) -> BTreeMap<String, String> {
    let all = report["findings"].as_array().unwrap().iter();
    let of_sort = all.filter(|one| one["fine"] == fine);
    let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    of_sort
        .map(|one| (text(one, "name"), text(one, "detail")))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_of_the_original_is_taken_over_and_left_as_it_was() {
    let mut bed = Bed::prepare().await;
    let mut settings = bed.settings();
    settings.insert("kubevipReleaseName", VIP.to_owned());
    bed.configure(&settings).await;
    bed.write_config(&["kube-fip"], "");
    bed.scale_operator(1).await;
    let on = || json!({ "kube-vip": "true" });
    let first = bed.make("old-first", "one", on()).await;
    first.as_the_original_leaves_it("10.90.0.7").await;
    bed.original_fip(&first, "10.90.0.7").await;
    next_second().await;
    let second = bed.make("old-second", "two", json!({})).await;
    bed.original_fip(&second, "10.90.0.7").await;
    let before = first.versions().await;
    bed.fipd.restart().await.unwrap();
    let mut first = bed.guest("old-first", "one", on());
    let second = bed.guest("old-second", "two", json!({}));

    // While the original is to have a pod nothing happens.
    let blocked = wait_until("the report names the program", DEADLINE, || async {
        let (code, report) = bed.adopt(&["--dry-run"]).await;
        let text = report.to_string();
        (code == 0 && text.contains("--replicas=0"))
            .then_some(())
            .ok_or(format!("{code} {text}"))
    });
    blocked.await.unwrap();
    let (code, why) = bed.adopt(&[]).await;
    assert!(
        code != 0 && why.to_string().contains(OPERATOR),
        "{code} {why}"
    );
    let untouched = bed.objects.get(&first.fip()).await.unwrap();
    assert!(untouched["metadata"]["finalizers"].is_null(), "{untouched}");
    assert_eq!(first.versions().await, before);

    bed.scale_operator(0).await;
    bed.objects
        .wait_address(&first.fip(), "10.90.0.7")
        .await
        .unwrap();
    let doubled = second.fip();
    let conflict = bed.objects.wait_reason(&doubled, "AddressConflict");
    let conflict = conflict.await.unwrap();
    assert!(conflict.contains("10.90.0.7"), "{conflict}");
    first.wait_reason("Ready").await;
    let (code, report) = bed.adopt(&[]).await;
    assert_eq!(code, 0, "{report}");
    let (fine, wrong) = (findings(&report, true), findings(&report, false));
    assert!(
        fine[&first.fip()].contains("10.90.0.7 is adopted"),
        "{fine:?}"
    );
    for release in [VIP, CLOUD_PROVIDER] {
        let name = format!("old-first: release {KUBE_SYSTEM}/{release}");
        assert!(fine[&name].contains("never uninstalled"), "{fine:?}");
    }
    let daemon_set = &wrong[&format!("old-first: DaemonSet {KUBE_SYSTEM}/{KUBE_VIP}")];
    let was = "by its chart it was node-role.kubernetes.io/control-plane=true";
    assert!(daemon_set.contains(was), "{wrong:?}");
    assert!(wrong.contains_key("10.90.0.7"), "{wrong:?}");

    // Releases of the original stay as they are, and are kept in step where the ConfigMap says so.
    let theirs = "harvester-cloud-provider";
    let once = [VIP, CLOUD_PROVIDER, theirs].map(|name| (name.to_owned(), "1".to_owned()));
    assert_eq!(first.revisions().await, BTreeMap::from(once));
    let mut updated = settings.clone();
    let image = "image: { repository: stand-in.invalid/kube-vip, tag: in-step }";
    updated.extend([
        ("kubevipUpdate", "true".to_owned()),
        (
            "kubevipChartValues",
            format!("nameOverride: {VIP}\n{image}"),
        ),
    ]);
    bed.configure(&updated).await;
    first.wait_image(VIP, "in-step").await;
    bed.configure(&settings).await;

    // They stay, also when the label goes.
    first.label(None).await;
    first
        .wait_said("no release is wanted", |said| {
            said["releases"].as_array().is_some_and(Vec::is_empty)
        })
        .await;
    first.wait_reason("Ready").await;
    let stay = first.revisions().await;
    assert_eq!(stay[VIP], "2", "{stay:?}");
    assert!(stay[theirs] == "1" && stay.contains_key(CLOUD_PROVIDER));
    first
        .wait_map("its address", &[("cidr-global", "10.90.0.7/32")])
        .await;
    // Nor does fipd bring one of another name beside them.
    settings.insert("kubevipCloudProviderReleaseName", "another".to_owned());
    bed.configure(&settings).await;
    first.label(Some("true")).await;
    let said = first.wait_reason("ReleaseElsewhere").await;
    let message = said["message"].to_string();
    assert!(message.contains(CLOUD_PROVIDER), "{message}");
    assert_eq!(first.revisions().await, stay);

    let kept = first.versions().await;
    let detach = ["clusters", "detach", "rancher", "-o", "json"];
    wait_until("the cluster is left", DEADLINE, || async {
        let left = bed.fipd.cli(detach).await.unwrap();
        (left.code == 0).then_some(()).ok_or(format!("{left:?}"))
    })
    .await
    .unwrap();
    for guest in [&first, &second] {
        let fip = bed.objects.get(&guest.fip()).await.unwrap();
        assert!(fip["metadata"]["finalizers"].is_null(), "{fip}");
        assert_eq!(fip["spec"]["ipaddress"], "10.90.0.7");
    }
    let range = bed.objects.get("vlan-1").await.unwrap();
    assert!(range["metadata"]["finalizers"].is_null(), "{range}");
    let maps: Api<ConfigMap> = Api::namespaced(bed.objects.client.clone(), NAMESPACE);
    let left = maps.list(&Default::default()).await.unwrap().items;
    let left: Vec<_> = left
        .into_iter()
        .filter_map(|map| map.metadata.name)
        .collect();
    assert!(
        !left.iter().any(|name| name.starts_with("fipd-")),
        "{left:?}"
    );
    assert_eq!(first.versions().await, kept, "guests stay as they are");
    bed.remove_operator().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_the_original_with_a_name_of_its_own_gets_no_second_kube_vip_beside_it() {
    const THEIRS: [(&str, &str); 2] = [("their-vip", KUBE_VIP), ("their-provider", CLOUD_PROVIDER)];
    let bed = Bed::start(&[]).await;
    let guest = bed.guest("old-named", "one", json!({ "kube-vip": "true" }));
    for (release, chart) in THEIRS {
        guest.install(release, chart).await;
    }
    guest.make().await;
    let said = guest.wait_reason("ReleaseElsewhere").await;
    assert!(said["message"].to_string().contains("their-vip"), "{said}");
    let (code, report) = bed.adopt(&["--dry-run"]).await;
    assert_eq!(code, 0, "{report}");
    let fine = findings(&report, true);
    for (release, _) in THEIRS {
        let name = format!("old-named: release {KUBE_SYSTEM}/{release}");
        assert!(fine[&name].contains("none beside it"), "{fine:?}");
    }
    let once = THEIRS.map(|(name, _)| (name.to_owned(), "1".to_owned()));
    assert_eq!(guest.revisions().await, BTreeMap::from(once));

    let kubeconfig = guest.cluster.plane.kubeconfig_path().display().to_string();
    let release = ["--namespace", KUBE_SYSTEM, "--kubeconfig", &kubeconfig];
    let uninstall = [&["uninstall", "their-vip"][..], &release[..]].concat();
    bed.ground.charts.helm().run(&uninstall).await.unwrap();
    guest.wait_releases(&[KUBE_VIP, "their-provider"]).await;
    let named = |said: &Value| said["message"].to_string().contains("their-provider");
    guest.wait_said("the other one stays", named).await;
}
