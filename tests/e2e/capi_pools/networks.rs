//! Which pools give the same address: rows 31 and 32, E-17.

use std::collections::BTreeSet;

use fipd_crds::floating_ip::FloatingIP;
use fipd_tests::cluster_api::management_config;
use fipd_tests::scenario::write_kubeconfig;
use fipd_tests::testbed::RANCHER_CRDS;
use kube::api::{Api, ListParams};

use super::*;

#[tokio::test]
async fn e_17_overlapping_pools_of_one_network_give_nothing_twice() {
    let bed = Bed::share(&["overlap", "overlap-two"]).await.unwrap();
    for path in ["overlap/net", "overlap-two/net", "overlap"] {
        bed.pool(path, &["10.25.0.10-10.25.0.12"], 24, "")
            .await
            .unwrap();
    }
    let mut given = Vec::new();
    for (path, pool) in [
        ("overlap/a", (POOL, "net")),
        ("overlap-two/a", (POOL, "net")),
        ("overlap-two/b", (GLOBAL, "overlap")),
    ] {
        bed.claim(path, pool).await.unwrap();
        given.push(bed.address(path).await.unwrap());
    }
    assert_eq!(given, ["10.25.0.10", "10.25.0.11", "10.25.0.12"]);
    for (kind, path) in [
        (POOL, "overlap/net"),
        (POOL, "overlap-two/net"),
        (GLOBAL, "overlap"),
    ] {
        bed.counts(kind, path, [3, 3, 0, 0]).await.unwrap();
        let pool = bed.objects.get(kind, path).await.unwrap().unwrap();
        let conditions = pool["status"]["conditions"].as_array().unwrap();
        let overlap = conditions.iter().find(|one| one["type"] == "Overlapping");
        assert!(overlap.is_some(), "{pool}");
    }
}

#[tokio::test]
async fn rows_31_and_32_pools_in_two_networks_are_independent() {
    let bed = Bed::alone("network-per-namespace = true").await.unwrap();
    for path in ["one/net", "two/net", "net"] {
        bed.pool(path, &["10.0.0.10-10.0.0.12"], 24, "")
            .await
            .unwrap();
    }
    for (path, kind) in [("one/a", POOL), ("two/a", POOL), ("two/b", GLOBAL)] {
        bed.claim(path, (kind, "net")).await.unwrap();
        assert_eq!(bed.address(path).await.unwrap(), "10.0.0.10", "{path}");
    }
    let leases = bed.fipd.cli(["lease", "list", "-o", "json"]).await;
    let leases = leases.unwrap().json().unwrap();
    assert_eq!(leases["leases"].as_array().unwrap().len(), 3);
}

/// By a rule of the configuration, and by an annotation, which counts on pools of the whole cluster alone.
#[tokio::test]
async fn a_rule_or_an_annotation_says_which_network_a_pool_is_in() {
    let rule = "[[network]]\nname = \"red\"\nmatch = [{ system = \"cluster-api\", namespace = \"two\" }]\n";
    let bed = Bed::alone(rule).await.unwrap();
    let spec = json!({ "addresses": ["10.27.0.10-10.27.0.12"], "prefix": 24 });
    for (kind, path, network) in [
        (POOL, "one/net", None),
        (POOL, "two/net", None),
        (GLOBAL, "net", Some("blue")),
        (POOL, "one/claimed", Some("blue")),
    ] {
        let annotations = network.map_or(json!({}), |name| json!({ "fipd.io/network": name }));
        let pool = json!({ "metadata": { "annotations": annotations }, "spec": spec });
        bed.objects.make(kind, path, pool).await.unwrap();
    }
    for (path, pool, address) in [
        ("one/a", (POOL, "net"), "10.27.0.10"),
        ("two/a", (POOL, "net"), "10.27.0.10"),
        ("one/b", (GLOBAL, "net"), "10.27.0.10"),
        ("one/c", (POOL, "claimed"), "10.27.0.11"),
    ] {
        bed.claim(path, pool).await.unwrap();
        assert_eq!(bed.address(path).await.unwrap(), address, "{path}");
    }
    for (kind, path, network) in [
        (POOL, "one/net", "default"),
        (POOL, "two/net", "red"),
        (GLOBAL, "net", "blue"),
        (POOL, "one/claimed", "default"),
    ] {
        wait_until(&format!("{path} names its network"), DEADLINE, || async {
            let pool = bed.objects.get(kind, path).await;
            let pool = pool.map_err(|error| error.to_string())?;
            let status = pool.unwrap_or_default()["status"].take();
            (status["network"] == network)
                .then_some(())
                .ok_or(status.to_string())
        })
        .await
        .unwrap();
    }
}

