//! Pods: which address each gets, for how long, and what it is told.

use super::*;

/// Rows 5, 14 and 54: the lowest free address, never the gateway, pending until the pod has it, and then its labels.
#[tokio::test]
async fn a_pod_gets_the_lowest_free_address_and_its_labels_once_it_has_it() {
    let bed = PodBed::share(&["plain"]).await.unwrap();
    let rest = json!({ "vlan": 200, "gateway": "10.200.0.1" });
    bed.objects
        .subnet("plain", "10.200.0.0/16", rest)
        .await
        .unwrap();
    let uid = bed
        .objects
        .pod("plain/a", "plain", "auto", json!({}))
        .await
        .unwrap();
    let ip = bed
        .objects
        .wait_phase(IP, "plain/a", "Pending")
        .await
        .unwrap();
    assert_eq!(ip["status"]["addr"], "10.200.0.2");
    assert_eq!(
        (&ip["spec"]["podId"], &ip["spec"]["subnet"]),
        (&json!(uid), &json!("plain"))
    );
    let meta = &ip["metadata"];
    assert_eq!(
        meta["finalizers"],
        json!(["wrangler.cattle.io/rancher-flat-network-ip-remove"])
    );
    assert_eq!(
        (
            &meta["ownerReferences"][0]["uid"],
            &meta["labels"]["subnet"]
        ),
        (&json!(uid), &json!("plain"))
    );
    assert_eq!(
        meta["labels"]["flatnetwork.pandaria.io/flatNetworkIPType"],
        "auto"
    );
    assert!(
        ip["status"]["allocatedTimeStamp"]
            .as_str()
            .unwrap()
            .ends_with('Z')
    );
    let leases = bed.leases("10.200.").await.unwrap();
    assert!(
        leases["10.200.0.2"].ends_with("/FlatNetworkIP/plain/a"),
        "{leases:?}"
    );
    bed.objects
        .pod("plain/b", "plain", "auto", json!({}))
        .await
        .unwrap();
    assert_eq!(
        bed.objects.wait_address("plain/b").await.unwrap(),
        "10.200.0.3"
    );
    bed.objects.attach("plain/a").await.unwrap();
    let labelled = |pod: &Value| {
        pod["metadata"]["labels"]["flatnetwork.pandaria.io/selectedIP"] == "10.200.0.2"
    };
    let pod = bed
        .objects
        .wait("Pod", "plain/a", "has its labels", labelled)
        .await
        .unwrap();
    let labels = &pod["metadata"]["labels"];
    assert_eq!(labels["flatnetwork.pandaria.io/subnet"], "plain");
    assert_eq!(labels["flatnetwork.pandaria.io/flatMode"], "macvlan");
    let counted = |one: &Value| one["status"]["usedIPCount"] == 3;
    let counted = bed
        .objects
        .wait(SUBNET, &subnet("plain"), "counts", counted)
        .await
        .unwrap();
    assert_eq!(
        counted["status"]["usedIP"],
        json!([{ "from": "10.200.0.1", "to": "10.200.0.3" }])
    );
}

/// Rows 46 and 57, and b.2: of several addresses each pod gets one, one that is in use is waited for, and MACs likewise.
#[tokio::test]
async fn of_several_addresses_each_pod_gets_the_first_that_is_free() {
    let bed = PodBed::share(&["several"]).await.unwrap();
    bed.objects
        .subnet("several", "10.201.0.0/24", json!({ "vlan": 201 }))
        .await
        .unwrap();
    let wanted = "10.201.0.9-10.201.0.7";
    let macs = json!({ "annotations": { "flatnetwork.pandaria.io/mac": "02:00:00:00:00:0A-02:00:00:00:00:0b" } });
    for name in ["a", "b", "c"] {
        let path = format!("several/{name}");
        bed.objects
            .pod(&path, "several", wanted, macs.clone())
            .await
            .unwrap();
        match name {
            "a" => assert_eq!(bed.objects.wait_address(&path).await.unwrap(), "10.201.0.9"),
            "b" => assert_eq!(bed.objects.wait_address(&path).await.unwrap(), "10.201.0.7"),
            _ => {
                let note = bed.objects.wait_event(&path, IP_ERROR).await.unwrap();
                assert!(note.contains("no available"), "{note}");
            }
        }
    }
    let mac = async |path: &str| {
        let ip = bed.objects.get(IP, path).await.unwrap().unwrap();
        ip["status"]["mac"].as_str().unwrap().to_owned()
    };
    assert_eq!(mac("several/a").await, "02:00:00:00:00:0a");
    assert_eq!(mac("several/b").await, "02:00:00:00:00:0b");
    let used =
        |one: &Value| one["status"]["usedMac"] == json!(["02:00:00:00:00:0a", "02:00:00:00:00:0b"]);
    bed.objects
        .wait(SUBNET, &subnet("several"), "lists the MACs", used)
        .await
        .unwrap();
    bed.objects.delete("Pod", "several/b").await.unwrap();
    assert_eq!(
        bed.objects.wait_address("several/c").await.unwrap(),
        "10.201.0.7"
    );
    assert_eq!(mac("several/c").await, "02:00:00:00:00:0b");
}

