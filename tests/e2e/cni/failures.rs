//! The daemon away, killed or without addresses; reboots; what a failing call leaves behind.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;

use anyhow::bail;
use fipd_tests::alerts::{alerts, holding};
use futures::future::join_all;

use super::pods::Pods;
use super::*;

/// Files of the spool.
async fn spool(bed: &CniBed) -> Result<Vec<String>> {
    let listed = bed
        .host
        .run(&format!("ls {SPOOL} 2>/dev/null || true"))
        .await?;
    // Beside them are a lock and the last number.
    let entries = listed
        .lines()
        .filter(|name| name.starts_with(|one: char| one.is_ascii_digit()));
    Ok(entries.map(str::to_owned).collect())
}

#[test]
fn a_container_is_deleted_while_fipd_is_down_and_its_addresses_are_free_afterwards() {
    on_host(async |bed| {
        let conf = bed.conf(BOTH);
        let first = bed.add("c1", &conf).await?;
        bed.add("c2", &conf).await?;
        let kept = bed.add("c3", &conf).await?;
        bed.fipd.kill9()?;
        let (code, _) = bed.call("STATUS", "c1", &conf).await?.error()?;
        ensure!(code == 50, "STATUS without a daemon: {code}");
        bed.host.make_container("c4").await?;
        bed.call("ADD", "c4", &conf).await?.failed_with(11)?;
        // One whose namespace is there, and one whose is gone; each twice.
        bed.host.remove_container("c2").await?;
        for container in ["c1", "c2", "c1", "c2"] {
            bed.call("DEL", container, &conf).await?.result()?;
        }
        let left = bed.host.interfaces("c1").await?;
        ensure!(left.is_empty(), "{left:?}");
        ensure!(!spool(bed).await?.is_empty(), "nothing is spooled");
        let mode = "cd /var/lib/fipd-cni && stat -c %a spool spool/[0-9]*";
        let modes = bed.host.run(mode).await?;
        let modes: Vec<_> = modes.split_whitespace().collect();
        ensure!(modes[0] == "750", "the folder: {modes:?}");
        ensure!(modes[1..].iter().all(|one| *one == "640"), "{modes:?}");
        bed.fipd.restart().await?;
        let live = Live::from([("c3".to_owned(), given(&kept))]);
        let others = ["c1", "c4"].map(str::to_owned);
        wait_agree(bed, &live, &others).await?;
        // A tenant could name a socket in a configuration, whose answers empty nothing.
        let left = spool(bed).await?;
        bed.call("STATUS", "c1", &conf).await?.result()?;
        ensure!(spool(bed).await? == left, "emptied by any daemon");
        // The first that is free.
        let again = emptying(bed.call_of("ADD", "c1", &conf));
        let again = bed.host.call(&again).await?.result()?;
        ensure!(given(&again) == given(&first), "{again}");
        let what = "what is acknowledged is not in the spool any more";
        wait_until(what, SOON, || async {
            let left = spool(bed).await?;
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await
    });
}

/// A deletion that is replayed late is not one of the container that came after.
#[test]
fn a_replayed_deletion_spares_the_next_container_of_the_name() {
    on_host(async |bed| {
        let conf = bed.conf(V4);
        bed.add("c1", &conf).await?;
        bed.fipd.kill9()?;
        bed.call("DEL", "c1", &conf).await?.result()?;
        bed.fipd.restart().await?;
        let result = bed.call("ADD", "c1", &conf).await?.result()?;
        let live = Live::from([("c1".to_owned(), given(&result))]);
        wait_agree(bed, &live, &[]).await
    });
}

#[test]
fn addresses_survive_a_reboot_until_the_runtime_collects_garbage() {
    on_host(async |bed| {
        let conf = bed.conf(BOTH);
        for container in ["c1", "c2"] {
            bed.add(container, &conf).await?;
        }
        let before = bed.allocated().await?;
        bed.fipd.kill9()?;
        for container in ["c1", "c2"] {
            bed.host.remove_container(container).await?;
        }
        bed.fipd.restart().await?;
        ensure!(bed.allocated().await? == before, "leases were lost");
        // Another container of the runtime gets other addresses meanwhile.
        let result = bed.add("c3", &conf).await?;
        let live = Live::from([("c3".to_owned(), given(&result))]);
        ensure!(given(&result).iter().all(|one| !before.contains_key(one)));
        let mut gc = conf.clone();
        gc["cni.dev/valid-attachments"] = json!([{ "containerID": "c3", "ifname": "eth0" }]);
        bed.host.call(&CniCall::new("GC", &gc)).await?.result()?;
        wait_agree(bed, &live, &[]).await
    });
}

/// Otherwise the end of the hold would give the addresses of a container that runs to others.
#[test]
fn a_restored_address_book_knows_the_containers_that_run() {
    on_host(async |bed| {
        let conf = bed.conf(BOTH);
        let data_dir = bed.fipd.data_dir();
        let backup = data_dir.join("old-backup");
        let (data_dir, backup) = (data_dir.display().to_string(), backup.display().to_string());
        let made = bed.fipd.cli(["backup", &backup]).await?;
        ensure!(made.code == 0, "{made:?}");
        let result = bed.add("c1", &conf).await?;
        bed.fipd.kill9()?;
        let restore = ["restore", &backup, "--data-dir", &data_dir];
        let restored = bed.fipd.cli(restore).await?;
        ensure!(restored.code == 0, "{restored:?}");
        bed.fipd.restart().await?;
        let live = Live::from([("c1".to_owned(), given(&result))]);
        wait_agree(bed, &live, &[]).await
    });
}

#[test]
fn a_full_pool_is_named_and_status_says_so() {
    on_host(async |bed| {
        bed.make_pool("tiny --range 10.88.0.101-10.88.0.102 --prefix 24")
            .await?;
        let mut conf = bed.conf(&["tiny"]);
        conf["ipam"]["routes"] = json!([]);
        let status = async || bed.host.call(&CniCall::new("STATUS", &conf)).await;
        status().await?.result()?;
        let mut live = Live::new();
        for container in ["c1", "c2"] {
            let result = bed.add(container, &conf).await?;
            live.insert(container.to_owned(), given(&result));
        }
        let text = status().await?.failed_with(50)?;
        ensure!(text.contains("tiny"), "{text}");
        bed.host.make_container("c3").await?;
        let text = bed.call("ADD", "c3", &conf).await?.failed_with(11)?;
        ensure!(text.contains("tiny"), "{text}");
        agree(bed, &live, &["c3".to_owned()]).await?;
        // An address of two pools is none when one of them is full.
        let both = bed.conf(&["lan6", "tiny"]);
        bed.call("ADD", "c3", &both).await?.failed_with(11)?;
        agree(bed, &live, &["c3".to_owned()]).await?;
        bed.call("DEL", "c1", &conf).await?.result()?;
        live.remove("c1");
        status().await?.result()?;
        let result = bed.call("ADD", "c3", &conf).await?.result()?;
        live.insert("c3".to_owned(), given(&result));
        wait_agree(bed, &live, &["c1".to_owned()]).await
    });
}

#[test]
fn a_plugin_that_keeps_failing_is_alerted_by_its_verb_and_code() {
    on_host(async |bed| {
        bed.host.make_container("c1").await?;
        let before = bed.fipd.get("/metrics").await?.body;
        let alert = alerts("FipdCni")?["FipdCniFailing"].clone();
        let firing_after = async |failures: usize| {
            for _ in 0..failures {
                let called = bed.call("ADD", "c1", &bed.conf(&["lan5"])).await?;
                called.error()?;
            }
            let now = bed.fipd.get("/metrics").await?.body;
            holding(&alert, &before, &now)
        };
        let early = firing_after(5).await?;
        ensure!(early.is_empty(), "{early:?}");
        let firing = firing_after(1).await?;
        let [series] = firing.as_slice() else {
            bail!("{firing:?}");
        };
        let labels = ["verb=\"ADD\"", "code=\"7\""];
        ensure!(labels.iter().all(|one| series.contains(one)), "{series}");
        Ok(())
    });
}

/// Many at once; each has addresses of its own.
async fn add_many(bed: &CniBed, names: &[String], conf: &Value) -> Result<Live> {
    let calls = names.iter().map(|name| bed.call("ADD", name, conf));
    let mut live = Live::new();
    for (name, called) in names.iter().zip(join_all(calls).await) {
        let called = called?;
        if called.code == Some(0) {
            live.insert(name.clone(), called.addresses()?);
        } else {
            called.failed_with(11)?;
        }
    }
    let all: Vec<_> = live.values().flatten().collect();
    let distinct: BTreeSet<_> = all.iter().collect();
    ensure!(all.len() == distinct.len(), "given twice: {live:?}");
    Ok(live)
}

#[test]
fn forty_at_once_have_addresses_of_their_own() {
    on_host(async |bed| {
        let conf = bed.conf(BOTH);
        let names: Vec<_> = (0..40).map(|number| format!("c{number}")).collect();
        for name in &names {
            bed.host.make_container(name).await?;
        }
        let live = add_many(bed, &names, &conf).await?;
        ensure!(live.len() == 40, "{live:?}");
        agree(bed, &live, &[]).await?;
        let calls = names.iter().map(|name| bed.call("DEL", name, &conf));
        for called in join_all(calls).await {
            called?.result()?;
        }
        wait_agree(bed, &Live::new(), &names).await
    });
}

#[test]
fn killing_fipd_between_adds_loses_nothing() {
    on_host(async |bed| {
        let conf = bed.conf(BOTH);
        let (mut live, mut others) = (Live::new(), Vec::new());
        for round in 0..5_u64 {
            let names: Vec<_> = (0..8).map(|number| format!("r{round}-{number}")).collect();
            for name in &names {
                bed.host.make_container(name).await?;
            }
            let pid = i32::try_from(bed.fipd.pid()?)?;
            let kill = async {
                tokio::time::sleep(Duration::from_millis(10 * round)).await;
                let pid = nix::unistd::Pid::from_raw(pid);
                nix::sys::signal::kill(pid, nix::sys::signal::SIGKILL)
            };
            let (added, killed) = futures::join!(add_many(bed, &names, &conf), kill);
            killed?;
            bed.fipd.restart().await?;
            let added = added?;
            for name in names {
                // As a runtime does after an ADD that failed.
                if !added.contains_key(&name) {
                    bed.call("DEL", &name, &conf).await?.result()?;
                    others.push(name);
                }
            }
            live.extend(added);
            wait_agree(bed, &live, &others).await?;
        }
        Ok(())
    });
}

/// A stand-in for the daemon: it says what to make, and refuses what was made.
fn refuse_what_is_made(socket: &std::path::Path, host_routes: bool) -> Result<()> {
    let listener = UnixListener::bind(socket)?;
    let attachment = json!({
        "link": { "kind": { "macvlan": "bridge" }, "parent": MASTER },
        "addresses": [{ "address": "10.88.0.9/24" }], "routes": [], "confirm": true,
        "extras": { "hostRoutes": host_routes },
    });
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut text = String::new();
            if stream.read_to_string(&mut text).is_err() {
                continue;
            }
            let asked: Value = serde_json::from_str(&text).unwrap_or_default();
            let error = json!({
                "cniVersion": "1.1.0", "code": 999, "msg": "no host route", "details": "File exists",
            });
            let reply = if asked["command"] == "DEL" {
                json!({ "output": "" })
            } else if asked["step"].is_null() || asked["step"] == "begin" {
                json!({ "attachment": attachment })
            } else {
                json!({ "error": error })
            };
            let answer = json!({ "reply": reply, "replayed": 0 });
            let _ = stream.write_all(answer.to_string().as_bytes());
        }
    });
    Ok(())
}

