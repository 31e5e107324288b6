//! What the API server is told to refuse.

use fipd_tests::flat_network::FlatObjects;

use super::*;

/// Has the API server ask fipd.
async fn have_it_asked(bed: &mut PodBed) {
    let fipd = bed.fipd.own().unwrap();
    let config = format!(
        "[api]\nadvertise = \"{}\"\n[[cluster]]\nname = \"pods\"\nkubeconfig = \"pods.kubeconfig\"\nsystems = [\"flat-network\"]\n",
        fipd.url()
    );
    fipd.write_config(&config).unwrap();
    bed.restart().await.unwrap();
    let objects = &bed.objects;
    wait_until("the webhook is in force", DEADLINE, || async {
        let made = objects
            .subnet("odd", "10.230.0.0/240", json!({ "vlan": 230 }))
            .await;
        match made {
            Err(error) => Ok(format!("{error:#}")),
            Ok(()) => {
                objects.delete(SUBNET, &subnet("odd")).await.unwrap();
                Err("it was stored".to_owned())
            }
        }
    })
    .await
    .unwrap();
}

/// A pod that Multus attaches; why it is not stored.
async fn make_attached(
    objects: &FlatObjects,
    path: &str,
    (subnet, ip): (&str, &str),
    metadata: Value,
) -> Result<(), String> {
    let annotations = json!({
        "flatnetwork.pandaria.io/ip": ip, "flatnetwork.pandaria.io/subnet": subnet,
        "k8s.v1.cni.cncf.io/networks": "rancher-flat-network",
    });
    let mut object = json!({ "metadata": metadata, "spec": { "containers": [{ "name": "c", "image": "none" }] } });
    object["metadata"]["annotations"] = annotations;
    let made = objects.make("Pod", path, object).await;
    made.map(drop).map_err(|error| format!("{error:#}"))
}

/// Rules S and W, defects 10 and 20 of g.1: by fipd's webhook, whatever labels say, and only for who is on a flat network.
#[tokio::test]
async fn g1_10_what_breaks_a_rule_is_refused_whatever_its_labels_say() {
    let mut bed = PodBed::prepare("", &["asked"]).await.unwrap();
    have_it_asked(&mut bed).await;
    let objects = &bed.objects;
    let refused = async |name: &str, rest: Value| {
        let mut fields = json!({ "vlan": 231 });
        for (key, value) in rest.as_object().unwrap() {
            fields[key] = value.clone();
        }
        let made = objects.subnet(name, "10.231.0.0/24", fields).await;
        format!("{:#}", made.expect_err("it is refused"))
    };
    for (rest, says) in [
        (
            json!({ "flatMode": "vlan" }),
            "unrecognized subnet flatMode",
        ),
        (json!({ "gateway": "10.9.9.9" }), "spec.gateway"),
        (json!({ "ipvlanFlag": "bridge" }), "spec.ipvlanFlag"),
        (json!({ "mode": "l4" }), "spec.mode"),
        (
            json!({ "routes": [{ "dev": "eth1", "dst": "1.2.3.4" }] }),
            "spec.routes[0].dst",
        ),
    ] {
        let why = refused("wrong", rest).await;
        assert!(why.contains(says), "{why}");
    }
    let rest = json!({ "vlan": 231, "gateway": "10.231.0.1" });
    objects
        .subnet("asked", "10.231.0.0/24", rest)
        .await
        .unwrap();
    objects
        .wait_phase(SUBNET, &subnet("asked"), "Active")
        .await
        .unwrap();
    let why = refused("twin", json!({})).await;
    assert!(why.contains("CIDR conflict"), "{why}");

    // Its namespace gets a service account a moment after it is made; nobody asks fipd about such a pod.
    wait_until("a pod on no flat network is made", DEADLINE, || async {
        let plain = json!({ "spec": { "containers": [{ "name": "c", "image": "none" }] } });
        let made = objects.make("Pod", "asked/plain", plain).await;
        made.map_err(|error| format!("{error:#}"))
    })
    .await
    .unwrap();
    let pod = async |ip: &str, metadata: Value| {
        make_attached(objects, "asked/p", ("asked", ip), metadata).await
    };
    for (ip, says) in [
        ("10.231.0.1", "gateway"),
        ("10.231.0.0", "first or the last"),
        ("10.9.9.9", "outside"),
        ("10.231.0.5-10.231.0.5", "10.231.0.5"),
        ("10.231.0.1a3", "IP address"),
    ] {
        let labels = json!({ "labels": { "flatnetwork.pandaria.io/subnet": "elsewhere" } });
        let why = pod(ip, labels).await.expect_err(ip);
        assert!(why.contains(says), "{ip}: {why}");
    }
    pod("10.231.0.5", json!({})).await.unwrap();
    assert_eq!(objects.wait_address("asked/p").await.unwrap(), "10.231.0.5");
    let gone = objects.delete(SUBNET, &subnet("asked")).await;
    assert!(gone.is_err(), "it is in use");
}

