//! Objects as the original leaves them: addresses in specifications, no status, no finalizer.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn defect_13_addresses_of_the_original_are_kept_before_anything_new_is_given() {
    let mut bed = Bed::prepare(&["kube-fip"], "").await;
    bed.range("one", "10.88.0.0/28").await;
    bed.range("two", "10.88.1.0/28").await;
    // The original gives this one an address before it looks at the next, which has it already.
    bed.fip("c-m-a/0-waits", "one", "").await;
    bed.fip("c-m-a/1-first", "one", "10.88.0.5").await;
    next_second().await;
    bed.fip("c-m-b/2-second", "one", "10.88.0.5").await;
    bed.fip("c-m-b/3-lowest", "one", "10.88.0.1").await;
    bed.fip("c-m-b/4-network", "one", "10.88.0.0").await;
    bed.fip("c-m-b/5-elsewhere", "two", "10.88.0.9").await;
    bed.restart().await;

    bed.wait_address("c-m-a/1-first", "10.88.0.5").await;
    bed.wait_address("c-m-b/3-lowest", "10.88.0.1").await;
    bed.wait_address("c-m-a/0-waits", "10.88.0.2").await;
    let said = bed.wait_refused("c-m-b/2-second", "AddressConflict").await;
    assert!(
        said.contains("10.88.0.5") && said.contains("1-first"),
        "{said}"
    );
    let objects = &bed.objects;
    let told = |fip: &Value| {
        let said = condition(fip, "AddressConflict")["message"].as_str();
        said.is_some_and(|said| said.contains("2-second"))
    };
    objects
        .wait("c-m-a/1-first", "says who else has it", told)
        .await
        .unwrap();
    // What the original gave stays where it is, although fipd would not give it.
    for (path, address) in [
        ("c-m-b/4-network", "10.88.0.0"),
        ("c-m-b/5-elsewhere", "10.88.0.9"),
    ] {
        let has = |fip: &Value| fip["status"]["address"] == address;
        let fip = objects.wait(path, "keeps its address", has).await.unwrap();
        assert_eq!(fip["spec"]["ipaddress"], address);
    }
    bed.wait_refused("c-m-b/5-elsewhere", "AddressNotInRange")
        .await;
    let all = [0, 1, 2, 5, 9].map(|last| format!("10.88.0.{last}"));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    bed.wait_leases("each once", &all).await;

    objects.delete("c-m-a/1-first").await.unwrap();
    bed.wait_address("c-m-b/2-second", "10.88.0.5").await;
    bed.wait_leases("the second has it now", &all).await;
}