#[test]
fn g1_25_a_failing_host_route_leaves_no_link_behind() {
    on_host(async |bed| {
        let socket = bed.fipd.directory().join("refuses.sock");
        refuse_what_is_made(&socket, true)?;
        let mut conf = bed.conf(V4);
        conf["socket"] = json!(socket);
        bed.host.make_container("c1").await?;
        let (_, text) = bed.call("ADD", "c1", &conf).await?.error()?;
        ensure!(text.contains("no host route"), "{text}");
        agree(bed, &Live::new(), &["c1".to_owned()]).await
    });
}

#[test]
fn g1_26_a_failing_route_leaves_nothing_behind() {
    on_host(async |bed| {
        let mut conf = bed.conf(BOTH);
        // The kernel refuses a source that the container does not have.
        let route = json!({ "dst": "192.0.2.0/24", "gw": SEGMENT_V4, "src": "203.0.113.9" });
        conf["ipam"]["routes"] = json!([route]);
        bed.host.make_container("c1").await?;
        let (_, text) = bed.call("ADD", "c1", &conf).await?.error()?;
        ensure!(
            text.contains("192.0.2.0/24"),
            "the route is not named: {text}"
        );
        wait_agree(bed, &Live::new(), &["c1".to_owned()]).await
    });
}

async fn is_promiscuous(bed: &CniBed) -> Result<bool> {
    let shown = format!("ip -json link show dev {MASTER}");
    let found: Value = serde_json::from_str(&bed.host.run(&shown).await?)?;
    let flags = found[0]["flags"].as_array().context("flags")?;
    Ok(flags.contains(&json!("PROMISC")))
}

