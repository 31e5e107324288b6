//! Charts by HelmChart objects: the real helm-controller of RKE2 and K3s brings about what fipd says, and engines change
//! without a release being uninstalled. fipd has the rights of the manifests and no other.

use fipd_crds::helm_chart::HelmChart;
use fipd_tests::testbed::HelmController;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;

use super::*;

async fn objects(client: &Client) -> BTreeMap<String, HelmChart> {
    let api: Api<HelmChart> = Api::namespaced(client.clone(), "kube-system");
    // Until the controller runs there is no such kind.
    let all = api.list(&ListParams::default()).await;
    let all = all.map(|list| list.items).unwrap_or_default().into_iter();
    all.map(|chart| (chart.metadata.name.clone().unwrap(), chart))
        .collect()
}

async fn wait_objects(client: &Client, what: &str, wanted: &[&str]) {
    wait_until(what, DEADLINE, || async {
        let have = objects(client).await;
        if have.keys().map(String::as_str).eq(wanted.iter().copied()) {
            Ok(())
        } else {
            Err(format!("{have:?}"))
        }
    })
    .await
    .unwrap();
}

async fn deployment(client: &Client, name: &str) -> Result<Deployment, String> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    api.get(name).await.map_err(|error| error.to_string())
}

impl Bed {
    /// A cluster with a controller manager, and fipd with no more rights than it needs.
    async fn start_restricted() -> (Self, String) {
        let options = SiteOptions {
            controller_manager: true,
            ..SiteOptions::of(&["a"])
        };
        let bed = Self::start_with(&options).await;
        let kubeconfig = bed.site.restrict_cluster_manager(NAMESPACE).await.unwrap();
        (bed, kubeconfig)
    }

    async fn helm_controller(&self) -> HelmController {
        let plane = &self.site.cluster("a").unwrap().plane;
        let helm = self.charts.helm().clone();
        HelmController::start(plane, helm).await.unwrap()
    }

    async fn wait_image(&self, client: &Client, tag: &str) {
        wait_until(&format!("the image is {tag}"), DEADLINE, || async {
            let found = deployment(client, CONTROLLER).await?;
            let pod = found.spec.template.spec.unwrap();
            match pod.containers[0].image.clone() {
                Some(image) if image.ends_with(&format!(":{tag}")) => Ok(()),
                other => Err(format!("{other:?}; {}", self.guest("a").await)),
            }
        })
        .await
        .unwrap();
    }

    /// Waits until all releases of a cluster are told to be deployed.
    async fn wait_deployed(&self, name: &str, what: &str) {
        wait_until(what, DEADLINE, || async {
            let guest = self.guest(name).await;
            let releases = guest["releases"].as_array().cloned().unwrap_or_default();
            let deployed = |one: &Value| one["state"] == "deployed";
            if !releases.is_empty() && releases.iter().all(deployed) {
                Ok(())
            } else {
                Err(guest.to_string())
            }
        })
        .await
        .unwrap();
    }