/// Rows 9, 47, 55 and 58: why there is no address is an Event on the pod, and it gets one as soon as there is one.
#[tokio::test]
async fn a_pod_without_an_address_is_told_why_and_served_once_it_can_be() {
    let bed = PodBed::share(&["waits"]).await.unwrap();
    bed.objects
        .pod("waits/early", "later", "auto", json!({}))
        .await
        .unwrap();
    let note = bed
        .objects
        .wait_event("waits/early", IP_ERROR)
        .await
        .unwrap();
    assert!(
        note.contains("there is no usable FlatNetworkSubnet \"later\""),
        "{note}"
    );
    let one = json!({ "vlan": 202, "ranges": [{ "from": "10.202.0.5", "to": "10.202.0.5" }] });
    bed.objects
        .subnet("later", "10.202.0.0/24", one)
        .await
        .unwrap();
    assert_eq!(
        bed.objects.wait_address("waits/early").await.unwrap(),
        "10.202.0.5"
    );
    bed.objects
        .pod("waits/full", "later", "auto", json!({}))
        .await
        .unwrap();
    let failed = bed
        .objects
        .wait_phase(IP, "waits/full", "Failed")
        .await
        .unwrap();
    assert_eq!(condition(&failed, "Ready")["reason"], "PoolExhausted");
    let event = bed
        .objects
        .wait_event("waits/full", IP_ERROR)
        .await
        .unwrap();
    assert_eq!(failed["status"]["failureMessage"], event);
    bed.objects
        .pod("waits/odd", "later", "10.202.0.1a3", json!({}))
        .await
        .unwrap();
    let event = bed.objects.wait_event("waits/odd", IP_ERROR).await.unwrap();
    assert!(event.contains("flatnetwork.pandaria.io/ip"), "{event}");
    assert!(bed.objects.get(IP, "waits/odd").await.unwrap().is_none());
    bed.objects.delete("Pod", "waits/early").await.unwrap();
    assert_eq!(
        bed.objects.wait_address("waits/full").await.unwrap(),
        "10.202.0.5"
    );
}

/// Defects 2 to 4 of g.1: a pod of the same name is another pod, and its predecessor's address is not its own.
#[tokio::test]
async fn g1_4_a_successor_has_an_address_of_its_own_and_frees_nobodys() {
    let bed = PodBed::share(&["heirs"]).await.unwrap();
    bed.objects
        .subnet(
            "heirs",
            "10.203.0.0/24",
            json!({ "vlan": 203, "quarantineSeconds": 600 }),
        )
        .await
        .unwrap();
    bed.objects
        .pod("heirs/a", "heirs", "auto", json!({}))
        .await
        .unwrap();
    assert_eq!(
        bed.objects.wait_address("heirs/a").await.unwrap(),
        "10.203.0.1"
    );
    bed.objects.delete("Pod", "heirs/a").await.unwrap();
    let second = bed
        .objects
        .pod("heirs/a", "heirs", "auto", json!({}))
        .await
        .unwrap();
    let own =
        |ip: &Value| ip["spec"]["podId"] == json!(second) && ip["status"]["addr"] == "10.203.0.2";
    bed.objects
        .wait(IP, "heirs/a", "is the second pod's", own)
        .await
        .unwrap();
    let leases = bed.leases("10.203.0.2").await.unwrap();
    assert_eq!(leases.len(), 1, "{leases:?}");
}

