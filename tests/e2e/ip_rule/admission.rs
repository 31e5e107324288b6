//! The webhook, which a real API server asks.

use fipd_tests::testbed::{Fipd, FipdOptions};
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn conformance_9_to_12_an_api_server_refuses_what_is_wrong_and_warns_of_what_is_odd() {
    let bench = Bench::start(&[]).await;
    let mut fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
    fipd.write_file("c.kubeconfig", &bench.plane.kubeconfig_of(RESTRICTED_USER))
        .unwrap();
    let config = format!(
        "[api]\nadvertise = \"{}\"\n[[cluster]]\nname = \"c\"\nkubeconfig = \"c.kubeconfig\"\nsystems = [\"ip-rule\"]\n",
        fipd.url()
    );
    fipd.write_config(&config).unwrap();
    fipd.restart().await.unwrap();
    fipd.wait_ready(DEADLINE).await.unwrap();
    let make = async |kind: &str, name: &str, spec: Value| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(
            "api.operator.brtrm.dev",
            "v1alpha1",
            kind,
        ));
        let api: Api<DynamicObject> = match kind {
            "Agent" => Api::namespaced_with(bench.client.clone(), "default", &resource),
            _ => Api::all_with(bench.client.clone(), &resource),
        };
        let object = json!({
            "apiVersion": "api.operator.brtrm.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec,
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        api.create(&dry, &object)
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let range = "203.0.113.0/24";
    wait_until("a range that is none is refused", DEADLINE, || async {
        match make("IPRule", "foo", json!({ "cidr": "foo", "table": 100 })).await {
            Err(error) if error.contains("spec.cidr: \"foo\" is not allowed") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    for table in [json!(0), json!(-1), json!(1_u64 << 32)] {
        let error = make("IPRule", "a", json!({ "cidr": range, "table": table }))
            .await
            .unwrap_err();
        assert!(
            error.contains("spec.table") && error.contains("1 to 4294967295"),
            "{error}"
        );
    }
    let error = make(
        "IPRule",
        "a",
        json!({ "cidr": range, "table": 1, "priority": 32_766 }),
    )
    .await
    .unwrap_err();
    assert!(
        error.contains("viprule.kb.io") && error.contains("spec.priority"),
        "{error}"
    );
    for spec in [
        json!({ "cidr": range, "table": 4_294_967_295_u32 }),
        json!({ "cidr": range, "cidrs": ["2001:db8::/64"], "table": 1, "nodeSelectorLabel": "lb=true" }),
    ] {
        make("IPRule", "a", spec).await.unwrap();
    }
    let error = make("Agent", "mine", json!({})).await.unwrap_err();
    assert!(
        error.contains("vagent.kb.io") && error.contains("default or agent"),
        "{error}"
    );
    make("Agent", "agent", json!({})).await.unwrap();
}
