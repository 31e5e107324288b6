//! A host that takes its rules away at its stop.

use std::time::Duration;

use fipd_tests::netlink::RawRule;
use fipd_tests::rule_site::{NODE, RuleSite, TAG};
use fipd_tests::testbed::wait_until;
use serde_json::{Value, json};

use super::in_namespace;

const CONFIG: &str = "iprc-10-96-23-17";
const WITHIN: Duration = Duration::from_secs(30);

#[test]
fn conformance_34_who_takes_its_rules_away_at_its_stop_says_so_in_the_cluster() {
    in_namespace(async || {
        let mut site = RuleSite::start().await.unwrap();
        let config = std::fs::read_to_string(site.fipd.config_path()).unwrap();
        let config = config.replace("[host]\n", "[host]\ncleanup-on-stop = true\n");
        std::fs::write(site.fipd.config_path(), config).unwrap();
        site.fipd.restart().await.unwrap();
        let spec = json!({ "cidr": "203.0.113.0/24", "table": 100, "priority": 1000 });
        site.apply_rule("lb", &spec).await.unwrap();
        let own = "10.96.23.17".parse().unwrap();
        site.create_service("web", &[own]).await.unwrap();
        site.set_vips("web", &["203.0.113.45".parse().unwrap()])
            .await
            .unwrap();
        let rule = [RawRule::new(own, 100, 1_000, TAG)];
        site.settles("it has its rule", &rule).await.unwrap();
        let says = async || {
            let config = json!(site.configs.get(CONFIG).await.unwrap());
            assert_eq!(config["spec"]["state"], "present");
            config["metadata"]["annotations"][format!("applied.iprule.agent.brtrm.dev/{NODE}")]
                .clone()
        };
        wait_until("the node says so", WITHIN, || async {
            match says().await.is_null() {
                true => Err("nothing"),
                false => Ok(()),
            }
        })
        .await
        .unwrap();
        site.fipd.terminate(WITHIN).await.unwrap();
        assert_eq!(says().await, Value::Null, "{}", site.fipd.log_tail());
        assert_eq!(site.own().await.unwrap(), []);
        // Back again, it has its rules as before.
        site.fipd.restart().await.unwrap();
        site.settles("it has them again", &rule).await.unwrap();
        site.clear().await.unwrap();
    });
}
