//! One network that several systems give addresses of, and the arithmetic of the original.

use fipd_tests::testbed::ControlPlane;
use kube::api::ListParams;

use super::*;

/// Addresses that each of three asks for; there are fourteen.
const EACH: usize = 6;

async fn apply(rancher: &ControlPlane, object: Value) {
    rancher.apply(&object.to_string()).await.unwrap();
}

/// A pool of rancher-fip, and FloatingIPs of it.
async fn ask_rancher_fip(bed: &Bed) {
    let api = "rancher.k8s.binbash.org/v1beta2";
    let pool = json!({ "start": "10.87.0.1", "end": "10.87.0.14" });
    apply(
        &bed.site.rancher,
        json!({
            "apiVersion": api, "kind": "FloatingIPPool", "metadata": { "name": "net" },
            "spec": { "ipConfig": { "subnet": "10.87.0.0/28", "pool": pool } },
        }),
    )
    .await;
    for one in 0..EACH {
        apply(
            &bed.site.rancher,
            json!({
                "apiVersion": api, "kind": "FloatingIP",
                "metadata": {
                    "name": format!("theirs-{one}"), "namespace": "c-m-a",
                    "labels": { "rancher.k8s.binbash.org/project-name": "p-a" },
                },
                "spec": { "floatingIPPool": "net" },
            }),
        )
        .await;
    }
}

async fn ask_kube_fip(bed: &Bed) {
    bed.range("one", "10.87.0.0/28").await;
    for one in 0..EACH {
        bed.fip(&format!("c-m-b/ours-{one}"), "one", "").await;
    }
}

