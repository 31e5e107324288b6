//! Several interfaces of a pod, and both families on each: extensions of fipd.

use super::*;

const INTERFACE: &str = "fipd.io/interface";
const NAMESPACE: &str = "dual";

/// What each address of the pod `a` shows: its interface, its subnet, and itself.
async fn shown(bed: &PodBed, uid: &str) -> anyhow::Result<Vec<[String; 3]>> {
    let mut shown = Vec::new();
    for name in bed.objects.names(IP, NAMESPACE).await? {
        let path = format!("{NAMESPACE}/{name}");
        let Some(ip) = bed.objects.get(IP, &path).await? else {
            continue;
        };
        anyhow::ensure!(ip["spec"]["podId"] == uid, "{ip}");
        let annotations = &ip["metadata"]["annotations"];
        let is_named = name == "a" || name.starts_with("a.if-");
        let owner = &ip["metadata"]["ownerReferences"][0]["name"];
        anyhow::ensure!(is_named && owner == "a", "{ip}");
        let fields = [
            &annotations[INTERFACE],
            &ip["spec"]["subnet"],
            &ip["status"]["addr"],
        ];
        shown.push(fields.map(|field| field.as_str().unwrap_or_default().to_owned()));
    }
    shown.sort();
    Ok(shown)
}

async fn wait_shown(bed: &PodBed, uid: &str, expected: &[[&str; 3]]) {
    wait_until("each interface has its addresses", DEADLINE, || async {
        let seen = shown(bed, uid).await?;
        anyhow::ensure!(seen == expected, "{seen:?}");
        Ok(())
    })
    .await
    .unwrap();
}

async fn make(bed: &PodBed) -> String {
    let further = json!([{ "interface": "eth2", "subnet": "store", "ip": "10.231.0.9" }]);
    let annotations = json!({
        "fipd.io/additional-interfaces": further.to_string(), "fipd.io/dual-stack": "true",
    });
    let metadata = json!({ "annotations": annotations });
    let made = bed.objects.pod("dual/a", "four", "auto", metadata);
    made.await.unwrap()
}

