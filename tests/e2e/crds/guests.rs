//! Ranges and floating IPs of guest clusters: every object of the original stays, and its programs can go on writing.

use kube::Client;
use serde_json::{Value, json};

use super::{NAMESPACE, cluster, manifests};

const OCTET: &str = "([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])";

/// A definition as kube-fip-operator has it: patterns and nothing else.
fn original(kind: &str, scope: &str, fields: &Value) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.kubefip.k8s.binbash.org") },
        "spec": {
            "group": "kubefip.k8s.binbash.org", "scope": scope,
            "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "properties": fields },
                } } },
            }],
        },
    })
}

fn path(kind: &str, name: &str) -> String {
    match kind {
        "FloatingIP" => {
            format!("/apis/kubefip.k8s.binbash.org/v1/namespaces/{NAMESPACE}/floatingips/{name}")
        }
        _ => format!("/apis/kubefip.k8s.binbash.org/v1/floatingipranges/{name}"),
    }
}

async fn send(
    client: &Client,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, String> {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", kind).body(body).unwrap();
    let answer = client.request::<Value>(request).await;
    answer.map_err(|error| error.to_string())
}

/// With what the original's clients send of a status.
fn object(kind: &str, name: &str, rest: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "kubefip.k8s.binbash.org/v1", "kind": kind, "metadata": { "name": name }, "status": { "Name": "" },
    });
    let rest = rest.as_object().unwrap().clone();
    object.as_object_mut().unwrap().extend(rest);
    object
}

async fn create(client: &Client, kind: &str, name: &str, rest: &Value) -> Result<Value, String> {
    let all = path(kind, "");
    let object = object(kind, name, rest);
    send(client, "POST", all.trim_end_matches('/'), Some(&object)).await
}

#[tokio::test]
async fn objects_and_writes_of_kube_fip_operator_go_on() {
    let (plane, client) = cluster("guests").await;
    let address = format!(r"^({OCTET}\.){{3}}{OCTET}$");
    let range = format!(r"^({OCTET}\.){{3}}{OCTET}/\d{{1,2}}$");
    let fields = json!({ "ipaddress": { "type": "string", "pattern": address } });
    let fip = original("FloatingIP", "Namespaced", &fields);
    let fields = json!({
        "region": { "type": "string" }, "iprange": { "type": "string", "pattern": range },
    });
    let range = original("FloatingIPRange", "Cluster", &fields);
    plane
        .install_crds(&format!("{fip}\n---\n{range}\n"))
        .await
        .unwrap();
    let objects = [
        ("FloatingIPRange", "bare", json!({})),
        ("FloatingIPRange", "empty", json!({ "spec": {} })),
        (
            "FloatingIPRange",
            "usual",
            json!({ "spec": { "iprange": "10.135.10.192/26", "region": "west" } }),
        ),
        (
            "FloatingIPRange",
            "odd",
            json!({ "spec": { "iprange": "0.0.0.0/99" } }),
        ),
        ("FloatingIP", "bare", json!({})),
        ("FloatingIP", "empty", json!({ "spec": {} })),
        (
            "FloatingIP",
            "usual",
            json!({ "spec": { "ipaddress": "255.255.255.255" } }),
        ),
    ];
    let mut before = Vec::new();
    for (kind, name, rest) in &objects {
        before.push(create(&client, kind, name, rest).await.unwrap());
    }

    plane.install_crds(&manifests()).await.unwrap();
    for ((kind, name, rest), before) in objects.iter().zip(before) {
        let now = send(&client, "GET", &path(kind, name), None).await.unwrap();
        assert_eq!(now, before, "{kind} {name}");
        let new = create(&client, kind, &format!("new-{name}"), rest).await;
        let new = new.unwrap();
        assert_eq!(
            (&new["spec"], &new["status"]),
            (&rest["spec"], &Value::Null)
        );
    }

    // A program that knows no status neither reads nor loses one.
    let at = path("FloatingIP", "empty");
    let status = json!({ "status": { "address": "10.0.0.5", "prefixLength": 24 } });
    let shown = send(&client, "PATCH", &format!("{at}/status"), Some(&status)).await;
    let mut shown = shown.unwrap();
    let generation = shown["metadata"]["generation"].clone();
    assert_eq!(generation, 1, "a status is no edit");
    shown["spec"]["ipaddress"] = json!("10.0.0.5");
    shown["status"] = json!({ "Name": "" });
    let written = send(&client, "PUT", &at, Some(&shown)).await.unwrap();
    assert_eq!(written["status"], status["status"]);
    assert_eq!(written["metadata"]["generation"], 2);

    // What is fipd's own in a range.
    let six = json!({ "spec": {
        "iprange": "2001:db8::/64", "gateway": "2001:db8::1", "exclusions": ["2001:db8::10-2001:db8::20"],
        "quarantineSeconds": 60, "stickySeconds": 3600,
    } });
    let made = create(&client, "FloatingIPRange", "six", &six).await;
    assert_eq!(made.unwrap()["spec"], six["spec"]);
    for (kind, spec) in [
        ("FloatingIPRange", json!({ "iprange": "10.0.0.0" })),
        (
            "FloatingIPRange",
            json!({ "iprange": "10.0.0.0/24", "quarantineSeconds": -1 }),
        ),
        (
            "FloatingIPRange",
            json!({ "iprange": "10.0.0.0/24", "exclusions": ["any"] }),
        ),
        ("FloatingIP", json!({ "ipaddress": "any" })),
    ] {
        let refused = create(&client, kind, "wrong", &json!({ "spec": spec })).await;
        assert!(refused.is_err(), "{kind} {spec}: {refused:?}");
    }
}
