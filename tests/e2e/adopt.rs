//! Taking a site over from the original programs of rancher-fip.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::BTreeMap;
use std::time::Duration;

use fipd_tests::stock::FipClient as Client;
use fipd_tests::testbed::{CliOutput, Fipd, free_port, keep_renewing, wait_until};
use http::Method;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client as Kube, ResourceExt};
use serde_json::{Value, json};

#[path = "adopt/rights.rs"]
mod rights;
#[path = "adopt/site.rs"]
mod site;
#[path = "adopt/token.rs"]
mod token;
use site::{API_SERVICE, APP, Bed, CLUSTER, Duties, GROUP, POOL, PROJECT};

const DEADLINE: Duration = Duration::from_secs(60);
const API_SERVER: &str = "rancher-fip-api-server-lock";
/// The authority of the site's own certificates, as far as anybody here looks at it.
const SITE_CA: &str = "-----BEGIN CERTIFICATE-----\nc2l0ZQ==\n-----END CERTIFICATE-----";

fn secret(project: &str) -> String {
    format!("{project}-0123456789abcdef0123456789abcdef")
}

/// The controller of the guest.
fn client(fipd: &Fipd) -> Client {
    let ca = std::fs::read(fipd.data_dir().join("tls/ca.crt")).unwrap();
    Client::new(
        &format!("{}/v1", fipd.url()),
        &ca,
        CLUSTER,
        PROJECT,
        &secret(PROJECT),
    )
    .unwrap()
}

async fn adopt(fipd: &Fipd, more: &[&str]) -> CliOutput {
    let fixed = ["adopt", "rancher-fip", "--cluster", "rancher", "-o", "json"];
    fipd.cli(fixed.iter().chain(more)).await.unwrap()
}

/// Kind, name and detail of all that is not as it should be.
fn looks(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    let wrong = findings.filter(|one| one["fine"] == false);
    let text = |one: &Value| {
        let part = |key: &str| one[key].as_str().unwrap().to_owned();
        format!("{} {}: {}", part("kind"), part("name"), part("detail"))
    };
    wrong.map(text).collect()
}

fn changes<'a>(report: &'a Value, by: &str) -> Vec<&'a Value> {
    let all = report["changes"].as_array().unwrap().iter();
    all.filter(|one| one["by"] == by).collect()
}

/// The version of everything that could be written to, but for Leases, which the original renews.
async fn versions(bed: &Bed) -> BTreeMap<String, String> {
    let guest = bed.scenario.client("guest").await.unwrap();
    let kinds = [
        ("", "v1", "Secret", "secrets"),
        ("", "v1", "ConfigMap", "configmaps"),
        ("", "v1", "Service", "services"),
        ("", "v1", "Namespace", "namespaces"),
        ("apps", "v1", "Deployment", "deployments"),
        (
            "admissionregistration.k8s.io",
            "v1",
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
        ),
        (GROUP, "v1beta2", "FloatingIP", "floatingips"),
        (GROUP, "v1beta2", "FloatingIPPool", "floatingippools"),
        (
            GROUP,
            "v1beta2",
            "FloatingIPProjectQuota",
            "floatingipprojectquotas",
        ),
    ];
    let mut all = BTreeMap::new();
    for (cluster, client, kinds) in [
        ("rancher", &bed.rancher, &kinds[..]),
        ("guest", &guest, &kinds[..5]),
    ] {
        for (group, version, kind, plural) in kinds {
            for (name, version) in versions_of(client, (group, version, kind, plural)).await {
                all.insert(format!("{cluster} {kind} {name}"), version);
            }
        }
    }
    all
}

async fn versions_of(
    client: &Kube,
    (group, version, kind, plural): (&str, &str, &str, &str),
) -> Vec<(String, String)> {
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let listed = api.list(&ListParams::default()).await.unwrap();
    let version = |one: &DynamicObject| {
        let name = format!("{}/{}", one.namespace().unwrap_or_default(), one.name_any());
        (name, one.resource_version().unwrap())
    };
    listed.items.iter().map(version).collect()
}

async fn address(bed: &Bed, name: &str) -> String {
    let fip = bed.fips.get(name).await.unwrap();
    fip.status.unwrap_or_default().ip_addr
}