/// Another pool may mean the same addresses in another network, and nobody chose either network.
#[tokio::test]
async fn what_another_network_may_mean_is_not_given_until_an_admin_says_that_they_are_two() {
    let bed = Bed::share(&["doubted"]).await.unwrap();
    let addresses = ["10.28.0.10-10.28.0.12"];
    let rows = [
        json!({ "name": "doubted" }),
        json!({
            "name": "doubted", "network": "doubted", "network_by_default": true,
            "addresses": addresses,
        }),
    ];
    let file = bed.fipd.directory().join("doubted.jsonl");
    std::fs::write(&file, rows.map(|row| row.to_string()).join("\n")).unwrap();
    let path = file.to_string_lossy();
    let import = bed.fipd.cli(["import", &path]).await;
    import.unwrap().success().unwrap();
    bed.pool("doubted/net", &addresses, 24, "").await.unwrap();
    let of_pool = bed
        .objects
        .wait_reason(POOL, "doubted/net", "NetworkAmbiguous");
    let of_pool = of_pool.await.unwrap();
    assert!(of_pool.contains("3 addresses are not given"), "{of_pool}");
    bed.claim("doubted/a", (POOL, "net")).await.unwrap();
    // A new pool waits for others before.
    let event = bed
        .objects
        .wait_event(CLAIM, "doubted/a", "NetworkAmbiguous");
    event.await.unwrap();
    wait_until("the claim says it", DEADLINE, || async {
        let claim = bed.objects.get(CLAIM, "doubted/a").await;
        let claim = claim.map_err(|error| error.to_string())?;
        let status = claim.unwrap_or_default()["status"].to_string();
        let says = status.contains("fipd network separate default doubted");
        says.then_some(()).ok_or(status)
    })
    .await
    .unwrap();
    let event = bed
        .objects
        .wait_event(POOL, "doubted/net", "NetworkAmbiguous");
    event.await.unwrap();
    let separate = ["network", "separate", "default", "doubted"];
    bed.fipd.cli(separate).await.unwrap().success().unwrap();
    assert_eq!(bed.address("doubted/a").await.unwrap(), "10.28.0.10");
    let ready = bed.objects.wait_reason(POOL, "doubted/net", "Mirrored");
    ready.await.unwrap();
}