/// Defect 5 of g.1: pods that wait for a subnet hold up none of another.
#[tokio::test]
async fn g1_5_a_subnet_that_many_wait_for_holds_up_no_other() {
    let bed = PodBed::share(&["crowd"]).await.unwrap();
    let one = json!({ "vlan": 208, "ranges": [{ "from": "10.208.0.5", "to": "10.208.0.5" }] });
    bed.objects
        .subnet("crowded", "10.208.0.0/24", one)
        .await
        .unwrap();
    bed.objects
        .subnet("roomy", "10.209.0.0/24", json!({ "vlan": 209 }))
        .await
        .unwrap();
    for pod in 0..30 {
        bed.objects
            .pod(&format!("crowd/p-{pod}"), "crowded", "auto", json!({}))
            .await
            .unwrap();
    }
    bed.objects
        .pod("crowd/other", "roomy", "auto", json!({}))
        .await
        .unwrap();
    assert_eq!(
        bed.objects.wait_address("crowd/other").await.unwrap(),
        "10.209.0.1"
    );
    let leases = bed.leases("10.208.").await.unwrap();
    assert!(leases.len() <= 1, "{leases:?}");
}

/// A pod that is told to go keeps its address until it is gone; one that has ended gives it back at once.
#[tokio::test]
async fn an_address_stays_while_its_pod_may_use_it() {
    let bed = PodBed::share(&["ends"]).await.unwrap();
    bed.objects
        .subnet("ends", "10.204.0.0/24", json!({ "vlan": 204 }))
        .await
        .unwrap();
    let held = json!({ "finalizers": ["fipd.test/held"] });
    bed.objects
        .pod("ends/a", "ends", "auto", held)
        .await
        .unwrap();
    let address = bed.objects.wait_address("ends/a").await.unwrap();
    bed.objects.delete("Pod", "ends/a").await.unwrap();
    let goes = |ip: &Value| !ip["metadata"]["deletionTimestamp"].is_null();
    bed.objects.wait(IP, "ends/a", "goes", goes).await.unwrap();
    bed.objects
        .pod("ends/b", "ends", "auto", json!({}))
        .await
        .unwrap();
    assert_ne!(bed.objects.wait_address("ends/b").await.unwrap(), address);
    assert_eq!(bed.leases(&address).await.unwrap().len(), 1);
    let none = json!({ "metadata": { "finalizers": null } });
    bed.objects.merge("Pod", "ends/a", none).await.unwrap();
    bed.objects.wait_gone(IP, "ends/a").await.unwrap();
    bed.objects
        .pod("ends/c", "ends", "auto", json!({}))
        .await
        .unwrap();
    assert_eq!(bed.objects.wait_address("ends/c").await.unwrap(), address);
    bed.objects
        .merge_status("Pod", "ends/c", json!({ "phase": "Succeeded" }))
        .await
        .unwrap();
    bed.objects.wait_gone(IP, "ends/c").await.unwrap();
    assert!(bed.leases(&address).await.unwrap().is_empty());
}

/// An ordinal of a StatefulSet keeps its address where the subnet says so, also after a force delete.
#[tokio::test]
async fn g1_21_an_ordinal_keeps_its_address_for_its_successor() {
    let bed = PodBed::share(&["ordinals"]).await.unwrap();
    let rest = json!({ "vlan": 205, "stickySeconds": 3600 });
    bed.objects
        .subnet("ordinals", "10.205.0.0/24", rest)
        .await
        .unwrap();
    let template = json!({
        "metadata": { "labels": { "a": "b" }, "annotations": {
            "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": "ordinals",
        } },
        "spec": { "containers": [{ "name": "c", "image": "none" }] },
    });
    let spec = json!({ "serviceName": "db", "selector": { "matchLabels": { "a": "b" } }, "template": template });
    let set = json!({ "spec": spec });
    bed.objects
        .make("StatefulSet", "ordinals/db", set)
        .await
        .unwrap();
    let address = bed.objects.wait_address("ordinals/db-0").await.unwrap();
    let ip = bed.objects.get(IP, "ordinals/db-0").await.unwrap().unwrap();
    let owner = &ip["metadata"]["ownerReferences"][0];
    assert_eq!(owner["kind"], "StatefulSet", "{ip}");
    bed.objects.attach("ordinals/db-0").await.unwrap();
    bed.objects.delete("Pod", "ordinals/db-0").await.unwrap();
    bed.objects
        .pod("ordinals/other", "ordinals", "auto", json!({}))
        .await
        .unwrap();
    assert_ne!(
        bed.objects.wait_address("ordinals/other").await.unwrap(),
        address
    );
    let first = ip["spec"]["podId"].clone();
    let own = |ip: &Value| ip["spec"]["podId"] != first && ip["status"]["phase"] == "Pending";
    let ip = bed
        .objects
        .wait(IP, "ordinals/db-0", "is the second pod's", own)
        .await
        .unwrap();
    assert_eq!(ip["status"]["addr"], json!(address));
    bed.objects
        .delete("StatefulSet", "ordinals/db")
        .await
        .unwrap();
    bed.objects.wait_gone(IP, "ordinals/db-0").await.unwrap();
}