async fn wait_address(bed: &Bed, name: &str) -> String {
    wait_until(&format!("{name} has an address"), DEADLINE, || async {
        match address(bed, name).await {
            found if found.is_empty() => Err(found),
            found => Ok(found),
        }
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_as_the_originals_leave_it_is_taken_over() {
    let duties = Duties {
        clients: true,
        cluster_manager: true,
        api_service: false,
    };
    let mut bed = Bed::prepare(duties, "", "").await;
    let renewing = tokio::spawn(keep_renewing(bed.leases.clone(), API_SERVER));
    bed.scenario.fipd.restart().await.unwrap();
    refused_while_an_original_runs(&bed).await;
    renewing.abort();
    let url = format!("{}/v1", bed.scenario.fipd.url());
    bed.guests_at(&url).await;
    bed.deployment(site::WEBHOOK, 1).await;
    let refused = adopt(&bed.scenario.fipd, &[]).await;
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("scale deployment rancher-fip-manager-webhook --replicas=0"),
        "{refused:?}"
    );
    bed.deployment(site::WEBHOOK, 0).await;

    let report = wait_until("the originals' Leases are fipd's", DEADLINE, || async {
        let report = adopt(&bed.scenario.fipd, &["--dry-run"])
            .await
            .json()
            .unwrap();
        match report["blockers"].as_array().unwrap().as_slice() {
            [] => Ok(report),
            blockers => Err(format!("{blockers:?}")),
        }
    })
    .await
    .unwrap();
    assert_eq!(report["message"], "3 things would be done", "{report:#}");

    let report = adopt(&bed.scenario.fipd, &[]).await.json().unwrap();
    assert_eq!(report["message"], "3 things were done", "{report:#}");
    assert!(
        changes(&report, "adopt")
            .iter()
            .all(|one| one["state"] == "done"),
        "{report:#}"
    );
    let again = adopt(&bed.scenario.fipd, &[]).await.json().unwrap();
    assert_eq!(again["message"], "nothing to do", "{again:#}");
    assert!(changes(&again, "adopt").is_empty());

    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(bed.rancher.clone());
    let webhook = webhooks
        .get_opt("rancher-fip-manager-validator")
        .await
        .unwrap();
    assert!(webhook.is_none());
    audited(&bed).await;
    goes_on(&bed).await;
    tokens_count(&bed).await;
    guest_follows(&bed).await;
}

/// A dry run tells all and changes nothing, and so does the real one.
async fn refused_while_an_original_runs(bed: &Bed) {
    let fipd = &bed.scenario.fipd;
    wait_until("fipd waits for the original", DEADLINE, || async {
        let shown = fipd.cli(["clusters", "show", "rancher"]).await.unwrap();
        match shown.stdout.contains("held by ") {
            true => Ok(()),
            false => Err(shown.stdout),
        }
    })
    .await
    .unwrap();
    let before = versions(bed).await;
    let report = adopt(fipd, &["--dry-run"]).await.json().unwrap();
    let said = looks(&report);
    for expected in [
        "address c-m-guest/fip-error: in state Error: it does not say why",
        "address c-m-guest/fip-lost: in state Error: it does not say why; there is no pool \"gone\"",
        "orphan c-m-guest/fip-ghost: no cluster has it, but its labels name Services: shop/ghost",
        "orphan c-m-gone: cluster c-m-gone is gone; used by c-m-guest/fip-orphan",
        "pool guest--net: 10 addresses, 4 held; its status counts 10.70.0.19, which nobody has",
        "quota p-guest: 4 of 5 in guest--net; its status says 9 of guest--net, 4 are there",
        "secret c-m-guest/rancher-fip-config-p-gone: project p-gone has no quota",
        "leftover ConfigMap rancher-fip-manager/rancher-fip-config: RancherFipApiServerURL is https://old.example.net/v1: guests \
         are sent there, and that is neither [api] advertise nor a name of the Service that api-service keeps",
        "leftover ValidatingWebhookConfiguration rancher-fip-manager-validator: points at the Service of the original: every \
         write of a pool or a FloatingIP fails where nobody answers it",
    ] {
        assert!(
            said.iter().any(|one| one == expected),
            "{expected}\n{said:#?}"
        );
    }
    let service = said.iter().find(|one| {
        one.starts_with("leftover Service rancher-fip-manager/rancher-fip-api-server: ")
    });
    for part in [
        "selector {\"app\":\"rancher-fip-api-server\"}",
        "8443 to 8443 (node port 30001)",
        "leads nowhere once the original is stopped, and with it every Ingress and node port on it",
    ] {
        assert!(service.unwrap().contains(part), "{part}: {service:?}");
    }
    assert_eq!(report["unseen"], json!([]), "{report:#}");
    assert_eq!(report["counts"]["FloatingIPs"], 6);
    let refused = adopt(fipd, &[]).await;
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("original holds Lease")
            && refused.stderr.contains("stop that program first"),
        "{refused:?}"
    );
    assert_eq!(versions(bed).await, before);
    let table = fipd
        .cli(["adopt", "rancher-fip", "--cluster", "rancher", "--dry-run"])
        .await
        .unwrap();
    let table = table.success().unwrap();
    assert!(
        table.contains("change by adopt") && table.contains("blocker"),
        "{table}"
    );
}

async fn audited(bed: &Bed) {
    let log = bed
        .scenario
        .fipd
        .cli(["audit", "-o", "json"])
        .await
        .unwrap();
    let log = log.success().unwrap();
    for part in [
        "taken-over",
        "rancher-fip-manager-validator: deleted",
        "labels removed from 1",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    let secret: String = site::JWT_KEY.lines().nth(1).unwrap().into();
    assert!(!bed.scenario.fipd.log().unwrap().contains(&secret));
}

/// Addresses stay, statuses are exact, quotas hold, and everything can be deleted.
async fn goes_on(bed: &Bed) {
    for (name, expected) in [
        ("fip-first", "10.70.0.10"),
        ("fip-second", "10.70.0.11"),
        ("fip-ghost", "10.70.0.12"),
        ("fip-orphan", "10.70.0.13"),
    ] {
        assert_eq!(address(bed, name).await, expected, "{name}");
    }
    assert_eq!(wait_address(bed, "fip-error").await, "10.70.0.14");
    let ghost = bed.fips.get("fip-ghost").await.unwrap();
    assert_eq!(
        ghost.labels().keys().collect::<Vec<_>>(),
        ["rancher.k8s.binbash.org/project-name"]
    );
    wait_status(bed, "FloatingIPProjectQuota", PROJECT, |status| {
        let pool = &status["fips"][POOL];
        pool["used"] == 5
            && pool["allocated"]["10.70.0.10"] == CLUSTER
            && pool["allocated"]["10.70.0.13"] == "Unassigned"
    })
    .await;
    wait_status(bed, "FloatingIPPool", POOL, |status| {
        let allocated = status["allocated"].as_object().unwrap();
        allocated.len() == 6
            && allocated["10.70.0.16"] == "excluded"
            && !allocated.contains_key("10.70.0.19")
    })
    .await;

    // The quota holds, a raised one lets on, and what is given is nobody else's.
    let client = client(&bed.scenario.fipd);
    let (code, answer) = client.request("third", POOL, "10.70.0.15").await.unwrap();
    assert!(
        code == 500 && answer.to_string().contains("quota exceeded"),
        "{code} {answer}"
    );
    bed.quota(6).await;
    let given = wait_until("the raised quota counts", DEADLINE, || async {
        match client.request("third", POOL, "10.70.0.15").await? {
            (200, answer) => Ok(answer),
            (code, answer) => Err(format!("{code} {answer}")),
        }
    })
    .await
    .unwrap();
    assert_eq!(given["ipaddr"], "10.70.0.15");
    let force = json!({ "metadata": { "annotations": { "fipd.io/force-delete": "true" } } });
    for name in ["fip-lost", "fip-second"] {
        // A Service uses the address of the second one, and keeps it.
        bed.fips
            .patch(name, &PatchParams::default(), &Patch::Merge(&force))
            .await
            .unwrap();
        bed.fips
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        wait_until(&format!("{name} is gone"), DEADLINE, || async {
            match bed.fips.get_opt(name).await.unwrap() {
                None => Ok(()),
                Some(_) => Err("it is there"),
            }
        })
        .await
        .unwrap();
    }
}

async fn wait_status(bed: &Bed, kind: &str, name: &str, so: impl Fn(&Value) -> bool) {
    let gvk = GroupVersionKind::gvk(GROUP, "v1beta2", kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &format!("{}s", kind.to_lowercase()));
    let api: Api<DynamicObject> = Api::all_with(bed.rancher.clone(), &resource);
    wait_until(
        &format!("the status of {kind} {name}"),
        DEADLINE,
        || async {
            let found = api.get(name).await.unwrap();
            match &found.data["status"] {
                status if so(status) => Ok(()),
                status => Err(status.to_string()),
            }
        },
    )
    .await
    .unwrap();
}

/// A token that the original signed is as good as one of fipd.
async fn tokens_count(bed: &Bed) {
    let client = client(&bed.scenario.fipd);
    let (code, answer) = client.list().await.unwrap();
    assert_eq!(code, 200, "{answer}");
    let body = json!({
        "clientsecret": client.secret, "cluster": CLUSTER, "project": PROJECT, "floatingippool": POOL,
    });
    let body = body.to_string();
    let token = token::signed(site::JWT_KEY, &format!("client-{CLUSTER}"));
    let listed = client
        .send(Method::POST, "/v1/fip/list", Some(&token), &body)
        .await;
    assert_eq!(listed.unwrap(), (200, answer));
    let forged = format!("{}x", &token[..token.len() - 1]);
    let refused = client
        .send(Method::POST, "/v1/fip/list", Some(&forged), &body)
        .await;
    assert_eq!(refused.unwrap().0, 401);
}

/// What the original wrote once is brought in step; the site's CA stays beside fipd's.
async fn guest_follows(bed: &Bed) {
    let guest = bed.scenario.client("guest").await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(guest, APP);
    let url = format!("{}/v1", bed.scenario.fipd.url());
    let value = |secret: Option<Secret>, key: &str| {
        let data = secret.and_then(|secret| secret.data).unwrap_or_default();
        data.get(key)
            .map(|value| String::from_utf8(value.0.clone()).unwrap())
    };
    let name = format!("rancher-fip-config-{PROJECT}");
    wait_until("the guest asks fipd", DEADLINE, || async {
        match value(secrets.get_opt(&name).await.unwrap(), "apiUrl") {
            Some(found) if found == url => Ok(()),
            found => Err(format!("{found:?}")),
        }
    })
    .await
    .unwrap();
    let project = secrets.get_opt(&name).await.unwrap();
    assert_eq!(value(project, "clientSecret"), Some(secret(PROJECT)));
    let own = std::fs::read_to_string(bed.scenario.fipd.data_dir().join("tls/ca.crt")).unwrap();
    let ca = value(secrets.get_opt("cacerts").await.unwrap(), "ca.crt").unwrap();
    assert_eq!(ca, format!("{SITE_CA}\n{}\n", own.trim()));
}

/// The name by which pods, Ingresses and node ports reach the API leads to fipd, and goes on to.
#[tokio::test(flavor = "multi_thread")]
async fn the_in_cluster_name_of_the_original_api_leads_to_fipd() {
    let plain = free_port().unwrap();
    let listener =
        format!("[[listener]]\naddress = \"0.0.0.0:{plain}\"\ntls = false\nserve = [\"fip-v1\"]\n");
    let url = "https://192.0.2.7";
    let duties = Duties {
        api_service: true,
        ..Duties::default()
    };
    let mut bed = Bed::prepare(duties, url, &listener).await;
    let services: Api<Service> = Api::namespaced(bed.rancher.clone(), APP);
    let slices: Api<EndpointSlice> = Api::namespaced(bed.rancher.clone(), APP);
    // Nobody is waited for.
    bed.renew("rancher-fip-manager-lock", "").await;
    // As Kubernetes leaves it while an original's pod runs.
    bed.apply(slice(
        "rancher-fip-api-server-x7k2f",
        "endpointslice-controller.k8s.io",
    ))
    .await;
    bed.apply(slice("rancher-fip-api-server-admin", "somebody"))
        .await;
    bed.scenario.fipd.restart().await.unwrap();
    let names = || async {
        let listed = slices.list(&ListParams::default()).await.unwrap();
        let label = "kubernetes.io/service-name";
        let ours = listed
            .items
            .iter()
            .filter(|one| one.labels().get(label).is_some_and(|of| of == API_SERVICE));
        ours.map(|one| one.name_any()).collect::<Vec<_>>()
    };
    let expected = [
        "rancher-fip-api-server-admin",
        "rancher-fip-api-server-fipd-ipv4",
    ];
    wait_until("the name leads to fipd", DEADLINE, || async {
        match names().await {
            found if found == expected => Ok(()),
            found => Err(format!("{found:?}")),
        }
    })
    .await
    .unwrap();
    let service = services.get(API_SERVICE).await.unwrap();
    let taken_off = service.annotations()["fipd.io/selector"].clone();
    assert_eq!(taken_off, json!({ "app": API_SERVICE }).to_string());
    let spec = service.spec.unwrap();
    assert_eq!(spec.selector, None);
    told(
        &bed,
        "it leads also where others say: EndpointSlice rancher-fip-api-server-admin",
    )
    .await;
    let report = adopt(&bed.scenario.fipd, &["--dry-run"])
        .await
        .json()
        .unwrap();
    assert!(
        looks(&report)
            .iter()
            .any(|one| one.contains("others say: EndpointSlice rancher-fip-api-server-admin")),
        "{report:#}"
    );
    let ports = json!(spec.ports);
    assert_eq!(
        (&ports[0]["name"], &ports[0]["targetPort"]),
        (&json!("http"), &json!(plain))
    );
    assert_eq!(
        (
            &ports[1]["name"],
            &ports[1]["targetPort"],
            &ports[1]["nodePort"]
        ),
        (&json!("tls"), &json!(443), &json!(30001))
    );
    let found = slices.get("rancher-fip-api-server-fipd-ipv4").await;
    let slice = json!(found.unwrap());
    assert_eq!(slice["endpoints"][0]["addresses"], json!(["192.0.2.7"]));
    let port = |name: &str, port: u16| json!({ "name": name, "port": port, "protocol": "TCP" });
    assert_eq!(
        slice["ports"],
        json!([port("http", plain), port("tls", 443)])
    );

    let params = DeleteParams::default();
    slices.delete(expected[0], &params).await.unwrap();
    let expected = &expected[1..];
    wait_until("all is well", DEADLINE, || async {
        match trouble(&bed).await {
            said if said == "null" => Ok(()),
            said => Err(said),
        }
    })
    .await
    .unwrap();

    // An Ingress that leads the URL of fipd to the Service: nothing is changed while it is there.
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": "api", "namespace": APP },
        "spec": { "defaultBackend": { "service": { "name": API_SERVICE, "port": { "number": 8443 } } } },
    });
    bed.apply(ingress.clone()).await;
    told(
        &bed,
        "Ingress rancher-fip-manager/api leads 192.0.2.7 to it",
    )
    .await;
    let report = adopt(&bed.scenario.fipd, &["--dry-run"])
        .await
        .json()
        .unwrap();
    let said = looks(&report);
    assert!(
        said.iter()
            .any(|one| one.contains("leads back to the Service")),
        "{said:#?}"
    );
    let ingresses: Api<Ingress> = Api::namespaced(bed.rancher.clone(), APP);
    ingresses.delete("api", &params).await.unwrap();

    // The certificate has the name.
    let ca = std::fs::read(bed.scenario.fipd.data_dir().join("tls/ca.crt")).unwrap();
    let name = format!("{API_SERVICE}.{APP}.svc");
    token::trusted(&ca, bed.scenario.fipd.port(), &name).await;

    // Edited, it is put right.
    let selector = json!({ "spec": { "selector": { "app": "x" } } });
    let params = PatchParams::default();
    services
        .patch(API_SERVICE, &params, &Patch::Merge(&selector))
        .await
        .unwrap();
    slices
        .delete(expected[0], &DeleteParams::default())
        .await
        .unwrap();
    wait_until("it is put right", DEADLINE, || async {
        let spec = services.get(API_SERVICE).await.unwrap().spec.unwrap();
        match (spec.selector, names().await) {
            (None, found) if found == expected => Ok(()),
            (selector, found) => Err(format!("{selector:?} {found:?}")),
        }
    })
    .await
    .unwrap();
}

