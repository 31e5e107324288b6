//! fipd's CNI plugin: the real plugin and the real daemon on a host of the test's own, called as a runtime calls them and by
//! `cnitool`; mostly without Kubernetes. Numbers of rows and of defects are those of the contract.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test a panic is the verdict"
)]

#[path = "cni/environment.rs"]
mod environment;
#[path = "cni/failures.rs"]
mod failures;
#[path = "cni/pods.rs"]
mod pods;
#[path = "cni/random.rs"]
mod random;
#[path = "cni/takeover.rs"]
mod takeover;
#[path = "cni/tool.rs"]
mod tool;
#[path = "cni/verbs.rs"]
mod verbs;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fipd_tests::testbed::{
    Called, CniBed, CniCall, MASTER, SEGMENT_V4, SEGMENT_V6, on_a_host, wait_until, with_previous,
};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);
const BOTH: &[&str] = &["lan4", "lan6"];
const V4: &[&str] = &["lan4"];
/// Where the plugin keeps deletions.
const SPOOL: &str = "/var/lib/fipd-cni/spool";

/// A call that may empty the spool: the runtime names it, since the daemon of a bed has a socket of its own.
fn emptying(call: CniCall) -> CniCall {
    call.with("FIPD_CNI_SPOOL", SPOOL)
}

/// Containers that are attached, with the addresses that each was given.
type Live = BTreeMap<String, Vec<String>>;

/// Runs a test on a host of its own.
fn on_host(story: impl AsyncFnOnce(&mut CniBed) -> Result<()> + Send) {
    if let Err(error) = on_a_host(story) {
        panic!("{error:#}");
    }
}

/// The addresses of a result.
fn given(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().into_iter().flatten();
    let texts = ips.filter_map(|ip| ip["address"].as_str());
    texts
        .filter_map(|text| text.split('/').next())
        .map(str::to_owned)
        .collect()
}

/// Addresses of a container's interface that are not link-local.
fn configured(interfaces: &[Value]) -> BTreeSet<String> {
    let infos = interfaces
        .iter()
        .filter_map(|one| one["addr_info"].as_array());
    infos
        .flatten()
        .filter(|info| info["scope"] == "global")
        .filter_map(|info| info["local"].as_str())
        .map(str::to_owned)
        .collect()
}

/// What the plugin has made in a container.
async fn attached(bed: &CniBed, container: &str) -> Result<Vec<Value>> {
    let mut all = bed.host.interfaces(container).await?;
    all.retain(|one| one["linkinfo"]["info_kind"] != "veth");
    Ok(all)
}

/// That ledger, containers and host agree: whoever is live has its addresses, and nobody else has anything.
async fn agree(bed: &CniBed, live: &Live, others: &[String]) -> Result<()> {
    agree_beside(bed, live, others, &BTreeSet::new()).await
}

/// The same where pods have these addresses, attached or not.
async fn agree_beside(
    bed: &CniBed,
    live: &Live,
    others: &[String],
    of_pods: &BTreeSet<String>,
) -> Result<()> {
    let leased: BTreeSet<String> = bed.allocated().await?.into_keys().collect();
    let given = live.values().flatten().chain(of_pods);
    let expected: BTreeSet<String> = given.cloned().collect();
    ensure!(
        leased == expected,
        "leased {leased:?}, live {live:?}, of pods {of_pods:?}"
    );
    for (container, addresses) in live {
        let found = configured(&attached(bed, container).await?);
        let given = addresses.iter().cloned().collect();
        ensure!(found == given, "{container}: {found:?}, given {given:?}");
    }
    for container in others {
        let left = attached(bed, container).await?;
        ensure!(left.is_empty(), "left in {container}: {left:?}");
    }
    let links = bed.host.run("ip -json link").await?;
    let links: Vec<Value> = serde_json::from_str(&links)?;
    let names = links.iter().filter_map(|one| one["ifname"].as_str());
    let names: BTreeSet<_> = names.filter(|name| !pods::is_pod(name)).collect();
    ensure!(
        names == BTreeSet::from(["lo", MASTER]),
        "on the host: {names:?}"
    );
    Ok(())
}

/// The same within a while.
async fn wait_agree(bed: &CniBed, live: &Live, others: &[String]) -> Result<()> {
    let what = "ledger, containers and host agree";
    wait_until(what, SOON, || agree(bed, live, others)).await
}
