//! What is left of a Cluster that is gone. The test begins first: it waits for longer than all others together take.

use super::*;

/// Row 67 and E-5 to the end. A Cluster has no finalizer of fipd's, so what was reserved for it goes when fipd has missed it
/// twice, a minute apart.
#[tokio::test(flavor = "multi_thread")]
async fn e_5_row_67_what_was_reserved_for_a_cluster_is_free_once_that_is_gone() {
    const SWEPT: Duration = Duration::from_secs(150);
    let bed = versions::start("reserved").await;
    let server = &bed.servers[1];
    let addresses = ["10.90.0.20", "10.90.0.21", "10.90.0.22"];
    server
        .pool("reserved", "reserved", CONTROL_PLANE, &addresses)
        .await;
    for (name, host) in [("leaves", "10.90.0.20"), ("stays", "10.90.0.21")] {
        let given = json!({ "spec": { "controlPlaneEndpoint": { "host": host, "port": 6443 } } });
        server.cluster(name, "reserved", given).await;
        let is_given = |one: &Value| server.says(one, ENDPOINT_READY)["reason"] == "EndpointGiven";
        let seen = server
            .wait(name, "says that its endpoint is given", is_given)
            .await;
        assert_eq!(endpoint(&seen)["host"], host);
        wait_lease(&bed.fipd, (host, CLUSTER, name), PROMPT)
            .await
            .unwrap();
    }
    let claims = server.core.claims(server.version);
    let made = claims.list(&ListParams::default()).await.unwrap().items;
    assert!(made.is_empty(), "{made:?}");
    server
        .ipam
        .delete(CLUSTER, "reserved/leaves")
        .await
        .unwrap();
    server
        .ipam
        .wait_gone(CLUSTER, "reserved/leaves")
        .await
        .unwrap();
    let freed = wait_lease(&bed.fipd, ("10.90.0.20", "", ""), SWEPT).await;
    freed
        .with_context(|| format!("fipd: {}", bed.fipd.log_tail()))
        .unwrap();
    let held = leases(&bed.fipd).await;
    assert!(held.contains_key("10.90.0.21"), "{held:?}");
}
