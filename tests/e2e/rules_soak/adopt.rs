//! Taking over the rules that the original left on a node.

use std::net::IpAddr;
use std::time::Duration;

use fipd_tests::netlink::{RawRule, Told};
use fipd_tests::rule_site::{RuleSite, TAG};
use fipd_tests::testbed::{CliOutput, wait_until};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use super::in_namespace;

const ORIGINALS: &str = "ip-rule-operator-system";
const AGENT: &str = "iprule-agent";
const ROLE: &str = include_str!("../../../packaging/rbac/ip-rule-adopt.yaml");
const WITHIN: Duration = Duration::from_secs(60);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// As the original leaves it.
fn untagged(source: &str, table: u32, priority: u32) -> RawRule {
    RawRule::new(ip(source), table, priority, 0)
}

async fn adopt(site: &RuleSite, more: &[&str]) -> CliOutput {
    let fixed = ["adopt", "ip-rule", "--cluster", "c", "-o", "json"];
    site.fipd.cli(fixed.iter().chain(more)).await.unwrap()
}

async fn refused(site: &RuleSite, why: &str) {
    let refused = adopt(site, &[]).await;
    assert_ne!(refused.code, 0, "{refused:?}");
    assert!(refused.stderr.contains(why), "{refused:?}");
}

/// The names of what changes, sorted.
fn changes(report: &Value) -> Vec<String> {
    let all = report["changes"].as_array().unwrap().iter();
    let mut all: Vec<String> = all
        .map(|one| one["name"].as_str().unwrap().to_owned())
        .collect();
    all.sort();
    all
}

/// The original's agent, by a controller that really counts its pods.
async fn original_agent(agents: &Api<DaemonSet>) {
    let labels = json!({ "app": AGENT, "app.kubernetes.io/name": "ip-rule-operator", "managed-by": "ip-rule-operator" });
    let set = json!({
        "metadata": { "name": AGENT, "labels": labels },
        "spec": {
            "selector": { "matchLabels": { "app": AGENT } },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    // The only Node is not ready: there is no kubelet.
                    "tolerations": [{ "operator": "Exists" }],
                    "containers": [{ "name": "agent", "image": "iprule-agent:latest" }],
                },
            },
        },
    });
    let set = serde_json::from_value(set).unwrap();
    agents.create(&PostParams::default(), &set).await.unwrap();
    wait_until("the agent is to run", WITHIN, || async {
        let set = agents.get(AGENT).await.map_err(|error| error.to_string())?;
        let wanted = set
            .status
            .map_or(0, |status| status.desired_number_scheduled);
        if wanted == 1 {
            Ok(())
        } else {
            Err(format!("{wanted} pods"))
        }
    })
    .await
    .unwrap();
}

/// Two Services whose rules the original left, once with the priority of its IPRule and once with one that the kernel chose, and
/// everything that looks alike.
async fn left_by_the_original(site: &mut RuleSite) -> (Vec<RawRule>, Vec<RawRule>) {
    site.apply_rule(
        "fixed",
        &json!({ "cidr": "203.0.113.0/25", "table": 100, "priority": 1000 }),
    )
    .await
    .unwrap();
    site.apply_rule("free", &json!({ "cidr": "203.0.113.128/25", "table": 200 }))
        .await
        .unwrap();
    for (name, own, vip) in [
        ("a", "10.96.23.17", "203.0.113.45"),
        ("b", "10.96.23.18", "203.0.113.200"),
    ] {
        site.create_service(name, &[ip(own)]).await.unwrap();
        site.set_vips(name, &[ip(vip)]).await.unwrap();
    }
    let theirs = vec![
        untagged("10.96.23.17", 100, 1_000),
        untagged("10.96.23.18", 200, 32_765),
        untagged("10.96.23.18", 200, 32_764),
    ];
    let alike = vec![
        RawRule {
            mark: Some(7),
            ..untagged("10.96.23.17", 100, 1_000)
        },
        // Of another table, of another priority than its object says, of no object at all, and tagged by somebody.
        untagged("10.96.23.17", 101, 1_002),
        untagged("10.96.23.17", 100, 1_001),
        untagged("10.96.23.19", 100, 1_000),
        RawRule::new(ip("10.96.23.17"), 100, 1_000, 4),
    ];
    site.kernel.add(&theirs).unwrap();
    site.kernel.add(&alike).unwrap();
    (theirs, alike)
}

#[test]
fn rules_without_tag_are_taken_over_where_an_object_says_them_in_full_and_nothing_else_is_touched()
{
    in_namespace(async || {
        let mut site = RuleSite::start().await.unwrap();
        let boot = site.foreign().await.unwrap();
        let (theirs, mut alike) = left_by_the_original(&mut site).await;
        let mut own = vec![
            RawRule::new(ip("10.96.23.17"), 100, 1_000, TAG),
            RawRule::new(ip("10.96.23.18"), 200, 10_000, TAG),
        ];
        own.sort();
        site.settles("the rules of fipd are beside them", &own)
            .await
            .unwrap();
        let before = site.kernel.dump().await.unwrap();
        let shown = changes(&adopt(&site, &["--dry-run"]).await.json().unwrap());
        assert_eq!(shown.len(), theirs.len(), "{shown:?}");
        assert_eq!(site.kernel.dump().await.unwrap(), before, "a dry run");

        // The original's agent would bring them back.
        let agents = Api::namespaced(site.client().await.unwrap(), ORIGINALS);
        original_agent(&agents).await;
        refused(&site, "it is not known whether the original still runs").await;
        site.allow(ROLE, "fipd-ip-rule-adopt").await.unwrap();
        wait_until("fipd may look", WITHIN, || async {
            let report = adopt(&site, &["--dry-run"]).await.json();
            let report = report.map_err(|error| error.to_string())?;
            match report["unseen"].as_array().is_some_and(Vec::is_empty) {
                true => Ok(()),
                false => Err(report.to_string()),
            }
        })
        .await
        .unwrap();
        refused(&site, &format!("DaemonSet {ORIGINALS}/{AGENT}")).await;
        assert_eq!(site.kernel.dump().await.unwrap(), before, "refused");
        agents
            .delete(AGENT, &DeleteParams::default())
            .await
            .unwrap();
        wait_until("the agent is gone", WITHIN, || async {
            match agents.get_opt(AGENT).await {
                Ok(None) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap();

        let done = adopt(&site, &[]).await.json().unwrap();
        assert_eq!(changes(&done), shown, "{done}");
        let mut left: Vec<RawRule> = site
            .foreign()
            .await
            .unwrap()
            .iter()
            .map(Told::rule)
            .collect();
        left.sort();
        alike.extend(boot.iter().map(Told::rule));
        alike.sort();
        assert_eq!(left, alike);
        site.settles("the twins went, too", &own).await.unwrap();

        let again = adopt(&site, &[]).await.json().unwrap();
        assert!(changes(&again).is_empty(), "{again}");
    });
}
