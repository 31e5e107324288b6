//! What outlives fipd.

use super::*;

/// Defects 3 and 6 of g.1. As many pods as addresses, deleted and made again while deletes still drain, and fipd killed midway: none has another's, and
/// none is lost.
#[tokio::test]
async fn g1_3_6_pods_that_fill_a_subnet_come_and_go_and_no_address_is_given_twice() {
    const PODS: usize = 40;
    let mut bed = PodBed::alone("", &["churn"]).await.unwrap();
    let rest = json!({ "vlan": 210, "ranges": [{ "from": "10.210.0.11", "to": "10.210.0.50" }] });
    bed.objects
        .subnet("churn", "10.210.0.0/24", rest)
        .await
        .unwrap();
    let path = |pod: usize| format!("churn/p-{pod}");
    for round in 0..3 {
        for pod in 0..PODS {
            bed.objects
                .pod(&path(pod), "churn", "auto", json!({}))
                .await
                .unwrap();
        }
        if round == 1 {
            bed.fipd.own().unwrap().kill9().unwrap();
            bed.restart().await.unwrap();
        }
        let mut seen = BTreeMap::new();
        for pod in 0..PODS {
            let uid = bed.objects.get("Pod", &path(pod)).await.unwrap().unwrap()["metadata"]["uid"]
                .clone();
            let own = |ip: &Value| ip["spec"]["podId"] == uid && ip["status"]["phase"] == "Pending";
            let ip = bed
                .objects
                .wait(IP, &path(pod), "is the pod's", own)
                .await
                .unwrap();
            let address = ip["status"]["addr"].to_string();
            assert_eq!(seen.insert(address, pod), None, "round {round}");
        }
        assert_eq!(
            bed.leases("10.210.").await.unwrap().len(),
            PODS,
            "round {round}"
        );
        for pod in 0..PODS {
            bed.objects.delete("Pod", &path(pod)).await.unwrap();
        }
    }
    for pod in 0..PODS {
        bed.objects.wait_gone(IP, &path(pod)).await.unwrap();
    }
    // What is released is so before its object is gone.
    assert_eq!(bed.leases("10.210.").await.unwrap(), BTreeMap::new());
}

/// Defect 7 of g.1. A pod that goes while fipd is away gives its address back once fipd is here again.
#[tokio::test]
async fn g1_7_a_pod_that_goes_while_fipd_is_away_loses_nothing_and_leaks_nothing() {
    let mut bed = PodBed::alone("", &["away"]).await.unwrap();
    bed.objects
        .subnet("away", "10.211.0.0/24", json!({ "vlan": 211 }))
        .await
        .unwrap();
    for name in ["stays", "goes"] {
        bed.objects
            .pod(&format!("away/{name}"), "away", "auto", json!({}))
            .await
            .unwrap();
        bed.objects
            .wait_address(&format!("away/{name}"))
            .await
            .unwrap();
    }
    bed.fipd.own().unwrap().kill9().unwrap();
    bed.objects.delete("Pod", "away/goes").await.unwrap();
    bed.objects.wait_gone("Pod", "away/goes").await.unwrap();
    bed.restart().await.unwrap();
    bed.objects.wait_gone(IP, "away/goes").await.unwrap();
    let leases = bed.leases("10.211.").await.unwrap();
    assert_eq!(leases.len(), 1, "{leases:?}");
    assert_eq!(
        bed.objects.wait_address("away/stays").await.unwrap(),
        "10.211.0.1"
    );
}