async fn wait_promiscuous(bed: &CniBed, expected: bool) -> Result<()> {
    wait_until("the master is as it should be", SOON, || async {
        let found = is_promiscuous(bed).await?;
        ensure!(found == expected, "promiscuous: {found}");
        Ok(())
    })
    .await
}

#[test]
fn g1_27_the_master_is_promiscuous_while_a_pod_needs_it_and_not_longer() {
    on_host(async |bed| {
        let mut pods = Pods::start(bed).await?;
        ensure!(!is_promiscuous(bed).await?, "nobody needs it");
        for name in ["p0", "p1"] {
            pods.add(bed, name).await?;
            ensure!(is_promiscuous(bed).await?, "{name} needs it");
        }
        let off = format!("ip link set {MASTER} promisc off");
        bed.host.run(&off).await?;
        pods.restart(bed).await?;
        wait_promiscuous(bed, true).await?;
        pods.call(bed, "DEL", "p0").await?.result()?;
        ensure!(is_promiscuous(bed).await?, "p1 needs it");
        // The other one dies while the daemon is away.
        bed.fipd.kill9()?;
        bed.host.remove_container("p1").await?;
        pods.restart(bed).await?;
        pods.call(bed, "DEL", "p1").await?.result()?;
        wait_promiscuous(bed, false).await?;
        // What an admin wants is not taken away.
        bed.host
            .run(&format!("ip link set {MASTER} promisc on"))
            .await?;
        pods.add(bed, "p2").await?;
        pods.call(bed, "DEL", "p2").await?.result()?;
        ensure!(is_promiscuous(bed).await?, "the admin's is taken away");
        Ok(())
    });
}