/// What the state of the cluster says is not as it is to be.
async fn trouble(bed: &Bed) -> String {
    let shown = ["clusters", "show", "rancher", "-o", "json"];
    let shown = bed.scenario.fipd.cli(shown).await.unwrap();
    shown.json().unwrap()["last_error"].to_string()
}

/// Waits until trouble with the Service is told in the state of the cluster, as an Event of the Service and by a metric.
async fn told(bed: &Bed, what: &str) {
    wait_until(what, DEADLINE, || async {
        match trouble(bed).await {
            said if said.contains("api-service: ") && said.contains(what) => Ok(()),
            said => Err(said),
        }
    })
    .await
    .unwrap();
    let metrics = bed.scenario.fipd.get("/metrics").await.unwrap().body;
    let expected = "fipd_cluster_trouble{cluster=\"rancher\",part=\"api-service\"} 1";
    assert!(metrics.contains(expected), "{metrics}");
    let events: Api<Event> = Api::namespaced(bed.rancher.clone(), APP);
    wait_until("an Event of it", DEADLINE, || async {
        let listed = events.list(&ListParams::default()).await.unwrap();
        let about = |one: &&Event| {
            let object = one.regarding.as_ref();
            object.is_some_and(|object| object.name.as_deref() == Some(API_SERVICE))
        };
        let notes = listed.items.iter().filter(about).map(|one| &one.note);
        match notes.flatten().any(|note| note.contains(what)) {
            true => Ok(()),
            false => Err("none"),
        }
    })
    .await
    .unwrap();
}

fn slice(name: &str, keeper: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": { "name": name, "namespace": APP, "labels": {
            "kubernetes.io/service-name": API_SERVICE, "endpointslice.kubernetes.io/managed-by": keeper,
        } },
        "addressType": "IPv4", "endpoints": [{ "addresses": ["192.0.2.99"] }],
        "ports": [{ "name": "tls", "port": 8443, "protocol": "TCP" }],
    })
}