/// Defect g1-8: what a workload names is kept for its pods, before they are there and between two of them.
#[tokio::test]
async fn g1_8_addresses_that_a_workload_names_are_for_its_pods_alone() {
    let bed = PodBed::share(&["reserved"]).await.unwrap();
    let rest = json!({ "vlan": 206, "ranges": [{ "from": "10.206.0.5", "to": "10.206.0.7" }] });
    bed.objects
        .subnet("reserved", "10.206.0.0/24", rest)
        .await
        .unwrap();
    let template = json!({
        "metadata": { "labels": { "a": "b" }, "annotations": {
            "flatnetwork.pandaria.io/ip": "10.206.0.5-10.206.0.6",
            "flatnetwork.pandaria.io/subnet": "reserved",
        } },
        "spec": {
            "containers": [{ "name": "c", "image": "none" }], "terminationGracePeriodSeconds": 0,
        },
    });
    let spec =
        json!({ "replicas": 0, "selector": { "matchLabels": { "a": "b" } }, "template": template });
    let web = json!({ "spec": spec });
    bed.objects
        .make("Deployment", "reserved/web", web)
        .await
        .unwrap();
    let kept = json!({ "Deployment/reserved/web": [{ "from": "10.206.0.5", "to": "10.206.0.6" }] });
    let lists = |one: &Value| one["status"]["reservedIP"] == kept;
    let seen = bed
        .objects
        .wait(SUBNET, &subnet("reserved"), "lists the reservation", lists)
        .await
        .unwrap();
    let count = &seen["status"]["usedIPCount"];
    assert!(count.is_null() || *count == 0, "{seen}");
    for name in ["third", "fourth"] {
        let path = format!("reserved/{name}");
        bed.objects
            .pod(&path, "reserved", "auto", json!({}))
            .await
            .unwrap();
        match name {
            "third" => assert_eq!(bed.objects.wait_address(&path).await.unwrap(), "10.206.0.7"),
            _ => {
                let failed = bed.objects.wait_phase(IP, &path, "Failed").await.unwrap();
                assert_eq!(condition(&failed, "Ready")["reason"], "PoolExhausted");
            }
        }
    }
    let two = json!({ "spec": { "replicas": 2 } });
    bed.objects
        .merge("Deployment", "reserved/web", two)
        .await
        .unwrap();
    let first = addresses_of_web(&bed).await;
    assert_eq!(
        first.keys().collect::<Vec<_>>(),
        ["10.206.0.5", "10.206.0.6"]
    );
    // The next pod has it again, and nobody else meanwhile.
    let gone = &first["10.206.0.5"];
    bed.objects.delete("Pod", gone).await.unwrap();
    bed.objects.wait_gone(IP, gone).await.unwrap();
    let second = addresses_of_web(&bed).await;
    assert_ne!(second["10.206.0.5"], *gone);
    let ip = bed.objects.get(IP, "reserved/fourth").await.unwrap();
    assert_eq!(ip.unwrap()["status"]["addr"], Value::Null);
    bed.objects
        .delete("Deployment", "reserved/web")
        .await
        .unwrap();
}

/// The two pods of Deployment `reserved/web` by their addresses, once both have one.
async fn addresses_of_web(bed: &PodBed) -> BTreeMap<String, String> {
    let found = wait_until("two pods of web have addresses", DEADLINE, || async {
        let names = bed.objects.names(IP, "reserved").await;
        let names = names.map_err(|error| format!("{error:#}"))?;
        let mut found = BTreeMap::new();
        for name in names.iter().filter(|name| name.starts_with("web-")) {
            let path = format!("reserved/{name}");
            let ip = bed.objects.get(IP, &path).await;
            let ip = ip.map_err(|error| format!("{error:#}"))?;
            let address = ip.and_then(|ip| Some(ip["status"]["addr"].as_str()?.to_owned()));
            found.extend(address.map(|address| (address, path)));
        }
        match found.len() {
            2 => Ok(found),
            _ => Err(format!("{found:?}")),
        }
    });
    found.await.unwrap()
}