/// A pool of fipd's own, and leases by the command line.
async fn ask_by_hand(bed: &Bed) {
    let pool = ["pool", "create", "own", "--cidr", "10.87.0.0/28"];
    bed.fipd.cli(pool).await.unwrap().success().unwrap();
    for one in 0..EACH {
        let owner = format!("fipd/Host/by-hand/host-{one}");
        let ask = ["lease", "allocate", "--pool", "own", "--owner", &owner];
        // The network gives nothing before both systems adopted what is in it, nor a new pool before others were looked for.
        let waits = ["until it has been adopted", "until what others use"];
        let answer = wait_until("the network is adopted", DEADLINE, || async {
            let answer = bed.fipd.cli(ask).await.unwrap();
            match waits.iter().any(|text| answer.stderr.contains(text)) {
                true => Err(answer.stderr),
                false => Ok(answer),
            }
        });
        let answer = answer.await.unwrap();
        assert!(
            answer.code == 0 || answer.stderr.contains("no address available"),
            "{answer:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_systems_over_one_network_give_no_address_twice() {
    let settings = "[cluster.rancher-fip]\nrole = \"management\"\nquotas = \"optional\"";
    let mut bed = Bed::prepare(&["rancher-fip", "kube-fip"], settings).await;
    bed.restart().await;
    tokio::join!(ask_rancher_fip(&bed), ask_kube_fip(&bed), ask_by_hand(&bed));
    let all: Vec<String> = (1..15).map(|last| format!("10.87.0.{last}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    bed.wait_leases("every address has one owner", &all).await;
    let leases = bed.leases().await.unwrap();
    let owners: BTreeSet<&String> = leases.values().collect();
    assert_eq!(owners.len(), leases.len(), "{leases:?}");

    // What the objects show is what is leased.
    let of_ours = leases
        .iter()
        .filter(|(_, owner)| owner.contains("/c-m-b/ours-"));
    let of_ours: BTreeMap<String, String> = of_ours
        .map(|(address, owner)| (address.clone(), owner.clone()))
        .collect();
    assert!(!of_ours.is_empty(), "{leases:?}");
    wait_until("the objects show it", DEADLINE, || async {
        let ours = bed.objects.all_fips().list(&ListParams::default()).await;
        let ours = ours.map_err(|error| error.to_string())?;
        let shown = ours.into_iter().filter_map(|fip| {
            let fip = json!(fip);
            let address = fip["status"]["address"].as_str()?.to_owned();
            let name = fip["metadata"]["name"].as_str()?;
            Some((address, format!("kube-fip/rancher/FloatingIP/c-m-b/{name}")))
        });
        let shown: BTreeMap<String, String> = shown.collect();
        (shown == of_ours).then_some(()).ok_or(format!("{shown:?}"))
    })
    .await
    .unwrap();
    let shared = |range: &Value| range["status"]["total"] == 14;
    bed.objects.wait("one", "counts", shared).await.unwrap();
    let told = bed.objects.wait_event(RANGE, "one", "Overlapping").await;
    let told = told.unwrap();
    assert!(told.contains("are addresses of pool"), "{told}");
    bed.clean_rancher_fip().await;
}

impl Bed {
    /// fipd ends, and so do the objects of rancher-fip.
    async fn clean_rancher_fip(mut self) {
        self.fipd.kill9().unwrap();
        for kind in ["FloatingIP", "FloatingIPPool"] {
            let gvk = kube::core::GroupVersionKind::gvk("rancher.k8s.binbash.org", "v1beta2", kind);
            let plural = format!("{}s", kind.to_lowercase());
            let resource = kube::core::ApiResource::from_gvk_with_plural(&gvk, &plural);
            let client = self.objects.client.clone();
            let all: kube::Api<kube::api::DynamicObject> =
                kube::Api::all_with(client.clone(), &resource);
            for object in all.list(&ListParams::default()).await.unwrap() {
                let name = object.metadata.name.unwrap();
                let api: kube::Api<kube::api::DynamicObject> = match &object.metadata.namespace {
                    Some(namespace) => {
                        kube::Api::namespaced_with(client.clone(), namespace, &resource)
                    }
                    None => all.clone(),
                };
                let free = json!({ "metadata": { "finalizers": null } });
                let free = kube::api::Patch::Merge(&free);
                api.patch(&name, &Default::default(), &free).await.unwrap();
                api.delete(&name, &Default::default()).await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_13_the_arithmetic_of_the_original_and_a_capacity_that_is_true() {
    let bed = Bed::start("arithmetic = \"original\"").await;
    let objects = &bed.objects;
    for (name, cidr) in [
        ("network", "10.89.0.0/30"),
        ("host-bits", "10.89.1.10/28"),
        ("two", "10.89.2.0/31"),
        ("none", "10.89.3.0/32"),
    ] {
        bed.range(name, cidr).await;
    }
    bed.wait_refused("none", "Invalid").await;
    for (name, capacity) in [("network", 3.0), ("host-bits", 5.0), ("two", 1.0)] {
        bed.wait_series("kubefipoperator_fipranges_capacity", name, capacity)
            .await;
    }
    for one in 0..3 {
        bed.fip(&format!("c-m-a/fip-{one}"), "network", "").await;
    }
    let all = ["10.89.0.0", "10.89.0.1", "10.89.0.2"];
    bed.wait_leases("the network address and all but the last", &all)
        .await;
    bed.fip("c-m-b/more", "network", "").await;
    bed.wait_refused("c-m-b/more", "PoolExhausted").await;
    bed.fip("c-m-b/broadcast", "network", "10.89.0.3").await;
    bed.wait_refused("c-m-b/broadcast", "AddressNotInRange")
        .await;
    bed.wait_series("kubefipoperator_fipranges_reserved", "network", 3.0)
        .await;
    bed.fip("c-m-b/before", "host-bits", "10.89.1.9").await;
    bed.wait_refused("c-m-b/before", "AddressNotInRange").await;
    bed.fip("c-m-b/first", "host-bits", "10.89.1.10").await;
    bed.wait_address("c-m-b/first", "10.89.1.10").await;
    bed.fip("c-m-b/only", "two", "").await;
    bed.wait_address("c-m-b/only", "10.89.2.0").await;
    let has = |fip: &Value| all.iter().any(|one| fip["status"]["address"] == **one);
    objects.wait("c-m-a/fip-0", "has one", has).await.unwrap();
}