/// The plugin looks, and the ledger decides.
#[test]
fn e_28_what_answers_on_the_wire_is_quarantined_and_the_container_gets_the_next() {
    on_host(async |bed| {
        let [v4, v6] = ["10.88.0.1", "fd88::1"];
        let squat = format!(
            "ip address add {v4}/24 dev wire0 && ip address add {v6}/64 dev wire0 nodad; ip -json link show wire0"
        );
        let links: Value = serde_json::from_str(&bed.host.run_in("segment", &squat).await?)?;
        let mac = links[0]["address"].as_str().context("a MAC")?;
        let mut conf = bed.conf(BOTH);
        conf["probe"] = json!(true);
        let live = Live::from([("c1".to_owned(), given(&bed.add("c1", &conf).await?))]);
        ensure!(live["c1"] == ["10.88.0.2", "fd88::2"], "{live:?}");
        for address in [v4, v6] {
            let of = ["lease", "list", "--within", address, "-o", "json"];
            let leases = bed.fipd.cli(of).await?.json()?;
            ensure!(leases["leases"][0]["state"] == "quarantined", "{leases}");
            let history = ["audit", "--address", address, "-o", "json"];
            let history = bed.fipd.cli(history).await?.stdout;
            ensure!(history.contains(mac), "{mac} is not in {history}");
        }
        for address in [SEGMENT_V4, SEGMENT_V6] {
            bed.host.ping("c1", address).await?;
        }
        agree(bed, &live, &[]).await
    });
}

/// The host's own addresses answer none of its macvlans.
#[test]
fn e_28_an_address_of_the_host_is_not_given_either() {
    on_host(async |bed| {
        let has = format!("ip address add 10.88.0.1/24 dev {MASTER}");
        bed.host.run(&has).await?;
        let mut conf = bed.conf(V4);
        conf["probe"] = json!(true);
        let live = Live::from([("c1".to_owned(), given(&bed.add("c1", &conf).await?))]);
        ensure!(live["c1"] == ["10.88.0.2"], "{live:?}");
        agree(bed, &live, &[]).await
    });
}