/// A cluster that nobody has seen may have addresses in use.
#[tokio::test]
async fn claim_and_pool_name_the_cluster_that_their_network_waits_for() {
    const AWAY: &str = "apiVersion: v1\nkind: Config\ncurrent-context: away\n\
        clusters: [{name: away, cluster: {server: 'https://127.0.0.1:1'}}]\n\
        users: [{name: away, user: {token: none}}]\n\
        contexts: [{name: away, context: {cluster: away, user: away}}]\n";
    let mut bed = Bed::prepare("").await.unwrap();
    write_kubeconfig(&bed.fipd, "away", AWAY).unwrap();
    let away = "[[cluster]]\nname = \"away\"\nkubeconfig = \"away.kubeconfig\"\nsystems = [\"cluster-api\"]\n";
    let config = management_config(&bed.fipd, "");
    let fipd = bed.fipd.own().unwrap();
    fipd.write_config(&format!("{config}{away}")).unwrap();
    bed.restart().await.unwrap();
    bed.pool("one/net", &["10.29.0.10"], 24, "").await.unwrap();
    let of_pool = bed
        .objects
        .wait_reason(POOL, "one/net", "WaitingForAdoption");
    let of_pool = of_pool.await.unwrap();
    assert!(of_pool.contains("away"), "{of_pool}");
    bed.claim("one/a", (POOL, "net")).await.unwrap();
    let said = bed.refused("one/a", "PoolNotReady", "WaitingForAdoption");
    let said = said.await.unwrap();
    assert!(said.contains("away"), "{said}");
    let skip = ["clusters", "skip-adoption", "away", "--network", "default"];
    bed.fipd.cli(skip).await.unwrap().success().unwrap();
    assert_eq!(bed.address("one/a").await.unwrap(), "10.29.0.10");
}

/// Addresses that each of five asks for; there are fourteen.
const EACH: usize = 4;

/// A namespaced and a global pool of the in-cluster provider, and claims on them.
async fn ask_cluster_api(bed: &Bed) {
    for path in ["one/net", "net"] {
        bed.pool(path, &["10.26.0.1-10.26.0.14"], 28, "")
            .await
            .unwrap();
    }
    for number in 0..EACH {
        let (near, far) = (format!("one/near-{number}"), format!("two/far-{number}"));
        bed.claim(&near, (POOL, "net")).await.unwrap();
        bed.claim(&far, (GLOBAL, "net")).await.unwrap();
    }
}

/// A pool of rancher-fip, and FloatingIPs of it.
async fn ask_rancher_fip(bed: &Bed) {
    const API: &str = "rancher.k8s.binbash.org/v1beta2";
    let apply = async |object: Value| bed.plane.0.apply(&object.to_string()).await.unwrap();
    let range = json!({ "start": "10.26.0.1", "end": "10.26.0.14" });
    apply(json!({
        "apiVersion": API, "kind": "FloatingIPPool", "metadata": { "name": "net" },
        "spec": { "ipConfig": { "subnet": "10.26.0.0/28", "pool": range } },
    }))
    .await;
    for number in 0..EACH {
        let labels = json!({ "rancher.k8s.binbash.org/project-name": "p-a" });
        apply(json!({
            "apiVersion": API, "kind": "FloatingIP",
            "metadata": { "name": format!("floating-{number}"), "namespace": "two", "labels": labels },
            "spec": { "floatingIPPool": "net" },
        }))
        .await;
    }
}

