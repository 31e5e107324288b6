//! The validating webhook of rancher-fip: a real API server asks fipd, which has no more rights than its role.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::fs;
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use fipd_crds::floating_ip::{FloatingIP, FloatingIPPool};
use fipd_tests::scenario::{Scenario, write_kubeconfig};
use fipd_tests::testbed::{
    CertificateAuthority, RESTRICTED_USER, SiteOptions, wait_object, wait_until,
};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);
const ROLE: &str = include_str!("../../packaging/rbac/rancher-fip-management.yaml");
const GROUP: &str = "rancher.k8s.binbash.org";
const NAMESPACE: &str = "c-m-a";
const OURS: &str = "fipd-rancher-fip-validator";
const THEIRS: &str = "rancher-fip-manager-validator";

struct Rancher {
    scenario: Scenario,
    client: Client,
    fips: Api<FloatingIP>,
    pools: Api<FloatingIPPool>,
    webhooks: Api<ValidatingWebhookConfiguration>,
}

impl Rancher {
    /// With the pool `net` from .10 to .20, of which `p-1` may have two.
    async fn start(webhook: &str) -> Self {
        let mut scenario = Scenario::prepare(&SiteOptions::of(&[]).kept())
            .await
            .unwrap();
        let plane = &scenario.site.rancher;
        plane.apply(ROLE).await.unwrap();
        plane
            .bind_role("fipd-rancher-fip-management", None)
            .await
            .unwrap();
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        plane.apply(&namespace.to_string()).await.unwrap();
        let client = plane.client().await.unwrap();
        let kubeconfig = plane.kubeconfig_of(RESTRICTED_USER);
        write_kubeconfig(&scenario.fipd, "rancher", &kubeconfig).unwrap();
        let config = config(&scenario.fipd.url(), webhook);
        scenario.fipd.write_config(&config).unwrap();
        scenario.fipd.restart().await.unwrap();
        scenario.fipd.wait_ready(DEADLINE).await.unwrap();
        let rancher = Self {
            scenario,
            fips: Api::namespaced(client.clone(), NAMESPACE),
            pools: Api::all(client.clone()),
            webhooks: Api::all(client.clone()),
            client,
        };
        let spec = pool("10.70.0.0/24", "10.70.0.10", "10.70.0.20");
        rancher.create("FloatingIPPool", "net", spec).await.unwrap();
        rancher
            .create("FloatingIPProjectQuota", "p-1", quota(2))
            .await
            .unwrap();
        rancher
    }

