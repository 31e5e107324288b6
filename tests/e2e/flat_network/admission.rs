//! What the API server is told to refuse.

use fipd_tests::testbed::wait_until;

use super::*;

/// Rules S and W, defects 10 and 20 of g.1: by fipd's webhook, whatever labels say, and only for who is on a flat network.
#[tokio::test]
async fn g1_10_what_breaks_a_rule_is_refused_whatever_its_labels_say() {
    let mut bed = PodBed::prepare("", &["asked"]).await.unwrap();
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
        let annotations = json!({
            "flatnetwork.pandaria.io/ip": ip, "flatnetwork.pandaria.io/subnet": "asked",
            "k8s.v1.cni.cncf.io/networks": "rancher-flat-network",
        });
        let mut object = json!({ "metadata": metadata, "spec": { "containers": [{ "name": "c", "image": "none" }] } });
        object["metadata"]["annotations"] = annotations;
        objects.make("Pod", "asked/p", object).await
    };
    for (ip, says) in [
        ("10.231.0.1", "gateway"),
        ("10.231.0.0", "first or the last"),
        ("10.9.9.9", "outside"),
        ("10.231.0.5-10.231.0.5", "10.231.0.5"),
        ("10.231.0.1a3", "IP address"),
    ] {
        let labels = json!({ "labels": { "flatnetwork.pandaria.io/subnet": "elsewhere" } });
        let why = format!("{:#}", pod(ip, labels).await.expect_err(ip));
        assert!(why.contains(says), "{ip}: {why}");
    }
    pod("10.231.0.5", json!({})).await.unwrap();
    assert_eq!(objects.wait_address("asked/p").await.unwrap(), "10.231.0.5");
    let gone = objects.delete(SUBNET, &subnet("asked")).await;
    assert!(gone.is_err(), "it is in use");
}
