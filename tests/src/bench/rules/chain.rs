//! From the address of a Service to the rule in the kernel, with a real API server and fipd as users run it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;

use super::TABLE;
use crate::bench::Figure;
use crate::bench::figure::{median, millis};
use crate::namespace::in_namespace;
use crate::netlink::RawRule;
use crate::rule_site::{RuleSite, TAG};

const ROUNDS: u32 = 30;
/// Warm up the API server and its connections.
const WARM_UP: u32 = 3;
const WITHIN: Duration = Duration::from_secs(20);

pub fn figure() -> Result<Figure> {
    let times = in_namespace(2, async || {
        let site = RuleSite::start().await?;
        let spec = json!({ "cidr": "203.0.113.0/24", "table": TABLE, "priority": 1000 });
        site.apply_rule("lb", &spec).await?;
        let own = IpAddr::from([10, 96, 23, 17]);
        site.create_service("web", &[own]).await?;
        let rule = [RawRule::new(own, TABLE, 1_000, TAG)];
        let mut times = Vec::new();
        for round in 0..WARM_UP + ROUNDS {
            let start = Instant::now();
            site.set_vips("web", &[[203, 0, 113, 45].into()]).await?;
            has(&site, &rule, start).await?;
            if round >= WARM_UP {
                times.push(start.elapsed());
            }
            site.clear_vips("web").await?;
        }
        Ok(times)
    })?;
    let p50 = millis(median(&times)?);
    Ok(Figure::at_most(
        "service-address-to-kernel-rule",
        "ms",
        p50,
        "ip-rule-operator 3200",
        50.0,
    ))
}

async fn has(site: &RuleSite, expected: &[RawRule], start: Instant) -> Result<()> {
    while site.own().await? != expected {
        if start.elapsed() > WITHIN {
            bail!("{:?}\n{}", site.own().await?, site.fipd.log_tail());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
