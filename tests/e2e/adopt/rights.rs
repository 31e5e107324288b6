//! Each rule of the manifest is needed, and together they are enough.

use fipd_tests::testbed::{RESTRICTED_USER, documents, wait_until};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};

use super::site::{ADOPT_ROLES, API_SERVICE, Bed, Duties, MANAGEMENT_ROLES};
use super::{APP, DEADLINE, adopt, trouble};

/// A role of a manifest.
fn role(manifest: &str, name: &str) -> Value {
    let all = documents(manifest).unwrap();
    let name = format!("fipd-rancher-fip-{name}");
    let mut named = all
        .into_iter()
        .filter(|one| one["metadata"]["name"] == name.as_str());
    named.next().unwrap()
}

/// The role without the rules about a resource.
fn without(role: &Value, resource: &str) -> Value {
    let mut less = role.clone();
    let rules = less["rules"].as_array_mut().unwrap();
    let before = rules.len();
    rules.retain(|rule| {
        !rule["resources"]
            .as_array()
            .unwrap()
            .contains(&json!(resource))
    });
    assert!(rules.len() < before, "{resource}: {role}");
    less
}

/// Waits until a dry run could not look at this; empty: until it saw everything.
async fn wait_unseen(bed: &Bed, what: &str) {
    wait_until(&format!("unseen: {what:?}"), DEADLINE, || async {
        let seen = adopt(&bed.scenario.fipd, &["--dry-run"]).await;
        let report = seen.json().map_err(|error| format!("{error:#}"))?;
        let unseen = report["unseen"].as_array().unwrap().iter();
        let mut unseen = unseen.map(|one| one.as_str().unwrap());
        let so = match what {
            "" => unseen.next().is_none(),
            what => unseen.any(|one| one.starts_with(what) && one.contains("orbidden")),
        };
        so.then_some(()).ok_or(report["unseen"].to_string())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_rule_of_the_manifest_is_needed_and_all_are_enough() {
    let mut bed = Bed::prepare(Duties::default(), "", "").await;
    bed.renew("rancher-fip-manager-lock", "").await;
    bed.scenario.fipd.restart().await.unwrap();
    bed.scenario.fipd.wait_ready(DEADLINE).await.unwrap();
    wait_unseen(&bed, "").await;
    for (name, resource, unseen) in [
        ("adopt", "secrets", "Secrets of projects"),
        ("adopt-app", "deployments", "Deployments of the originals"),
        (
            "adopt-app",
            "secrets",
            "Secret rancher-fip-manager/jwt-private-key",
        ),
        (
            "adopt-app",
            "configmaps",
            "ConfigMap rancher-fip-manager/rancher-fip-config",
        ),
        (
            "adopt-app",
            "services",
            "Service rancher-fip-manager/rancher-fip-api-server",
        ),
    ] {
        let role = role(ADOPT_ROLES, name);
        bed.apply(without(&role, resource)).await;
        wait_unseen(&bed, unseen).await;
        bed.apply(role).await;
        wait_unseen(&bed, "").await;
    }
    refused_pools(&bed).await;
    let whole = role(ADOPT_ROLES, "adopt");
    bed.apply(without(&whole, "validatingwebhookconfigurations"))
        .await;
    forbidden_to_delete(&bed).await;
    let undone = wait_until("the webhook stays", DEADLINE, || async {
        let done = adopt(&bed.scenario.fipd, &[]).await;
        match done.code {
            1 if done.stderr.contains("orbidden") => Ok(done),
            _ => Err(format!("{done:?}")),
        }
    });
    let undone = undone.await.unwrap();
    assert!(
        undone.stderr.contains("rancher-fip-manager-validator: "),
        "{undone:?}"
    );
    bed.apply(whole).await;
    wait_until("all is taken over", DEADLINE, || async {
        let done = adopt(&bed.scenario.fipd, &[]).await;
        match done.code {
            0 => Ok(()),
            _ => Err(format!("{done:?}")),
        }
    })
    .await
    .unwrap();
}

/// Waits until the API server knows that fipd may not.
async fn forbidden_to_delete(bed: &Bed) {
    let plane = &bed.scenario.site.rancher;
    let restricted = plane.client_of(RESTRICTED_USER).await.unwrap();
    let api: Api<ValidatingWebhookConfiguration> = Api::all(restricted);
    wait_until("fipd may not delete it", DEADLINE, || async {
        let params = DeleteParams::default().dry_run();
        match api.delete("rancher-fip-manager-validator", &params).await {
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
}

/// Without what counts there is no report, and it is said what is forbidden.
async fn refused_pools(bed: &Bed) {
    let whole = role(MANAGEMENT_ROLES, "management");
    bed.apply(without(&whole, "floatingippools")).await;
    let refused = wait_until("no report without pools", DEADLINE, || async {
        let refused = adopt(&bed.scenario.fipd, &["--dry-run"]).await;
        match refused.code {
            0 => Err(format!("{refused:?}")),
            _ => Ok(refused),
        }
    });
    let refused = refused.await.unwrap();
    assert_eq!((refused.code, &*refused.stdout), (1, ""), "{refused:?}");
    for part in [
        "cluster rancher: list pools: ",
        "floatingippools",
        "orbidden",
    ] {
        assert!(refused.stderr.contains(part), "{part}: {refused:?}");
    }
    bed.apply(whole).await;
    wait_unseen(bed, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_rule_for_the_service_is_needed() {
    let duties = Duties {
        api_service: true,
        ..Duties::default()
    };
    let mut bed = Bed::prepare(duties, "https://192.0.2.7:9443", "").await;
    bed.renew("rancher-fip-manager-lock", "").await;
    bed.scenario.fipd.restart().await.unwrap();
    bed.scenario.fipd.wait_ready(DEADLINE).await.unwrap();
    let api: Api<Service> = Api::namespaced(bed.rancher.clone(), APP);
    wait_until("the Service is kept", DEADLINE, || async {
        let service = api.get(API_SERVICE).await.unwrap();
        let kept = service.spec.unwrap().selector.is_none();
        kept.then_some(()).ok_or("it has its selector")
    })
    .await
    .unwrap();
    let whole = role(ADOPT_ROLES, "api-service");
    bed.apply(without(&whole, "ingresses")).await;
    wait_unseen(&bed, "Ingresses that lead to Service").await;
    for resource in ["endpoints", "endpointslices"] {
        bed.apply(without(&whole, resource)).await;
        wait_trouble(&bed, &format!("\\\"{resource}\\\"")).await;
    }
    // The roles for taking over let it be read as well; they are bound for as long as that takes only.
    let bindings: Api<RoleBinding> = Api::namespaced(bed.rancher.clone(), APP);
    let params = DeleteParams::default();
    bindings
        .delete("fipd-rancher-fip-adopt-app", &params)
        .await
        .unwrap();
    // One rule for the Service as it is, one for where there is none.
    let rule = |verb: &str| {
        let rules = whole["rules"].as_array().unwrap();
        let has = |rule: &Value| {
            let about =
                |field: &str, what: &str| rule[field].as_array().unwrap().contains(&json!(what));
            about("resources", "services") && about("verbs", verb)
        };
        rules.iter().position(has).unwrap()
    };
    for verb in ["get", "create"] {
        let mut less = whole.clone();
        less["rules"].as_array_mut().unwrap().remove(rule(verb));
        bed.apply(less).await;
        if verb == "create" {
            api.delete(API_SERVICE, &params).await.unwrap();
        }
        wait_trouble(&bed, &format!("{verb} resource \\\"services\\\"")).await;
    }
    bed.apply(whole).await;
    wait_until("all is well", DEADLINE, || async {
        let said = trouble(&bed).await;
        (said == "null").then_some(()).ok_or(said)
    })
    .await
    .unwrap();
}

async fn wait_trouble(bed: &Bed, what: &str) {
    wait_until(&format!("trouble with {what}"), DEADLINE, || async {
        let said = trouble(bed).await;
        let so = said.contains("api-service: ") && said.contains(what);
        so.then_some(()).ok_or(said)
    })
    .await
    .unwrap();
}