    async fn engine(&self, name: &str, engine: &str, labels: Value) {
        let cluster = self.site.cluster(name).unwrap();
        let object = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Cluster",
            "metadata": {
                "name": cluster.id, "labels": labels,
                "annotations": { "fipd.io/chart-engine": engine },
            },
            "spec": { "displayName": name },
        });
        self.site.rancher.apply(&object.to_string()).await.unwrap();
    }

    async fn wait_reason(&self, name: &str, reason: &str) -> Value {
        wait_until(&format!("{name}: {reason}"), DEADLINE, || async {
            let guest = self.guest(name).await;
            if guest["reason"] == reason {
                Ok(guest)
            } else {
                Err(guest.to_string())
            }
        })
        .await
        .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_controller_keeps_what_fipd_says_and_gives_it_back_in_one_piece() {
    let on = || json!({ "rancher-fip": "enabled" });
    let (mut bed, restricted) = Bed::start_restricted().await;
    let plane = &bed.site.cluster("a").unwrap().plane;
    let (client, kubeconfig) = (plane.client().await.unwrap(), plane.kubeconfig_path());
    // As the original cluster manager leaves it.
    let (kubeconfig, repository) = (kubeconfig.display().to_string(), bed.charts.repository());
    let by_hand = [
        "install",
        CONTROLLER,
        CONTROLLER,
        "--repo",
        &repository,
        "--namespace",
        NAMESPACE,
        "--create-namespace",
        "--kubeconfig",
        &kubeconfig,
    ];
    bed.charts.helm().run(&by_hand).await.unwrap();
    bed.engine("a", "k3s", on()).await;
    bed.run_as(&restricted).await;
    let said = bed.wait_reason("a", "EngineInvalid").await;
    let said = said["message"].to_string();
    assert!(
        said.contains("k3s") && said.contains("helm-chart"),
        "{said}"
    );
    bed.engine("a", "helm-chart", on()).await;
    bed.wait_reason("a", "NoHelmCharts").await;

    let _controller = bed.helm_controller().await;
    wait_objects(&client, "both objects", &["purelb", CONTROLLER]).await;
    bed.wait_releases("a", &[CONTROLLER, "purelb"]).await;
    bed.wait_deployed("a", "helm-controller installs").await;
    let adopted = |have: &BTreeMap<String, HelmChart>, name: &str| {
        let labels = have[name].metadata.labels.clone().unwrap_or_default();
        labels.contains_key("fipd.io/adopted")
    };
    let have = objects(&client).await;
    assert!(adopted(&have, CONTROLLER) && !adopted(&have, "purelb"));
    let before = deployment(&client, CONTROLLER).await.unwrap().metadata.uid;

    bed.settings("image: { tag: patched }").await;
    bed.wait_image(&client, "patched").await;
    // Values that are taken back go.
    bed.settings("").await;
    bed.wait_image(&client, "v0.4.0").await;
    bed.wait_deployed("a", "without values").await;

    let metallb = json!({ "rancher-fip": "enabled", "rancher-fip-lbtype": "metallb" });
    bed.engine("a", "helm-chart", metallb.clone()).await;
    wait_objects(
        &client,
        "the load balancer changes",
        &["metallb", CONTROLLER],
    )
    .await;
    bed.wait_releases("a", &[CONTROLLER, "metallb"]).await;
    bed.wait_deployed("a", "all is well").await;

    // Back to the helm CLI: nothing is uninstalled on the way.
    let plane = &bed.site.cluster("a").unwrap().plane;
    plane.grant_charts().await.unwrap();
    bed.engine("a", "helm", metallb).await;
    wait_objects(&client, "the objects go", &[]).await;
    bed.wait_deployed("a", "helm goes on").await;
    bed.wait_releases("a", &[CONTROLLER, "metallb"]).await;
    let after = deployment(&client, CONTROLLER).await.unwrap().metadata.uid;
    assert_eq!(before, after);

    // And again: what fipd installed by one engine it removes by the other.
    let purelb = json!({ "rancher-fip": "enabled", "rancher-fip-lbtype": "purelb" });
    bed.engine("a", "helm-chart", purelb).await;
    wait_objects(
        &client,
        "the load balancer changes back",
        &["purelb", CONTROLLER],
    )
    .await;
    bed.wait_releases("a", &[CONTROLLER, "purelb"]).await;
    // The object is of the same name wherever its release is to be.
    let elsewhere = [("PureLBControllerNamespace", "balancers")];
    bed.settings_but("image: { tag: patched }", &elsewhere)
        .await;
    bed.wait_releases_in("a", "balancers", &["purelb"]).await;
    bed.wait_releases("a", &[CONTROLLER]).await;
    bed.wait_deployed("a", "it is moved").await;
    bed.engine("a", "helm-chart", json!({ "rancher-fip": "disabled" }))
        .await;
    // What another installed stays.
    let left = bed.wait_reason("a", "ReleasesStay").await;
    assert!(left["message"].to_string().contains(CONTROLLER), "{left}");
    bed.wait_releases("a", &[CONTROLLER]).await;
    bed.wait_releases_in("a", "balancers", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_23_a_release_that_failed_recovers_by_helm_controller_with_other_values() {
    let (mut bed, restricted) = Bed::start_restricted().await;
    let plane = &bed.site.cluster("a").unwrap().plane;
    let client = plane.client().await.unwrap();
    let _controller = bed.helm_controller().await;
    bed.engine("a", "helm-chart", json!({ "rancher-fip": "enabled" }))
        .await;
    bed.run_as(&restricted).await;
    wait_objects(&client, "both objects", &["purelb", CONTROLLER]).await;
    bed.wait_deployed("a", "helm-controller installs").await;
    let before = deployment(&client, CONTROLLER).await.unwrap().metadata.uid;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for policy in ["retry", "abort"] {
        if policy == "abort" {
            // A helm-controller of before.
            let field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/failurePolicy/enum";
            let change =
                json!([{ "op": "replace", "path": field, "value": ["abort", "reinstall"] }]);
            let change: Patch<()> = Patch::Json(serde_json::from_value(change).unwrap());
            crds.patch(
                "helmcharts.helm.cattle.io",
                &PatchParams::default(),
                &change,
            )
            .await
            .unwrap();
        }
        bed.settings("standIn: { broken: true }").await;
        let what = format!("{policy}: it is told");
        let told = wait_until(&what, DEADLINE, || async {
            let guest = bed.guest("a").await;
            match guest["message"].as_str() {
                Some(said) if said.contains("helm says") => Ok(said.to_owned()),
                _ => Err(guest.to_string()),
            }
        });
        let told = told.await.unwrap();
        assert!(told.contains(&format!("failurePolicy: {policy}")), "{told}");
        let mended = format!("mended-{policy}");
        bed.settings(&format!("image: {{ tag: {mended} }}")).await;
        bed.wait_image(&client, &mended).await;
        bed.wait_deployed("a", "it is told as well").await;
    }
    let after = deployment(&client, CONTROLLER).await.unwrap().metadata.uid;
    assert_eq!(before, after, "nothing is uninstalled on the way");
}
