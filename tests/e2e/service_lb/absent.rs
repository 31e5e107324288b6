//! Rancher is not there from fipd's start on: whose lease a Service leaves is known only when it is back.

use std::time::Duration;

use fipd_tests::scenario::config;
use fipd_tests::testbed::{Fault, SiteOptions};
use kube::ResourceExt;
use serde_json::json;

use super::ownership::{HOLDER, add_guests, add_object, prepare_site, stock};
use super::{
    annotations, create, delete, shown, wait_address, wait_allocated, wait_allocated_within,
    wait_fips, wait_gone,
};

/// A FloatingIP in the namespace of another cluster's project, which nobody can look up, passes to the right object
/// or is freed.
async fn leases_left_meanwhile(knows_the_cluster: bool) {
    let options = SiteOptions {
        proxied: true,
        ..SiteOptions::of(&["a"])
    };
    let (mut scenario, a) = prepare_site(&options, "").await;
    add_guests(&scenario).await;
    let mut text = config(&scenario.site, "").replace("\"p-a\"", "\"p-h\"");
    if !knows_the_cluster {
        text = text.replace("cluster-id = \"c-m-a\"\n", "");
        assert!(!text.contains("cluster-id"));
    }
    scenario.fipd.write_config(&text).unwrap();
    let labels = json!({
        "rancher.k8s.binbash.org/project-name": "p-h",
        "rancher.k8s.binbash.org/service-0-namespace": "apps",
        "rancher.k8s.binbash.org/service-0-name": "old",
    });
    let mut object = stock("fip-old", &labels);
    object["metadata"]["namespace"] = json!("c-m-h");
    add_object(&scenario, object, "10.60.0.17").await;
    scenario.fipd.restart().await.unwrap();
    create(&a, "old", "net").await;
    assert_eq!(wait_address(&a, "old").await.to_string(), "10.60.0.17");
    create(&a, "web", "net").await;
    assert_eq!(wait_address(&a, "web").await.to_string(), "10.60.0.10");
    let rancher = scenario.site.rancher.client().await.unwrap();
    wait_fips(&rancher, "c-m-h", "both show a Service", |fips| {
        let held = |fip: &&_| !annotations(*fip)[HOLDER].is_null() && !shown(fip).is_empty();
        fips.iter().filter(held).count() == 2
    })
    .await;

    let proxy = scenario.site.rancher_proxy.as_ref().unwrap();
    proxy.set(Fault::Cut);
    scenario.fipd.restart().await.unwrap();
    for name in ["old", "web"] {
        delete(&a, name).await;
        wait_gone(&a, name).await;
    }
    // What they left is shown in Rancher: it is nobody else's yet.
    create(&a, "new", "net").await;
    assert_eq!(wait_address(&a, "new").await.to_string(), "10.60.0.11");

    let proxy = scenario.site.rancher_proxy.as_ref().unwrap();
    proxy.set(Fault::Pass);
    let p = "p-h [Unassigned]";
    let left = json!({ "10.60.0.11": p, "10.60.0.17": p });
    wait_allocated_within(Duration::from_secs(150), &rancher, "net", left.clone()).await;
    let fips = wait_fips(&rancher, "c-m-h", "one of the Service, one kept", |fips| {
        let kept = |fip: &&_| annotations(*fip)[HOLDER].is_null() && shown(fip) == "10.60.0.17";
        fips.len() == 2 && fips.iter().filter(kept).count() == 1
    })
    .await;
    assert!(fips.iter().any(|fip| fip.name_any() == "fip-old"));
    wait_fips(&rancher, "c-m-a", "none is there", <[_]>::is_empty).await;
    wait_allocated(&rancher, "net", left).await;
    // The project may still end it.
    let api: kube::Api<fipd_crds::floating_ip::FloatingIP> =
        kube::Api::namespaced(rancher.clone(), "c-m-h");
    api.delete("fip-old", &Default::default()).await.unwrap();
    wait_allocated(&rancher, "net", json!({ "10.60.0.11": p })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_left_while_rancher_is_away_find_their_floating_ips() {
    leases_left_meanwhile(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_they_do_where_only_rancher_knows_the_cluster() {
    leases_left_meanwhile(false).await;
}
