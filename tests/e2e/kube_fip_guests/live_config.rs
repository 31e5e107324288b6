//! The ConfigMap of the original, edited while fipd runs.

use fipd_tests::testbed::{Login, Method, Visitor};

use super::*;

const SECRET: &str = "hunter2";

fn tag(tag: &str) -> String {
    format!("image: {{ repository: stand-in.invalid/kube-vip, tag: {tag} }}")
}

fn the_guest(bed: &Bed) -> Guest<'_> {
    bed.guest("config", "one", json!({}))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_config_is_followed_live_and_the_last_good_value_of_a_key_stays_in_force() {
    let mut bed = Bed::start(&[
        ("kubevipGuestInstall", "enabled"),
        ("kubevipUpdate", "true"),
        ("kubevipChartValues", &tag("good")),
    ])
    .await;
    // fipd's own configuration goes before the ConfigMap.
    let named = |name: &str| {
        format!("[cluster.kube-fip]\nkubevip-cloud-provider-release-name = \"{name}\"\n")
    };
    bed.write_config(&["kube-fip"], &named("provider"));
    bed.restart().await;
    let mut settings = bed.settings();
    settings.extend([
        ("kubevipGuestInstall", "enabled".to_owned()),
        ("kubevipUpdate", "true".to_owned()),
        ("kubevipCloudProviderReleaseName", "theirs".to_owned()),
    ]);
    let set = |more: &[(&'static str, &str)]| {
        let mut all = settings.clone();
        all.extend(more.iter().map(|(key, value)| (*key, (*value).to_owned())));
        all
    };
    bed.configure(&set(&[("kubevipChartValues", &tag("good"))]))
        .await;
    bed.make("config", "one", json!({})).await;
    {
        let guest = the_guest(&bed);
        guest.wait_releases(&[KUBE_VIP, "provider"]).await;
        guest.wait_image(KUBE_VIP, "good").await;
        bed.configure(&set(&[("kubevipChartValues", &tag("better"))]))
            .await;
        guest.wait_image(KUBE_VIP, "better").await;
        guest.wait_reason("Ready").await;
    }
    let port = [
        ("kubevipChartValues", &*tag("better")),
        ("metricsPort", "9109"),
    ];
    bed.configure(&set(&port)).await;
    let told = bed.wait_config_event("MetricsPortDiffers", "9109").await;
    assert!(told.contains("metrics:kube-fip"), "{told}");

    let secret = format!("image: [{SECRET}");
    let bad = [
        ("operateGuestClusterInterval", "0"),
        ("metricsPort", "many"),
        ("kubevipUpdate", "perhaps"),
        ("kubevipGuestInstall", "everywhere"),
        ("kubevipChartValues", &secret),
    ];
    bed.configure(&set(&bad)).await;
    for (key, value) in bad {
        let told = bed.wait_config_event("ConfigInvalid", key).await;
        assert!(
            key == "kubevipChartValues" || told.contains(value),
            "{told}"
        );
        assert!(!told.contains(SECRET), "{told}");
    }
    assert!(!bed.fipd.log().unwrap().contains(SECRET));
    // A daemon that never saw the good ones has them all the same; a good one beside them counts.
    bed.restart().await;
    let provider = "image: { repository: stand-in.invalid/provider, tag: newer }";
    let mut mixed = set(&bad);
    mixed.insert("kubevipCloudProviderChartValues", provider.to_owned());
    bed.configure(&mixed).await;
    let guest = the_guest(&bed);
    wait_until("the good value arrives", DEADLINE, || async {
        let found = guest.deployment("provider").await;
        let pod = found.and_then(|found| found.spec.template.spec);
        let image = pod.and_then(|pod| pod.containers[0].image.clone());
        match image {
            Some(image) if image.ends_with(":newer") => Ok(()),
            image => Err(format!("{image:?}; {}", guest.said().await)),
        }
    })
    .await
    .unwrap();
    guest.wait_image(KUBE_VIP, "better").await;
    guest.wait_releases(&[KUBE_VIP, "provider"]).await;

    // Without it the defaults hold, by which only guests with the label have charts.
    let maps: Api<ConfigMap> = Api::namespaced(bed.objects.client.clone(), NAMESPACE);
    maps.delete(CONFIG, &DeleteParams::default()).await.unwrap();
    bed.wait_config_event("ConfigMissing", "default").await;
    guest.wait_releases(&[]).await;
    guest
        .wait_map("its address stays", &[("cidr-global", "10.90.0.2/32")])
        .await;
    bed.configure(&set(&[("kubevipChartValues", &tag("again"))]))
        .await;
    guest.wait_releases(&[KUBE_VIP, "provider"]).await;
    guest.wait_image(KUBE_VIP, "again").await;

    // Under another name it is the same chart: never twice, and never from under a Service.
    let services = guest.serve_web().await;
    bed.write_config(&["kube-fip"], &named("ccm"));
    bed.restart().await;
    let guest = the_guest(&bed);
    guest.wait_reason("ServicesHoldAddresses").await;
    guest.wait_releases(&[KUBE_VIP, "provider"]).await;
    services
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    guest.wait_releases(&[KUBE_VIP, "ccm"]).await;
    guest.wait_reason("Ready").await;

    // Values that the guest's API server refuses, and repeats in its error.
    let refused = format!("image: {{ pullPolicy: {SECRET} }}");
    let more = [("kubevipChartValues", &*refused), ("logLevel", "debug")];
    let is_detailed = || bed.fipd.log().unwrap().contains("looked at a guest");
    assert!(!is_detailed(), "nobody asked for it");
    bed.configure(&set(&more)).await;
    let failed = |said: &Value| said["message"].to_string().contains("imagePullPolicy");
    guest.wait_said("the error is told", failed).await;
    guest.wait_event("HelmFailed").await;
    wait_until("the log has details", DEADLINE, || async {
        is_detailed().then_some(()).ok_or("no")
    })
    .await
    .unwrap();
    let failed = bed.firing("FipdReleaseFailed").await;
    let is_ours = |one: &String| one.contains("release=\"kube-system/kube-vip\"");
    assert!(failed.iter().any(is_ours), "{failed:?}");
    for (place, text) in bed.everything_said().await {
        assert!(!text.contains(SECRET), "{place}: {text}");
    }
}

impl Bed {
    /// All that fipd tells of guests, by where it does: Events, log, pages, REST and metrics.
    async fn everything_said(&self) -> Vec<(&'static str, String)> {
        let events: Api<Event> = Api::all(self.objects.client.clone());
        let events = events.list(&ListParams::default()).await.unwrap();
        let mut all = vec![
            ("Events", format!("{events:?}")),
            ("log", self.fipd.log().unwrap()),
        ];
        for path in [
            "/api/v1/kube-fip/guests",
            "/api/v1/guests",
            "/api/v1/clusters",
            "/metrics",
        ] {
            all.push((path, self.fipd.get(path).await.unwrap().body));
        }
        let mut visitor = Visitor::connect(&self.fipd).await.unwrap();
        let login = Login::first(&self.fipd).unwrap();
        visitor.sign_in(&login).await.unwrap();
        let (page, _) = visitor.send(Method::GET, "/ui/guests", "").await.unwrap();
        assert!(page.contains("imagePullPolicy"), "{page}");
        all.push(("/ui/guests", page));
        all
    }
}
