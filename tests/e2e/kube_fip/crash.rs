//! fipd is down, or is killed in the middle.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn defect_13_deletes_while_it_is_down_and_adds_of_its_first_seconds_are_not_lost() {
    let mut bed = Bed::start("").await;
    bed.range("one", "10.85.0.0/28").await;
    let namespaces: Api<Namespace> = Api::all(bed.objects.client.clone());
    bed.namespace("c-m-del").await;
    let paths = [
        "c-m-a/kept",
        "c-m-a/gone",
        "c-m-a/torn",
        "c-m-del/guest-kubevip",
    ];
    for (path, last) in paths.into_iter().zip(1..) {
        bed.fip(path, "one", "").await;
        bed.wait_address(path, &format!("10.85.0.{last}")).await;
    }
    bed.fipd.kill9().unwrap();
    let objects = &bed.objects;
    objects.delete("c-m-a/gone").await.unwrap();
    // Somebody takes its finalizer off by hand.
    let free = json!({ "metadata": { "finalizers": null } });
    objects.merge("c-m-a/torn", free).await.unwrap();
    objects.delete("c-m-a/torn").await.unwrap();
    objects.wait_gone("c-m-a/torn").await.unwrap();
    namespaces
        .delete("c-m-del", &DeleteParams::default())
        .await
        .unwrap();
    // Its first seconds lose nothing either.
    bed.fipd.restart().await.unwrap();
    bed.fip("c-m-a/new", "one", "10.85.0.9").await;
    let objects = &bed.objects;
    objects.delete("c-m-a/kept").await.unwrap();
    for path in ["c-m-a/kept", "c-m-a/gone", "c-m-del/guest-kubevip"] {
        objects.wait_gone(path).await.unwrap();
    }
    bed.wait_address("c-m-a/new", "10.85.0.9").await;
    // Two lists, at least a minute apart, have to say that it is gone.
    let absence = 2 * DEADLINE;
    bed.wait_leases_within(absence, "nothing is leaked", &["10.85.0.9"])
        .await;
    wait_until("the namespace is gone", DEADLINE, || async {
        match namespaces.get_opt("c-m-del").await.unwrap() {
            None => Ok(()),
            Some(left) => Err(json!(left.status).to_string()),
        }
    })
    .await
    .unwrap();
}

const ROUNDS: usize = 5;
const MOVING: usize = 12;

/// The addresses that objects show, by name.
async fn shown(bed: &Bed) -> Result<BTreeMap<String, String>, String> {
    let fips = bed.objects.fips("c-m-a");
    let all = fips.list(&Default::default()).await;
    let all = all.map_err(|error| error.to_string())?;
    let address = |fip: &Value| fip["status"]["address"].as_str().unwrap_or("").to_owned();
    let entry = |fip: Value| {
        let name = fip["metadata"]["name"].as_str().unwrap().to_owned();
        (name, address(&fip))
    };
    Ok(all.into_iter().map(|fip| entry(json!(fip))).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_in_the_middle_of_moves_loses_nothing_and_gives_nothing_twice() {
    let mut bed = Bed::start("").await;
    bed.range("one", "10.86.1.0/28").await;
    bed.range("two", "10.86.2.0/28").await;
    let paths: Vec<String> = (0..MOVING).map(|one| format!("c-m-a/fip-{one}")).collect();
    for path in &paths {
        bed.fip(path, "one", "").await;
    }
    let (ranges, mut open) = (["one", "two"], 0);
    for round in 0..=ROUNDS {
        let third = if round % 2 == 0 {
            "10.86.1."
        } else {
            "10.86.2."
        };
        let all = format!("round {round}: all have one address of {third}");
        let addresses = wait_until(&all, DEADLINE, || async {
            let shown = shown(&bed).await?;
            let there = |address: &String| address.starts_with(third);
            if shown.len() == MOVING && shown.values().all(there) {
                Ok(shown)
            } else {
                Err(format!("{shown:?}"))
            }
        });
        let addresses = addresses.await.unwrap();
        let distinct: BTreeSet<&str> = addresses.values().map(String::as_str).collect();
        assert_eq!(distinct.len(), MOVING, "{addresses:?}");
        let distinct: Vec<&str> = distinct.into_iter().collect();
        bed.wait_leases("each has one, and no other is leased", &distinct)
            .await;
        if round == ROUNDS {
            break;
        }
        let to = ranges[(round + 1) % 2];
        let moves = paths.iter().map(|path| bed.objects.name_range(path, to));
        futures::future::try_join_all(moves).await.unwrap();
        wait_until("the first has moved", DEADLINE, || async {
            let shown = shown(&bed).await?;
            let moved = |address: &String| !address.starts_with(third);
            shown
                .values()
                .any(moved)
                .then_some(())
                .ok_or("none".to_owned())
        })
        .await
        .unwrap();
        bed.fipd.kill9().unwrap();
        let stay = shown(&bed).await.unwrap();
        open += stay
            .values()
            .filter(|address| address.starts_with(third))
            .count();
        bed.restart().await;
    }
    println!("{open} moves were open when fipd was killed");
    assert!(open > 0, "no kill hit a move: the test proves nothing");
}
