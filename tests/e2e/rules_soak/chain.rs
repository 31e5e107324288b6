//! From the address of a Service to the rule in the kernel, and back.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use fipd_tests::bench::percentile;
use fipd_tests::netlink::RawRule;
use fipd_tests::testbed::wait_until;
use serde_json::json;

use super::in_namespace;
use fipd_tests::rule_site::{RuleSite, TAG};

/// How often it is timed.
const ROUNDS: u32 = 20;
const WITHIN: Duration = Duration::from_secs(20);

#[test]
fn conformance_1_to_3_a_service_has_its_rule_soon_and_loses_it_with_its_address() {
    in_namespace(async || {
        let site = RuleSite::start().await.unwrap();
        let spec = json!({ "cidr": "203.0.113.0/24", "table": 100, "priority": 1000 });
        site.apply_rule("lb", &spec).await.unwrap();
        let own: IpAddr = "10.96.23.17".parse().unwrap();
        site.create_service("web", &[own]).await.unwrap();
        site.create_service("outside", &["10.96.23.18".parse().unwrap()])
            .await
            .unwrap();
        site.set_vips("outside", &["203.0.114.45".parse().unwrap()])
            .await
            .unwrap();
        let vip = "203.0.113.45".parse().unwrap();
        let rule = [RawRule::new(own, 100, 1_000, TAG)];
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        // The first one warms the API server up, too.
        for _ in 0..=ROUNDS {
            let start = Instant::now();
            site.set_vips("web", &[vip]).await.unwrap();
            until(&site, &rule).await;
            added.push(start.elapsed());
            let config = site.configs.get("iprc-10-96-23-17").await.unwrap();
            assert_eq!(json!(config)["spec"]["state"], "present");
            let start = Instant::now();
            site.set_vips("web", &[]).await.unwrap();
            until(&site, &[]).await;
            removed.push(start.elapsed());
            wait_until("its object is gone", WITHIN, || async {
                match site.configs.get_opt("iprc-10-96-23-17").await {
                    Ok(None) => Ok(()),
                    Ok(Some(found)) => Err(json!(found).to_string()),
                    Err(error) => Err(error.to_string()),
                }
            })
            .await
            .unwrap();
        }
        for (what, times) in [
            ("address to rule", &added),
            ("address gone to rule gone", &removed),
        ] {
            let at = |part| percentile(&times[1..], part).unwrap();
            println!("{what}: p50 {:.1?}, worst {:.1?}", at(0.5), at(1.0));
        }
        site.clear().await.unwrap();
    });
}

/// Looks more often than [`RuleSite::settles`], since it is timed.
async fn until(site: &RuleSite, expected: &[RawRule]) {
    let start = Instant::now();
    while site.own().await.unwrap() != expected {
        assert!(
            start.elapsed() < WITHIN,
            "{:?} instead of {expected:?}\n{}",
            site.own().await.unwrap(),
            site.fipd.log_tail()
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