    /// Until the API server asks fipd: it hears of a new configuration in its own time.
    async fn asked(&self) {
        wait_until("a pool without addresses is refused", DEADLINE, || async {
            let object = json!({ "targetNetwork": "n" });
            match self.create_dry("FloatingIPPool", "empty", object).await {
                Err(error) if error.contains("spec.ipConfig") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
        wait_until("the pool gives addresses", DEADLINE, || {
            self.create_dry("FloatingIP", "first", fip("net", ""))
        })
        .await
        .unwrap();
    }

    async fn create(&self, kind: &str, name: &str, spec: Value) -> Result<Value, String> {
        self.post("v1beta2", kind, name, spec, false).await
    }

    async fn create_dry(&self, kind: &str, name: &str, spec: Value) -> Result<Value, String> {
        self.post("v1beta2", kind, name, spec, true).await
    }

    /// As kubectl does it; an error is what it prints.
    async fn post(
        &self,
        version: &str,
        kind: &str,
        name: &str,
        spec: Value,
        dry_run: bool,
    ) -> Result<Value, String> {
        let mut meta = json!({ "name": name });
        let api = self.api(version, kind);
        if kind == "FloatingIP" {
            meta["labels"] = json!({ format!("{GROUP}/project-name"): "p-1" });
        }
        let object = json!({ "apiVersion": format!("{GROUP}/{version}"), "kind": kind, "metadata": meta, "spec": spec });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let params = PostParams {
            dry_run,
            field_manager: Some("kubectl-create".to_owned()),
        };
        api.create(&params, &object)
            .await
            .map(|object| json!(object))
            .map_err(|error| text(&error))
    }

    fn api(&self, version: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: GROUP.to_owned(),
            version: version.to_owned(),
            api_version: format!("{GROUP}/{version}"),
            kind: kind.to_owned(),
            plural: format!("{}s", kind.to_lowercase()),
        };
        match kind {
            "FloatingIP" => Api::namespaced_with(self.client.clone(), NAMESPACE, &resource),
            _ => Api::all_with(self.client.clone(), &resource),
        }
    }

    async fn fip(&self, name: &str, address: &str) -> Result<Value, String> {
        self.create("FloatingIP", name, fip("net", address)).await
    }

    async fn patch_pool(&self, patch: Value) -> Result<(), String> {
        let params = PatchParams::default();
        let patched = self
            .pools
            .patch("net", &params, &Patch::Merge(&patch))
            .await;
        patched.map(drop).map_err(|error| text(&error))
    }

    async fn wait_fip(&self, name: &str, what: &str, test: impl Fn(&Value) -> bool) {
        let what = format!("FloatingIP {name} {what}");
        wait_object(&what, DEADLINE, (&self.fips, name), test)
            .await
            .unwrap();
    }

    async fn wait_address(&self, name: &str) {
        let allocated = |fip: &Value| fip["status"]["state"] == "Allocated";
        self.wait_fip(name, "has an address", allocated).await;
    }

    async fn wait_webhook(&self, what: &str, test: impl Fn(Option<&Value>) -> bool) {
        wait_until(
            &format!("the configuration is {what}"),
            DEADLINE,
            || async {
                let found = self
                    .webhooks
                    .get_opt(OURS)
                    .await
                    .map_err(|error| error.to_string())?;
                let found = found.map(|found| json!(found));
                if test(found.as_ref()) {
                    Ok(())
                } else {
                    Err(format!("{found:?}"))
                }
            },
        )
        .await
        .unwrap();
    }

    async fn wait_event(&self, reason: &str, about: &str) {
        let events: Api<Event> = Api::all(self.client.clone());
        wait_until(&format!("an Event {reason}"), DEADLINE, || async {
            let all = events.list(&ListParams::default()).await;
            let all = all.map_err(|error| error.to_string())?.items;
            let is = |event: &Event| {
                let regarding = event.regarding.as_ref().and_then(|one| one.name.as_deref());
                event.reason.as_deref() == Some(reason) && regarding == Some(about)
            };
            if all.iter().any(is) {
                Ok(())
            } else {
                Err(format!("{} others", all.len()))
            }
        })
        .await
        .unwrap();
    }

    async fn wait_shown(&self, what: &str, test: impl Fn(&str) -> bool) {
        wait_until(&format!("the webhook is {what}"), DEADLINE, || async {
            let shown = self
                .scenario
                .fipd
                .cli(["clusters", "show", "rancher"])
                .await;
            let shown = shown.map_err(|error| error.to_string())?.stdout;
            if test(&shown) { Ok(()) } else { Err(shown) }
        })
        .await
        .unwrap();
    }

    async fn restart(&mut self, webhook: &str) {
        self.restart_with("", webhook).await;
    }

    /// With more keys of `[api]`.
    async fn restart_with(&mut self, api: &str, webhook: &str) {
        let config = config_with(&self.scenario.fipd.url(), api, webhook);
        self.scenario.fipd.write_config(&config).unwrap();
        self.scenario.fipd.restart().await.unwrap();
        self.scenario.fipd.wait_ready(DEADLINE).await.unwrap();
    }
}

/// Under a certificate of a private CA, whose chain says what that is; no `ca-file` names it.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_of_a_private_ca_is_in_force_and_one_that_is_not_is_reported() {
    let mut rancher = Rancher::start("").await;
    let authority = CertificateAuthority::new().unwrap();
    let directory = rancher.scenario.fipd.data_dir();
    let (cert, key) = (directory.join("site.crt"), directory.join("site.key"));
    authority.write_server_pair(&cert, &key).unwrap();
    let chain = format!("{}{}", fs::read_to_string(&cert).unwrap(), authority.pem());
    fs::write(&cert, chain).unwrap();
    let files = format!("cert = {cert:?}\nkey = {key:?}\n");
    rancher.restart_with(&files, "").await;
    let bundle = STANDARD.encode(authority.pem());
    rancher
        .wait_webhook("of the private CA", |found| {
            found.is_some_and(|found| found["webhooks"][0]["clientConfig"]["caBundle"] == bundle)
        })
        .await;
    rancher.asked().await;
    rancher
        .wait_shown("in force", |shown| !shown.contains("admission webhook"))
        .await;

    // The API server cannot reach it: that is seen, and nothing waits for it. A `fail` of before does not count.
    rancher.fip("one", "").await.unwrap();
    rancher.wait_address("one").await;
    let dead = "url = \"https://127.0.0.1:1\"\n";
    rancher.restart_with(&files, dead).await;
    rancher
        .wait_shown("not in force", |shown| shown.contains("is not in force"))
        .await;
    rancher.wait_event("WebhookNotInForce", OURS).await;
    let fail = format!("{dead}failure-policy = \"fail\"\n");
    rancher.restart_with(&files, &fail).await;
    rancher
        .wait_webhook("at the dead URL", |found| {
            found.is_some_and(|found| {
                let webhook = &found["webhooks"][0];
                let url = webhook["clientConfig"]["url"].as_str().unwrap_or_default();
                url.starts_with("https://127.0.0.1:1/") && webhook["failurePolicy"] == "Ignore"
            })
        })
        .await;
    rancher
        .wait_shown("never Fail", |shown| shown.contains("needs two hosts"))
        .await;
    rancher
        .fips
        .delete("one", &DeleteParams::default())
        .await
        .unwrap();
    wait_until("the FloatingIP is gone", DEADLINE, || async {
        match rancher.fips.get_opt("one").await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
}

fn config(url: &str, webhook: &str) -> String {
    config_with(url, "", webhook)
}

fn config_with(url: &str, api: &str, webhook: &str) -> String {
    format!(
        "[api]\nadvertise = \"{url}\"\n{api}[[cluster]]\nname = \"rancher\"\nkubeconfig = \"rancher.kubeconfig\"\n\
         systems = [\"rancher-fip\"]\n[cluster.rancher-fip.webhook]\n{webhook}\n"
    )
}

fn pool(subnet: &str, start: &str, end: &str) -> Value {
    json!({ "ipConfig": { "subnet": subnet, "pool": { "start": start, "end": end } } })
}

fn quota(limit: u32) -> Value {
    json!({ "displayName": "Shop", "floatingIPQuota": { "net": limit } })
}

fn fip(pool: &str, address: &str) -> Value {
    json!({ "floatingIPPool": pool, "ipAddr": address })
}

fn text(error: &kube::Error) -> String {
    let kube::Error::Api(status) = error else {
        return error.to_string();
    };
    format!("{} {}: {}", status.code, status.reason, status.message)
}

#[track_caller]
fn refused(answer: Result<Value, String>, code: &str, webhook: &str, words: &str) {
    let error = answer.unwrap_err();
    let start = format!(
        "{code}: admission webhook \"{webhook}.rancher-fip.fipd.io\" denied the request: {words}"
    );
    assert!(error.starts_with(&start), "{error}\nis not\n{start}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_writes_what_would_not_be_served_hears_why() {
    let rancher = Rancher::start("").await;
    rancher.asked().await;

    // Not believed by its field manager alone.
    let params = PostParams {
        dry_run: true,
        field_manager: Some("fipd".to_owned()),
    };
    let object = json!({
        "apiVersion": format!("{GROUP}/v1beta2"), "kind": "FloatingIPPool", "metadata": { "name": "empty" },
        "spec": { "targetNetwork": "n" },
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let api = rancher.api("v1beta2", "FloatingIPPool");
    let error = api.create(&params, &object).await.unwrap_err();
    assert!(text(&error).contains("spec.ipConfig"), "{error}");

    // Pools.
    let (invalid, of_pools) = ("422 Invalid", "floatingippools");
    for (spec, words) in [
        (
            pool("10.71.0.0/24", "10.71.1.1", "10.71.0.9"),
            "spec.ipConfig.pool.start: \"10.71.1.1\" is not allowed: it must lie in",
        ),
        (
            pool("10.71.0.0/24", "10.71.0.1", "10.71.0.255"),
            "spec.ipConfig.pool.end: \"10.71.0.255\" is not allowed: it is the broadcast",
        ),
        (
            pool("10.71.0.0/24", "10.71.0.1", "2001:db8::1"),
            "spec.ipConfig.pool.end: \"2001:db8::1\" is not allowed: it must be an IPv4",
        ),
    ] {
        for version in ["v1beta1", "v1beta2"] {
            let answer = rancher
                .post(version, "FloatingIPPool", "bad", spec.clone(), false)
                .await;
            refused(answer, invalid, of_pools, words);
        }
    }
    // One that overlaps is told, and stored.
    let overlapping = pool("10.70.0.0/24", "10.70.0.20", "10.70.0.30");
    rancher
        .create("FloatingIPPool", "beside", overlapping)
        .await
        .unwrap();
    rancher.wait_event("Overlapping", "beside").await;

    // Quotas.
    let answer = rancher
        .create(
            "FloatingIPProjectQuota",
            "p-2",
            json!({ "floatingIPQuota": { "net": -1 } }),
        )
        .await;
    refused(
        answer,
        invalid,
        "floatingipprojectquotas",
        "spec.floatingIPQuota[\"net\"]: -1 is not allowed",
    );
    let unknown = json!({ "floatingIPQuota": { "later": 1 } });
    rancher
        .create("FloatingIPProjectQuota", "p-3", unknown)
        .await
        .unwrap();

    // FloatingIPs.
    let of_fips = "floatingips";
    let answer = rancher.create("FloatingIP", "a", fip("nett", "")).await;
    refused(
        answer,
        invalid,
        of_fips,
        "spec.floatingIPPool: \"nett\" is not allowed: there is no FloatingIPPool",
    );
    for (address, words) in [
        (
            "10.70.9.9",
            "spec.ipAddr: \"10.70.9.9\" is not allowed: it must lie in the subnet 10.70.0.0/24",
        ),
        (
            "10.70.0.9",
            "spec.ipAddr: \"10.70.0.9\" is not allowed: it must lie in the range 10.70.0.10-10.70.0.20",
        ),
    ] {
        refused(rancher.fip("a", address).await, invalid, of_fips, words);
    }
    rancher
        .create_dry("FloatingIP", "a", fip("net", "10.70.0.12"))
        .await
        .unwrap();
    rancher.fip("a", "10.70.0.12").await.unwrap();
    rancher.wait_address("a").await;
    let taken = "spec.ipAddr: \"10.70.0.12\" is not allowed: the address is in use";
    refused(
        rancher.fip("b", "10.70.0.12").await,
        invalid,
        of_fips,
        taken,
    );
    let answer = rancher
        .create_dry("FloatingIP", "b", fip("net", "10.70.0.12"))
        .await;
    refused(answer, invalid, of_fips, taken);
    rancher.fip("b", "").await.unwrap();
    rancher.wait_address("b").await;
    let exceeded =
        "quota exceeded: project \"p-1\" has 2 addresses of FloatingIPPool \"net\", its quota is 2";
    refused(
        rancher.fip("c", "").await,
        "403 Forbidden",
        of_fips,
        exceeded,
    );

    let metrics = rancher.scenario.fipd.get("/metrics").await.unwrap().body;
    assert!(
        metrics
            .contains("fipd_admission_requests_total{resource=\"floatingips\",result=\"denied\"}"),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_09_floating_ips_go_after_their_pool_and_defect_10_it_is_not_shrunk_below_them() {
    let rancher = Rancher::start("").await;
    rancher.asked().await;
    rancher.fip("a", "10.70.0.15").await.unwrap();
    rancher.wait_address("a").await;
    let start = |start: &str| json!({ "spec": { "ipConfig": { "pool": { "start": start } } } });
    let error = rancher.patch_pool(start("10.70.0.16")).await.unwrap_err();
    let words =
        "spec.ipConfig.pool: 1 addresses in use would be outside the pool: 10.70.0.15; keep them";
    assert!(
        error.starts_with("422 Invalid: admission webhook") && error.contains(words),
        "{error}"
    );
    let exclude = json!({ "spec": { "ipConfig": { "pool": { "exclude": ["10.70.0.15"] } } } });
    let error = rancher.patch_pool(exclude).await.unwrap_err();
    assert!(error.contains(words), "{error}");
    rancher.patch_pool(start("10.70.0.15")).await.unwrap();

    let refused = rancher.pools.delete("net", &DeleteParams::default()).await;
    let refused = text(&refused.unwrap_err());
    assert!(
        refused.contains("addresses of the pool are in use: 10.70.0."),
        "{refused}"
    );
    let force = json!({ "metadata": { "annotations": { "fipd.io/force-delete": "true" } } });
    rancher.patch_pool(force).await.unwrap();
    rancher
        .pools
        .delete("net", &DeleteParams::default())
        .await
        .unwrap();
    wait_until("the pool is gone", DEADLINE, || async {
        match rancher.pools.get_opt("net").await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    let labels = json!({ "metadata": { "labels": { format!("{GROUP}/cluster-name"): "c-m-b" } } });
    let params = PatchParams::default();
    rancher
        .fips
        .patch("a", &params, &Patch::Merge(&labels))
        .await
        .unwrap();
    rancher
        .fips
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    wait_until("the FloatingIP is gone", DEADLINE, || async {
        match rancher.fips.get_opt("a").await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_is_kept_and_goes_when_it_is_switched_off_and_writes_never_depend_on_fipd()
 {
    let mut rancher = Rancher::start("").await;
    rancher.asked().await;
    // What somebody deletes or edits comes back.
    rancher
        .webhooks
        .delete(OURS, &DeleteParams::default())
        .await
        .unwrap();
    let is_whole = |found: Option<&Value>| {
        found.is_some_and(|found| {
            let webhook = &found["webhooks"][1];
            found["webhooks"]
                .as_array()
                .is_some_and(|all| all.len() == 3)
                && webhook["failurePolicy"] == "Ignore"
                && webhook["timeoutSeconds"] == 3
                && webhook["sideEffects"] == "None"
                && webhook["matchConditions"][0]["name"] == "fipd.io/not-fipd"
        })
    };
    rancher.wait_webhook("back", is_whole).await;
    let mut edited = json!(rancher.webhooks.get(OURS).await.unwrap());
    edited["webhooks"][1]["failurePolicy"] = json!("Fail");
    edited["webhooks"][1]["matchConditions"] = json!([{ "name": "never", "expression": "false" }]);
    let edited = serde_json::from_value(edited).unwrap();
    rancher
        .webhooks
        .replace(OURS, &PostParams::default(), &edited)
        .await
        .unwrap();
    rancher.wait_webhook("repaired", is_whole).await;
    // An admin's condition stays.
    let found = json!(rancher.webhooks.get(OURS).await.unwrap());
    let conditions = &found["webhooks"][1]["matchConditions"];
    assert_eq!(conditions[1]["name"], "never", "{conditions}");
    // The original's configuration is spoken of, and left alone.
    let service = json!({ "name": "rancher-fip-manager-webhook", "namespace": "rancher-fip-manager", "path": "/validate-floatingip" });
    let original = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": { "name": THEIRS },
        "webhooks": [{
            "name": "floatingip-rancher-fip-manager-webhook.rancher-fip-manager.svc", "admissionReviewVersions": ["v1"],
            "clientConfig": { "service": service }, "sideEffects": "None",
            "rules": [{ "apiGroups": ["example.org"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothing"] }],
        }],
    });
    rancher
        .scenario
        .site
        .rancher
        .apply(&original.to_string())
        .await
        .unwrap();
    rancher.wait_event("OriginalWebhook", THEIRS).await;

    // fipd is dead: the object is stored, and judged when it lives again.
    rancher.scenario.fipd.kill9().unwrap();
    rancher
        .create(
            "FloatingIPPool",
            "bad",
            pool("10.71.0.0/24", "10.71.0.1", "10.71.0.255"),
        )
        .await
        .unwrap();
    rancher.fip("outside", "10.70.0.99").await.unwrap();
    rancher.restart("timeout = \"1s\"\n").await;
    rancher.wait_event("Invalid", "bad").await;
    let refused = |fip: &Value| {
        let says = fip["status"]["conditions"][0]["message"].as_str();
        fip["status"]["state"] == "Error" && says.is_some_and(|text| text.contains("10.70.0.99"))
    };
    rancher.wait_fip("outside", "is refused", refused).await;
    rancher
        .wait_webhook("changed", |found| {
            found.is_some_and(|found| found["webhooks"][0]["timeoutSeconds"] == 1)
        })
        .await;

    rancher.restart("enabled = false\n").await;
    rancher.wait_webhook("gone", |found| found.is_none()).await;
    rancher
        .create("FloatingIPPool", "worse", json!({ "targetNetwork": "n" }))
        .await
        .unwrap();
    rancher.webhooks.get(THEIRS).await.unwrap();
}
