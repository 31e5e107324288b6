//! Edits while fipd runs: of a FloatingIP, and of a range.

use super::*;

/// The numbers in the audit log of what was done about an address.
async fn audited(bed: &Bed, address: &str, action: &str) -> Vec<u64> {
    let asked = [
        "audit",
        "--address",
        address,
        "--action",
        action,
        "-o",
        "json",
    ];
    let page = bed.fipd.cli(asked).await.unwrap().json().unwrap();
    let entries = page["entries"].as_array().unwrap().iter();
    entries.filter_map(|one| one["number"].as_u64()).collect()
}

/// Waits until `to` was given up after `from` was allocated: the object was never without an address.
async fn wait_in_order(bed: &Bed, allocated: &str, released: &str) {
    let what = format!("{allocated} is allocated before {released} is released");
    wait_until(&what, DEADLINE, || async {
        let took = audited(bed, allocated, "allocated").await;
        let gave = audited(bed, released, "released").await;
        match (took.iter().max(), gave.iter().max()) {
            (Some(took), Some(gave)) if took < gave => Ok(()),
            found => Err(format!("{found:?}")),
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_13_an_edit_takes_the_new_address_before_it_gives_the_old_one_back() {
    let bed = Bed::start("").await;
    let objects = &bed.objects;
    bed.range("one", "10.82.0.0/29").await;
    bed.range("two", "10.82.1.0/30").await;
    bed.fip("c-m-a/web", "one", "").await;
    bed.wait_address("c-m-a/web", "10.82.0.1").await;
    bed.fip("c-m-b/other", "one", "10.82.0.2").await;
    bed.wait_address("c-m-b/other", "10.82.0.2").await;

    objects.want("c-m-a/web", "10.82.0.5").await.unwrap();
    bed.wait_address("c-m-a/web", "10.82.0.5").await;
    wait_in_order(&bed, "10.82.0.5", "10.82.0.1").await;
    bed.wait_leases("one address each", &["10.82.0.2", "10.82.0.5"])
        .await;

    // One that another has is waited for, and what it has stays until then.
    objects.want("c-m-a/web", "10.82.0.2").await.unwrap();
    let said = bed.wait_refused("c-m-a/web", "AddressTaken").await;
    assert!(said.contains("10.82.0.5 stays"), "{said}");
    let waits = objects.get("c-m-a/web").await.unwrap();
    assert_eq!(waits["status"]["address"], "10.82.0.5");
    assert_eq!(waits["spec"]["ipaddress"], "10.82.0.2", "the wish stays");
    objects.delete("c-m-b/other").await.unwrap();
    bed.wait_address("c-m-a/web", "10.82.0.2").await;
    bed.wait_leases("the old one is given back", &["10.82.0.2"])
        .await;

    // To another range, where the address that fipd wrote is no wish.
    objects.name_range("c-m-a/web", "two").await.unwrap();
    bed.wait_address("c-m-a/web", "10.82.1.1").await;
    wait_in_order(&bed, "10.82.1.1", "10.82.0.2").await;
    bed.fip("c-m-b/full", "two", "").await;
    bed.wait_address("c-m-b/full", "10.82.1.2").await;
    bed.fip("c-m-b/third", "one", "").await;
    bed.wait_address("c-m-b/third", "10.82.0.1").await;
    objects.name_range("c-m-b/third", "two").await.unwrap();
    let said = bed.wait_refused("c-m-b/third", "PoolExhausted").await;
    assert!(said.contains("10.82.0.1 stays"), "{said}");
    let waits = objects.get("c-m-b/third").await.unwrap();
    assert_eq!(waits["status"]["address"], "10.82.0.1");
    objects.name_range("c-m-a/web", "nowhere").await.unwrap();
    bed.wait_refused("c-m-a/web", "RangeNotFound").await;
    let waits = objects.get("c-m-a/web").await.unwrap();
    assert_eq!(waits["status"]["address"], "10.82.1.1");
    objects.delete("c-m-b/full").await.unwrap();
    bed.wait_address("c-m-b/third", "10.82.1.2").await;
    objects.name_range("c-m-a/web", "one").await.unwrap();
    bed.wait_address("c-m-a/web", "10.82.0.1").await;
    bed.wait_leases("all is told apart", &["10.82.0.1", "10.82.1.2"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_13_a_range_is_edited_live_and_who_waited_first_is_served_first() {
    let bed = Bed::start("").await;
    let objects = &bed.objects;
    bed.range("tight", "10.83.0.0/30").await;
    for (path, address) in [("c-m-a/x", "10.83.0.1"), ("c-m-a/y", "10.83.0.2")] {
        bed.fip(path, "tight", "").await;
        bed.wait_address(path, address).await;
    }
    let waiting = ["c-m-b/c", "c-m-a/a", "c-m-b/b", "c-m-a/d"];
    for path in waiting {
        next_second().await;
        bed.fip(path, "tight", "").await;
    }
    for path in waiting {
        bed.wait_refused(path, "PoolExhausted").await;
    }
    // Two of the four new addresses are excluded at first.
    let wider = |exclusions: Value| json!({ "spec": { "iprange": "10.83.0.0/29", "exclusions": exclusions } });
    let wide = wider(json!(["10.83.0.5-10.83.0.6"]));
    objects.merge("tight", wide).await.unwrap();
    let (first, second) = waiting.split_at(2);
    bed.wait_all(
        "the first two are served",
        first,
        &["10.83.0.3", "10.83.0.4"],
    )
    .await;
    for path in second {
        bed.wait_refused(path, "PoolExhausted").await;
    }
    objects.merge("tight", wider(json!([]))).await.unwrap();
    bed.wait_all("the others as well", second, &["10.83.0.5", "10.83.0.6"])
        .await;

    objects.edit_range("tight", "10.83.0.0/30").await.unwrap();
    let outside = |range: &Value| {
        let said = condition(range, "OutOfRange")["message"].as_str();
        said.is_some_and(|said| said.starts_with("4 "))
    };
    objects
        .wait("tight", "says what is out of it", outside)
        .await
        .unwrap();
    objects
        .wait_event(RANGE, "tight", "OutOfRange")
        .await
        .unwrap();
    bed.fip("c-m-a/late", "tight", "").await;
    bed.wait_refused("c-m-a/late", "PoolExhausted").await;
    bed.wait_all("they stay", first, &["10.83.0.3", "10.83.0.4"])
        .await;
    bed.wait_all("they stay", second, &["10.83.0.5", "10.83.0.6"])
        .await;
    let freed = objects.get("c-m-b/c").await.unwrap();
    let freed = freed["status"]["address"].as_str().unwrap();
    objects.delete("c-m-b/c").await.unwrap();
    objects.wait_gone("c-m-b/c").await.unwrap();
    objects.delete("c-m-a/y").await.unwrap();
    bed.wait_address("c-m-a/late", "10.83.0.2").await;
    let left = (1..=6).map(|last| format!("10.83.0.{last}"));
    let left: Vec<String> = left.filter(|one| one != freed).collect();
    let left: Vec<&str> = left.iter().map(String::as_str).collect();
    bed.wait_leases("nothing else is leased", &left).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_lets_addresses_cool_and_remembers_who_had_them() {
    let bed = Bed::start("").await;
    let objects = &bed.objects;
    let remove = async |path: &str| {
        objects.delete(path).await.unwrap();
        objects.wait_gone(path).await.unwrap();
    };
    let spec = json!({ "iprange": "10.84.0.0/29", "quarantineSeconds": 3600 });
    objects.make_range("cools", spec).await.unwrap();
    bed.fip("c-m-a/first", "cools", "").await;
    bed.wait_address("c-m-a/first", "10.84.0.1").await;
    remove("c-m-a/first").await;
    bed.fip("c-m-a/second", "cools", "").await;
    bed.wait_address("c-m-a/second", "10.84.0.2").await;
    let cools = |range: &Value| range["status"]["quarantined"] == 1;
    objects
        .wait("cools", "shows what cools", cools)
        .await
        .unwrap();

    let spec = json!({ "iprange": "10.85.0.0/29", "stickySeconds": 3600 });
    objects.make_range("remembers", spec).await.unwrap();
    for (path, address) in [("c-m-b/one", "10.85.0.1"), ("c-m-b/two", "10.85.0.2")] {
        bed.fip(path, "remembers", "").await;
        bed.wait_address(path, address).await;
    }
    remove("c-m-b/one").await;
    remove("c-m-b/two").await;
    bed.fip("c-m-b/two", "remembers", "").await;
    bed.wait_address("c-m-b/two", "10.85.0.2").await;
}

impl Bed {
    /// Waits until these FloatingIPs have these addresses, whichever has which.
    async fn wait_all(&self, what: &str, paths: &[&str], wanted: &[&str]) {
        let wanted: BTreeSet<&str> = wanted.iter().copied().collect();
        wait_until(what, DEADLINE, || async {
            let fips = paths.iter().map(|path| self.objects.get(path));
            let fips = futures::future::try_join_all(fips).await;
            let fips = fips.map_err(|error| error.to_string())?;
            let have = fips
                .iter()
                .filter_map(|fip| fip["status"]["address"].as_str());
            let have: BTreeSet<&str> = have.collect();
            (have == wanted).then_some(()).ok_or(format!("{have:?}"))
        })
        .await
        .unwrap();
    }
}