/// A refused edit changes nothing for pods, other subnets and what fipd shows, also after a restart.
#[tokio::test]
async fn the_last_good_subnet_stays_in_force() {
    let mut bed = PodBed::prepare("", &["force"]).await.unwrap();
    have_it_asked(&mut bed).await;
    let range = |from: u8, to: u8| json!([{ "from": format!("10.232.0.{from}"), "to": format!("10.232.0.{to}") }]);
    let good = json!({ "vlan": 232, "ranges": range(10, 20), "stickySeconds": 60 });
    let path = subnet("force");
    let made = bed.objects.subnet("force", "10.232.0.0/24", good.clone());
    made.await.unwrap();
    let active = bed.objects.wait_phase(SUBNET, &path, "Active");
    assert_eq!(active.await.unwrap()["status"]["accepted"]["vlan"], 232);
    // Its namespace gets a service account a moment after it is made.
    let first = bed.objects.pod("force/a", "force", "auto", json!({}));
    first.await.unwrap();
    let address = bed.objects.wait_address("force/a");
    assert_eq!(address.await.unwrap(), "10.232.0.10");
    for edit in [
        json!({ "vlan": 233, "flatMode": "ipvlan", "ranges": range(30, 40), "stickySeconds": 0 }),
        json!({ "cidr": "10.232.0.0/240", "routes": [{ "dev": "eth1", "dst": "10.0.0.0/8" }] }),
    ] {
        // Nobody asks fipd about it.
        bed.fipd.own().unwrap().kill9().unwrap();
        let edit = json!({ "spec": edit });
        bed.objects.merge(SUBNET, &path, edit).await.unwrap();
        bed.restart().await.unwrap();
        let refused = |one: &Value| condition(one, "Ready")["reason"] == "Refused";
        let seen = bed.objects.wait(SUBNET, &path, "is refused", refused);
        let status = seen.await.unwrap()["status"].take();
        for (field, value) in good.as_object().unwrap() {
            assert_eq!(status["accepted"][field], *value, "{status}");
        }
    }
    let objects = &bed.objects;
    let address = async |path: &str| objects.wait_address(path).await.unwrap();
    let named = async |name: &str, ip: &str| {
        make_attached(objects, &format!("force/{name}"), ("force", ip), json!({})).await
    };
    wait_until("fipd is asked again", DEADLINE, || async {
        match named("outside", "10.232.0.35").await {
            Err(why) if why.contains("ranges") => Ok(()),
            Err(why) => Err(why),
            Ok(()) => {
                objects.delete("Pod", "force/outside").await.unwrap();
                Err("it was stored".to_owned())
            }
        }
    })
    .await
    .unwrap();
    named("inside", "10.232.0.15").await.unwrap();
    assert_eq!(address("force/inside").await, "10.232.0.15");
    named("b", "auto").await.unwrap();
    assert_eq!(address("force/b").await, "10.232.0.11");
    objects.attach("force/b").await.unwrap();
    let is_labelled =
        |pod: &Value| pod["metadata"]["labels"]["flatnetwork.pandaria.io/flatMode"] == "macvlan";
    let labelled = objects.wait("Pod", "force/b", "has its labels", is_labelled);
    labelled.await.unwrap();
    let rows = ["flat-network", "subnets", "-o", "json"];
    let rows = bed.fipd.cli(rows).await.unwrap().json().unwrap();
    assert_eq!(rows["subnets"][0]["vlan"], 232, "{rows}");
    let other = json!({ "vlan": 233, "flatMode": "ipvlan", "ranges": range(30, 40) });
    let other = objects.subnet("other", "10.232.0.0/24", other);
    other.await.unwrap();
    let beside = subnet("other");
    let active = objects.wait_phase(SUBNET, &beside, "Active");
    active.await.unwrap();
    let mut back = good.clone();
    back["cidr"] = json!("10.232.0.0/24");
    back["flatMode"] = json!("macvlan");
    back["routes"] = Value::Null;
    let back = json!({ "spec": back });
    objects.merge(SUBNET, &path, back).await.unwrap();
    let is_ready = |one: &Value| condition(one, "Ready")["status"] == "True";
    let ready = objects.wait(SUBNET, &path, "is as it was", is_ready);
    ready.await.unwrap();
}
