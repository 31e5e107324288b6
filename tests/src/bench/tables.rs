//! Tables that are not of leases, with 100,000 rows: pools, tenants, and rules in a network namespace.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

use super::page::slowest;
use super::{Figure, fill};
use crate::namespace::in_namespace;
use crate::testbed::{FipdOptions, fipd_binary};
use crate::toolchain::debian;
use crate::wait::wait_until;

const ROWS: u32 = 100_000;
/// As pages write it.
const SHOWN: &str = "100,000";

const POOLS: [&str; 7] = [
    "/ui/",
    "/ui/pools",
    "/ui/pools?sort=-name",
    "/ui/pools?sort=-use",
    "/ui/pools?filter=pool-9999",
    "/ui/pools?filter=nothing",
    "/ui/search?q=ool-9999",
];
const TENANTS: [&str; 6] = [
    "/ui/tenants",
    "/ui/tenants?sort=-tenant&page=500",
    "/ui/tenants?sort=-limit",
    "/ui/tenants?sort=pool",
    "/ui/tenants?filter=tenant-9999",
    "/ui/search?q=tenant-9",
];
const RULES: [&str; 7] = [
    "/ui/rules",
    "/ui/rules?sort=state",
    "/ui/rules?sort=-state&page=1000",
    "/ui/rules?sort=owner",
    "/ui/rules?sort=-family",
    "/ui/rules?filter=10.0.99",
    "/ui/rules?filter=nothing&sort=state",
];

/// Its sources are in the packet filter, where so many are.
const HOST: &str = r#"
[host]
node = "bench"

[[host.rules]]
name = "bench"
pool = "bench"
table = 100
"#;
const APPLIED_WITHIN: Duration = Duration::from_secs(60);

pub async fn run() -> Result<Vec<Figure>> {
    let options = FipdOptions::default;
    let pools = fill::daemon_on(options(), |store| fill::pools(store, ROWS)).await?;
    let pools = slowest("pools-100k", &POOLS, &pools, whole).await?;
    let tenants = fill::daemon_on(options(), |store| fill::tenants(store, ROWS)).await?;
    let tenants = slowest("tenants-100k", &TENANTS, &tenants, whole).await?;
    // From outside of the namespace.
    fipd_binary().await?;
    let rules = || {
        debian::ensure(&["iproute2", "nftables"])?;
        in_namespace(2, rules)
    };
    let rules = tokio::task::spawn_blocking(rules).await??;
    Ok(vec![pools, tenants, rules])
}

async fn rules() -> Result<Figure> {
    let options = FipdOptions {
        config: Some(HOST.to_owned()),
        ..FipdOptions::default()
    };
    let pools = fill::Pools::one("10.0.0.0/8")?;
    let filled = move |store: &Path| fill::fill(store, &pools, ROWS, 0);
    let fipd = fill::daemon_on(options, filled).await?;
    let indexed = format!("{ROWS} sources indexed");
    wait_until("rules of all leases", APPLIED_WITHIN, || async {
        let shown = fipd.cli(["rules", "show", "--filter", "nothing"]).await?;
        let shown = shown.success()?;
        match shown.contains(&indexed) {
            true => Ok(()),
            false => Err(anyhow!(shown)),
        }
    })
    .await?;
    slowest("rules-100k", &RULES, &fipd, whole).await
}

/// A list that is not filtered is of all rows.
fn whole(path: &str, page: &str) -> Result<()> {
    let all = path.contains("sort=") && !path.contains("filter=");
    if all && !page.contains(SHOWN) {
        bail!("{path}: not of {SHOWN} rows");
    }
    Ok(())
}
