//! Commands that are killed midway, and run again.

use std::fs;
use std::process::Command;
use std::time::Duration;

use fipd_tests::process::Process;
use fipd_tests::testbed::{Fault, fipd_binary, wait_until};

use super::*;

const SOON: Duration = Duration::from_secs(60);

/// Runs a command that is killed once so many objects are done, for each of these; then to its end.
async fn interrupted(bed: &Bed, line: &str, done: impl AsyncFn() -> usize, at: &[usize]) {
    let line = format!("{line} --yes --interval 300ms");
    for least in at {
        let mut command = Command::new(fipd_binary().await.unwrap());
        command.args(bed.words(&line));
        let run = Process::spawn("fipd migrate", command, &bed.file("killed.log")).unwrap();
        let what = format!("{least} objects are done");
        let reached = wait_until(&what, SOON, || async {
            let so_far = done().await;
            if so_far >= *least {
                Ok(())
            } else {
                Err(format!("{so_far}; {}", run.log_tail()))
            }
        });
        reached.await.unwrap();
        run.kill().unwrap();
    }
    bed.report(&line).await;
    let again = bed.report(&line).await;
    assert_eq!(again.outcomes(), ["skipped"], "{line}");
}

/// How many objects of the site are on flat-network.
async fn migrated(bed: &Bed) -> usize {
    let mut done = 0;
    let subnets = "/apis/flatnetwork.pandaria.io/v1/flatnetworksubnets";
    done += bed.get(subnets).await["items"].as_array().unwrap().len();
    for path in [
        "deployments/web",
        "daemonsets/agent",
        "statefulsets/db",
        "cronjobs/nightly",
    ] {
        let spec = bed.workload(path).await["spec"].to_string();
        assert_ne!(
            spec.contains("flatnetwork.pandaria.io/subnet"),
            spec.contains("macvlan.pandaria.cattle.io/subnet"),
            "{path} is in between"
        );
        done += usize::from(spec.contains("flatnetwork.pandaria.io/subnet"));
    }
    let companion = "/api/v1/namespaces/shop/services/web-flat-network";
    done + usize::from(bed.find(companion).await.is_some())
}

#[tokio::test]
async fn a_migration_that_is_killed_goes_on_where_it_was() {
    let bed = Bed::with("killed", SITE).await;
    interrupted(&bed, "migrate", async || migrated(&bed).await, &[1, 3, 5]).await;
    assert_eq!(migrated(&bed).await, 7);
}

#[tokio::test]
async fn a_restore_and_a_clean_that_are_killed_go_on_where_they_were() {
    let from = Bed::with("whole", SITE).await;
    let file = from.file("backup.yaml").display().to_string();
    let saved = from.run(&format!("backup -o {file}")).await;
    saved.success().unwrap();
    let to = Bed::empty("half").await;
    let shop = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
    to.plane.apply(shop).await.unwrap();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let subnets = "/apis/macvlan.cluster.cattle.io/v1/macvlansubnets";
    let count = async |bed: &Bed, list: &str| {
        let found = bed.find(list).await.unwrap_or_default();
        found["items"].as_array().map_or(0, Vec::len)
    };
    let restored = async || count(&to, definitions).await + count(&to, subnets).await;
    let line = format!("restore -f {file}");
    interrupted(&to, &line, restored, &[1, 4, 5]).await;
    assert_eq!(count(&to, definitions).await, 4);
    assert_eq!(count(&to, subnets).await, 2);

    let left = async || 4 - count(&to, definitions).await + 2 - count(&to, subnets).await;
    interrupted(&to, "clean", left, &[1, 2, 3]).await;
    to.wait_gone(&format!(
        "{definitions}/macvlansubnets.macvlan.cluster.cattle.io"
    ))
    .await;
    assert_eq!(count(&to, definitions).await, 2);
}

/// A backup is written as a whole: the file that was there may be the only one.
#[tokio::test]
async fn a_backup_that_is_killed_leaves_the_file_as_it_was() {
    let bed = Bed::with("cut", SITE).await;
    let proxy = bed.plane.fault_proxy().unwrap();
    let slow = bed.file("slow.kubeconfig");
    fs::write(&slow, proxy.kubeconfig_yaml()).unwrap();
    // It reads some ten objects and lists, one after the other.
    proxy.set(Fault::Delay(Duration::from_millis(200)));
    let file = bed.file("backup.yaml");
    let line = format!("backup --yes -o {}", file.display());
    let mut words = bed.words(&line);
    *words.last_mut().unwrap() = slow.display().to_string();
    for before in [None, Some("the last one")] {
        if let Some(text) = before {
            fs::write(&file, text).unwrap();
        }
        for round in 0..4 {
            let connections = proxy.connections();
            let mut command = Command::new(fipd_binary().await.unwrap());
            command.args(&words);
            let run = Process::spawn("fipd migrate", command, &bed.file("killed.log")).unwrap();
            let begun = wait_until("it reads", SOON, || async {
                let reads = proxy.connections() > connections;
                reads.then_some(()).ok_or("it does not connect")
            });
            begun.await.unwrap();
            // Where it is by then is the point.
            tokio::time::sleep(Duration::from_millis(400 * round)).await;
            run.still_running().unwrap();
            run.kill().unwrap();
            let left = fs::read_to_string(&file).ok();
            assert_eq!(left.as_deref(), before, "round {round}");
        }
    }
    proxy.set(Fault::Pass);
    let saved = bed.fipd.run(words).await.unwrap();
    saved.success().unwrap();
    let whole = bed.file("whole.yaml");
    let saved = bed.run(&format!("backup -o {}", whole.display())).await;
    saved.success().unwrap();
    let read = |file| fs::read_to_string(file).unwrap();
    assert_eq!(read(file), read(whole));
}