#[tokio::test]
async fn a_pod_has_an_address_on_each_interface_and_in_both_families() {
    let mut bed = PodBed::alone("", &[NAMESPACE]).await.unwrap();
    for (name, cidr, rest) in [
        (
            "four",
            "10.230.0.0/16",
            json!({ "vlan": 230, "partner": "six" }),
        ),
        ("six", "fd00:230::/64", json!({ "vlan": 230 })),
        ("store", "10.231.0.0/16", json!({ "vlan": 231 })),
    ] {
        bed.objects.subnet(name, cidr, rest).await.unwrap();
        bed.objects
            .wait_phase(SUBNET, &subnet(name), "Active")
            .await
            .unwrap();
    }
    let uid = make(&bed).await;
    let three = [
        ["", "four", "10.230.0.1"],
        ["", "six", "fd00:230::1"],
        ["eth2", "store", "10.231.0.9"],
    ];
    wait_shown(&bed, &uid, &three).await;
    let why = bed.objects.wait_event("dual/a", IP_ERROR).await.unwrap();
    assert!(
        why.contains("[fipd.io/dual-stack]") && why.contains("\"store\" names no subnet"),
        "{why}"
    );
    bed.objects
        .subnet("store6", "fd00:231::/64", json!({ "vlan": 999 }))
        .await
        .unwrap();
    let partner = json!({ "spec": { "partner": "store6" } });
    bed.objects
        .merge(SUBNET, &subnet("store"), partner)
        .await
        .unwrap();
    wait_until("the partner does not fit", DEADLINE, || async {
        let rows = bed.fipd.cli(["flat-network", "pods", "-o", "json"]).await?;
        let rows = rows.json()?.to_string();
        anyhow::ensure!(rows.contains("vlan of both must be the same"), "{rows}");
        Ok(())
    })
    .await
    .unwrap();
    let vlan = json!({ "spec": { "vlan": 231 } });
    bed.objects
        .merge(SUBNET, &subnet("store6"), vlan)
        .await
        .unwrap();
    let four = [
        three[0],
        three[1],
        three[2],
        ["eth2", "store6", "fd00:231::1"],
    ];
    wait_shown(&bed, &uid, &four).await;
    for prefix in ["10.23", "fd00:23"] {
        assert_eq!(bed.leases(prefix).await.unwrap().len(), 2);
    }

    // Another partner is for pods to come.
    bed.objects
        .subnet("other6", "fd00:239::/64", json!({ "vlan": 230 }))
        .await
        .unwrap();
    let partner = |name: &str| json!({ "spec": { "partner": name } });
    bed.objects
        .merge(SUBNET, &subnet("four"), partner("other6"))
        .await
        .unwrap();
    let row = json!({ "metadata": { "annotations": { "shop/note": "looked at" } } });
    bed.objects.merge("Pod", "dual/a", row).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(shown(&bed, &uid).await.unwrap(), four);
    bed.objects
        .merge(SUBNET, &subnet("four"), partner("six"))
        .await
        .unwrap();

    // The next pod of the name comes while fipd is away.
    bed.fipd.own().unwrap().kill9().unwrap();
    bed.objects.delete("Pod", "dual/a").await.unwrap();
    bed.objects.wait_gone("Pod", "dual/a").await.unwrap();
    let next = make(&bed).await;
    bed.restart().await.unwrap();
    wait_shown(&bed, &next, &four).await;
    bed.objects.delete("Pod", "dual/a").await.unwrap();
    wait_until("no address is left", DEADLINE, || async {
        let left = bed.objects.names(IP, NAMESPACE).await?;
        anyhow::ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(bed.leases("").await.unwrap(), BTreeMap::new());
}

/// What an ordinal does not ask for any more is kept for its declared time, and not for good.
#[tokio::test]
async fn an_interface_that_a_statefulset_drops_gives_its_address_back() {
    let bed = PodBed::share(&["drops"]).await.unwrap();
    for (name, cidr, vlan, sticky) in [
        ("drops", "10.232.0.0/24", 232, 3_600),
        ("dropped", "10.233.0.0/24", 233, 2),
    ] {
        let rest = json!({ "vlan": vlan, "stickySeconds": sticky });
        bed.objects.subnet(name, cidr, rest).await.unwrap();
    }
    let further = json!([{ "interface": "eth2", "subnet": "dropped" }]);
    let template = json!({
        "metadata": { "labels": { "a": "b" }, "annotations": {
            "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": "drops",
            "fipd.io/additional-interfaces": further.to_string(),
        } },
        "spec": {
            "containers": [{ "name": "c", "image": "none" }], "terminationGracePeriodSeconds": 0,
        },
    });
    let set = json!({ "spec": {
        "serviceName": "db", "selector": { "matchLabels": { "a": "b" } }, "template": template,
        "updateStrategy": { "type": "OnDelete" },
    } });
    bed.objects
        .make("StatefulSet", "drops/db", set)
        .await
        .unwrap();
    let address = bed.objects.wait_address("drops/db-0").await.unwrap();
    let lease = || async { bed.leases("10.233.").await };
    wait_until("eth2 has an address", DEADLINE, || async {
        anyhow::ensure!(lease().await?.len() == 1);
        Ok(())
    })
    .await
    .unwrap();
    let without = json!({ "fipd.io/additional-interfaces": null });
    let without = json!({ "spec": { "template": { "metadata": { "annotations": without } } } });
    bed.objects
        .merge("StatefulSet", "drops/db", without)
        .await
        .unwrap();
    bed.objects.delete("Pod", "drops/db-0").await.unwrap();
    // The pod is missed twice, a minute apart.
    wait_until("eth2 has no address", 3 * DEADLINE, || async {
        let left = (lease().await?, bed.objects.names(IP, "drops").await?);
        anyhow::ensure!(left.0.is_empty() && left.1 == ["db-0"], "{left:?}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(
        bed.objects.wait_address("drops/db-0").await.unwrap(),
        address
    );
    bed.objects.delete("StatefulSet", "drops/db").await.unwrap();
    bed.objects.wait_gone(IP, "drops/db-0").await.unwrap();
}