/// A pool of fipd's own, leases of it by the command line, and claims that name it.
async fn ask_for_own(bed: &Bed) {
    let pool = ["pool", "create", "own", "--cidr", "10.26.0.0/28"];
    bed.fipd.cli(pool).await.unwrap().success().unwrap();
    for number in 0..EACH {
        bed.claim(&format!("one/own-{number}"), ("Pool", "own"))
            .await
            .unwrap();
        let owner = format!("fipd/Host/by-hand/host-{number}");
        let ask = ["lease", "allocate", "--pool", "own", "--owner", &owner];
        // The network gives nothing before all systems adopted what is in it, nor a new pool before others were looked for.
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

/// All addresses that objects of the cluster show, with who shows them.
async fn shown(bed: &Bed) -> Vec<(String, String)> {
    let mut shown = Vec::new();
    for address in bed
        .objects
        .of(ADDRESS, None)
        .list(&ListParams::default())
        .await
        .unwrap()
    {
        let address = json!(address);
        let text = address["spec"]["address"].as_str().unwrap().to_owned();
        let name = address["metadata"]["name"].as_str().unwrap();
        shown.push((text, format!("IPAddressClaim {name}")));
    }
    let fips: Api<FloatingIP> = Api::namespaced(bed.objects.client.clone(), "two");
    for fip in fips.list(&ListParams::default()).await.unwrap() {
        let fip = json!(fip);
        if let Some(text) = fip["status"]["ipAddr"]
            .as_str()
            .filter(|text| !text.is_empty())
        {
            let name = fip["metadata"]["name"].as_str().unwrap();
            shown.push((text.to_owned(), format!("FloatingIP {name}")));
        }
    }
    shown
}

#[tokio::test]
async fn pools_of_three_systems_over_one_range_give_no_address_twice() {
    let mut bed = Bed::prepare("").await.unwrap();
    bed.plane.0.install_crds(RANCHER_CRDS).await.unwrap();
    let kubeconfig = bed.plane.0.kubeconfig_yaml();
    write_kubeconfig(&bed.fipd, "management", kubeconfig).unwrap();
    let config = management_config(&bed.fipd, "pools = [\"own\"]");
    let config = config.replace("[\"cluster-api\"]", "[\"cluster-api\", \"rancher-fip\"]");
    let rancher = "[cluster.rancher-fip]\nrole = \"management\"\nquotas = \"optional\"\n";
    let fipd = bed.fipd.own().unwrap();
    fipd.write_config(&format!("{config}{rancher}")).unwrap();
    bed.restart().await.unwrap();
    tokio::join!(
        ask_cluster_api(&bed),
        ask_rancher_fip(&bed),
        ask_for_own(&bed)
    );
    let wanted: BTreeSet<String> = (1..=14).map(|last| format!("10.26.0.{last}")).collect();
    let leases = wait_until("every address has an owner", DEADLINE, || async {
        let leases = bed.leases("10.26.0.").await.unwrap();
        let addresses: BTreeSet<String> = leases.keys().cloned().collect();
        (addresses == wanted)
            .then_some(leases.clone())
            .ok_or(format!("{leases:?}"))
    })
    .await
    .unwrap();
    let owners: BTreeSet<&String> = leases.values().collect();
    assert_eq!(owners.len(), leases.len(), "{leases:?}");

    // What the objects show is what is leased, and none of it twice.
    let by_hand = leases.values().filter(|owner| owner.contains("/by-hand/"));
    let by_objects = leases.len() - by_hand.count();
    let shown = wait_until("the objects show it", DEADLINE, || async {
        let shown = shown(&bed).await;
        match shown.len() == by_objects {
            true => Ok(shown),
            false => Err(format!("{shown:?}")),
        }
    })
    .await
    .unwrap();
    let mut seen = BTreeMap::new();
    for (address, who) in shown {
        assert!(
            leases.contains_key(&address),
            "{who} shows {address}: {leases:?}"
        );
        let other = seen.insert(address.clone(), who.clone());
        assert_eq!(other, None, "{address} also of {who}");
    }
    for (kind, path) in [(POOL, "one/net"), (GLOBAL, "net")] {
        bed.counts(kind, path, [14, 14, 0, 0]).await.unwrap();
        let pool = bed.objects.get(kind, path).await.unwrap().unwrap();
        let conditions = pool["status"]["conditions"].as_array().unwrap();
        let overlap = conditions.iter().find(|one| one["type"] == "Overlapping");
        let message = overlap.unwrap()["message"].as_str().unwrap();
        assert!(message.contains("own"), "{message}");
    }
    // One that goes makes room for one that waits.
    let given = leases.iter().find(|(_, owner)| owner.contains("/by-hand/"));
    if let Some((address, _)) = given {
        let release = ["lease", "release", address];
        bed.fipd.cli(release).await.unwrap().success().unwrap();
        wait_until("it has another owner", DEADLINE, || async {
            let now = bed.leases(address).await.unwrap();
            let other = now.get(address).filter(|owner| **owner != leases[address]);
            other.map(drop).ok_or(format!("{now:?}"))
        })
        .await
        .unwrap();
    }
}
