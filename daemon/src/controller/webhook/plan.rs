//! The ValidatingWebhookConfiguration that a cluster is to have for a system, and what is to be done about the one it has.

use fipd_crds::labels::{FIELD_MANAGER, MANAGED_BY};
use serde_json::{Value, json};

use crate::{
    admission::{Asks, ReviewedKind},
    controller::{
        endpoint::client_config, kind::VALIDATING_WEBHOOK_CONFIGURATION, owned::is_marked,
    },
};

/// The condition that leaves fipd's own writes out.
const OWN_WRITES: &str = "fipd.io/not-fipd";
/// What the names of fipd's conditions begin with.
const OWN_CONDITIONS: &str = "fipd.io/";

/// How the API server is to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedWebhook {
    pub asks: &'static Asks,
    /// The URL of fipd, without a slash at its end.
    pub base: String,
    /// As it is configured.
    pub cluster: String,
    /// PEM; `None`: the certificate is of a CA that the API server's system knows.
    pub ca: Option<String>,
    /// What the API server calls fipd, whose own writes are not asked about; `None`: not known.
    pub user: Option<String>,
    pub seconds: u8,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Nothing,
    Apply(Value),
    /// The object with this uid, which is fipd's.
    Delete(String),
}

/// What turns the object that was found into the one that is wanted.
pub fn step(wanted: Option<&WantedWebhook>, found: Option<&Value>) -> Step {
    match (wanted, found) {
        (None, Some(found)) if is_marked(found) => {
            Step::Delete(text(found, "/metadata/uid").to_owned())
        }
        (None, _) => Step::Nothing,
        (Some(wanted), found) => {
            let mut object = configuration(wanted);
            if let Some(found) = found {
                keep_conditions(&mut object, found);
            }
            match found {
                Some(found) if is_marked(found) && is_so(found, &object) => Step::Nothing,
                Some(_) | None => Step::Apply(object),
            }
        }
    }
}

/// The whole object.
pub fn configuration(wanted: &WantedWebhook) -> Value {
    let kinds = wanted.asks.kinds.iter();
    let webhooks: Vec<Value> = kinds.map(|kind| webhook(wanted, kind)).collect();
    let of = VALIDATING_WEBHOOK_CONFIGURATION;
    json!({
        "apiVersion": of.api_version(), "kind": of.kind,
        "metadata": { "name": wanted.asks.name, "labels": { MANAGED_BY: FIELD_MANAGER } },
        "webhooks": webhooks,
    })
}

fn webhook(wanted: &WantedWebhook, kind: &ReviewedKind) -> Value {
    let url = format!("{}/admission/{}/{}", wanted.base, wanted.cluster, kind.path);
    let scope = match kind.namespaced {
        true => "Namespaced",
        false => "Cluster",
    };
    let own = wanted.user.as_deref().map(own_writes).into_iter();
    let of_kind = kind.conditions.iter();
    let of_kind = of_kind.map(|one| json!({ "name": one.name, "expression": one.expression }));
    json!({
        "name": kind.webhook,
        "admissionReviewVersions": ["v1"],
        "clientConfig": client_config(&url, wanted.ca.as_deref().unwrap_or_default()),
        // "Fail" needs two serving hosts, which cannot exist yet.
        "failurePolicy": "Ignore",
        "matchConditions": own.chain(of_kind).collect::<Vec<_>>(),
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "rules": [{
            "apiGroups": [kind.group], "apiVersions": wanted.asks.versions, "operations": kind.operations,
            "resources": [kind.plural], "scope": scope,
        }],
        "sideEffects": "None",
        "timeoutSeconds": wanted.seconds,
    })
}

/// Leaves fipd's own writes out, so that they do not wait for fipd.
fn own_writes(user: &str) -> Value {
    let user = Value::from(user);
    let manager = Value::from(FIELD_MANAGER);
    let managed = format!(
        "has(request.options) && has(request.options.fieldManager) && request.options.fieldManager == {manager}"
    );
    // Finalizers go by JSON Patch, which names no field manager.
    let dying = r#"request.operation == "UPDATE" && has(object.metadata.deletionTimestamp)"#;
    // fipd deletes by uid, which nobody types.
    let deletes = r#"request.operation == "DELETE" && has(request.options) && has(request.options.preconditions) && has(request.options.preconditions.uid)"#;
    let expression = format!(
        "!(request.userInfo.username == {user} && (({managed}) || ({dying}) || ({deletes})))"
    );
    json!({ "name": OWN_WRITES, "expression": expression })
}

fn conditions(webhook: &Value) -> impl Iterator<Item = &Value> {
    let conditions = webhook.get("matchConditions").and_then(Value::as_array);
    conditions.into_iter().flatten()
}

/// Adds the conditions that an admin has put on the webhooks that were found; fipd's own are not among them.
fn keep_conditions(object: &mut Value, found: &Value) {
    let found = found.get("webhooks").and_then(Value::as_array);
    let Some(webhooks) = object.get_mut("webhooks").and_then(Value::as_array_mut) else {
        return;
    };
    for webhook in webhooks {
        let same = |other: &&Value| other.get("name") == webhook.get("name");
        let theirs = found.into_iter().flatten().find(same);
        let theirs = theirs.into_iter().flat_map(conditions);
        let theirs = theirs.filter(|one| !text(one, "/name").starts_with(OWN_CONDITIONS));
        let all: Vec<_> = conditions(webhook).chain(theirs).cloned().collect();
        webhook["matchConditions"] = json!(all);
    }
}

/// What makes the webhooks of the object that was found exactly these, also where others added to them.
pub fn repair(found: &Value, object: &Value) -> Value {
    json!({
        "metadata": {
            "uid": found.pointer("/metadata/uid"), "resourceVersion": found.pointer("/metadata/resourceVersion"),
        },
        "webhooks": object.get("webhooks"),
    })
}

/// Whether the webhooks are as they are to be. What an API server adds by itself does not count.
pub fn is_so(found: &Value, object: &Value) -> bool {
    has(found.get("webhooks"), object.get("webhooks"))
}

fn has(found: Option<&Value>, wanted: Option<&Value>) -> bool {
    match (found, wanted) {
        (Some(Value::Object(found)), Some(Value::Object(wanted))) if wanted.is_empty() => {
            found.is_empty()
        }
        (Some(Value::Object(found)), Some(Value::Object(wanted))) => {
            // A CA that is to be there no more would keep the one in its place from being believed.
            let ca = found.contains_key("caBundle") == wanted.contains_key("caBundle");
            let mut wanted = wanted.iter();
            ca && wanted.all(|(key, value)| has(found.get(key), Some(value)))
        }
        (Some(Value::Array(found)), Some(Value::Array(wanted))) => {
            let mut pairs = found.iter().zip(wanted);
            found.len() == wanted.len() && pairs.all(|(one, other)| has(Some(one), Some(other)))
        }
        (None, Some(Value::Object(wanted))) => wanted.is_empty(),
        (None, Some(Value::Array(wanted))) => wanted.is_empty(),
        (found, wanted) => found == wanted,
    }
}

/// The certificates of a PEM file, which everybody who may read the configuration will see.
pub fn certificates(text: &str) -> Result<String, &'static str> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    if text.contains("PRIVATE KEY-----") {
        return Err("there is a private key in it; only certificates belong there");
    }
    let mut found = String::new();
    for part in text.split(BEGIN).skip(1) {
        let Some((body, _)) = part.split_once(END) else {
            return Err("a certificate in it has no end; PEM is allowed");
        };
        found.extend([BEGIN, body, END, "\n"]);
    }
    if found.is_empty() {
        return Err("no certificate in it; PEM is allowed");
    }
    Ok(found)
}

/// What is to be said of the original's configuration, if it is there and asks a Service.
pub fn original(asks: &Asks, found: &Value, cluster: &str) -> Option<String> {
    let original = asks.original.as_ref()?;
    let webhooks = found.get("webhooks")?.as_array()?;
    let asking = |webhook: &&Value| webhook.pointer("/clientConfig/service").is_some();
    let first = webhooks.iter().find(asking)?;
    let service = format!(
        "{}/{}",
        text(first, "/clientConfig/service/namespace"),
        text(first, "/clientConfig/service/name")
    );
    Some(format!(
        "{} asks the Service {service} of the original webhook, with failurePolicy {}: where that is Fail \
         and the Service does not answer, nobody can write {}. fipd answers through {}; remove \
         the other with `fipd adopt {} --cluster {cluster}`",
        original.name,
        first
            .get("failurePolicy")
            .and_then(Value::as_str)
            .unwrap_or("Fail"),
        original.kinds,
        asks.name,
        asks.system,
    ))
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    let found = object.pointer(path).and_then(Value::as_str);
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        admission::MatchCondition,
        systems::rancher_fip::{self, admission::ASKS},
    };

    fn wanted() -> WantedWebhook {
        WantedWebhook {
            asks: &ASKS,
            base: "https://fipd.example.net:8443".into(),
            cluster: "rancher".into(),
            ca: Some("PEM".into()),
            user: Some("fipd".into()),
            seconds: 3,
        }
    }

    /// As an API server gives it back.
    fn stored() -> Value {
        let mut object = configuration(&wanted());
        object["metadata"]["uid"] = json!("u-1");
        object["metadata"]["resourceVersion"] = json!("7");
        object["webhooks"][0]["madeLater"] = json!(true);
        object
    }

    #[test]
    fn each_kind_is_asked_about_at_the_path_of_its_cluster() {
        let object = configuration(&wanted());
        let webhooks = object["webhooks"].as_array().unwrap();
        let urls: Vec<_> = webhooks
            .iter()
            .map(|one| one["clientConfig"]["url"].clone())
            .collect();
        let base = "https://fipd.example.net:8443/admission/rancher";
        assert_eq!(
            urls,
            [
                json!(format!("{base}/validate-floatingip")),
                json!(format!("{base}/validate-floatingippool")),
                json!(format!("{base}/validate-floatingipprojectquota")),
            ]
        );
        for webhook in webhooks {
            assert_eq!(webhook["failurePolicy"], "Ignore");
            assert_eq!(webhook["timeoutSeconds"], 3);
            assert_eq!(webhook["clientConfig"]["caBundle"], "UEVN");
        }
        let operations: Vec<_> = webhooks
            .iter()
            .map(|one| one["rules"][0]["operations"].clone())
            .collect();
        let guarded = json!(["CREATE", "UPDATE", "DELETE"]);
        let others = json!(["CREATE", "UPDATE"]);
        assert_eq!(operations, [guarded.clone(), guarded, others]);
        assert_eq!(webhooks[0]["rules"][0]["scope"], "Namespaced");
        let system = configuration(&WantedWebhook {
            ca: None,
            ..wanted()
        });
        assert_eq!(system["webhooks"][0]["clientConfig"].get("caBundle"), None);
    }

    #[test]
    fn a_ca_that_is_not_wanted_any_more_goes() {
        let public = WantedWebhook {
            ca: None,
            ..wanted()
        };
        let object = configuration(&public);
        assert_eq!(
            step(Some(&public), Some(&stored())),
            Step::Apply(object.clone())
        );
        assert_eq!(
            step(Some(&wanted()), Some(&object)),
            Step::Apply(configuration(&wanted()))
        );
    }

    #[test]
    fn only_certificates_are_published() {
        let one = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
        let two = format!("subject=a\n{one}some text\n{one}");
        assert_eq!(certificates(&two), Ok(one.repeat(2)));
        let key = "-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----\n";
        for wrong in [format!("{one}{key}"), "PEM".to_owned(), String::new()] {
            assert!(certificates(&wrong).is_err(), "{wrong}");
        }
        assert!(certificates(one.split_at(40).0).is_err());
    }

    #[test]
    fn only_what_differs_is_written() {
        let object = configuration(&wanted());
        let wanted = wanted();
        assert_eq!(step(Some(&wanted), None), Step::Apply(object.clone()));
        assert_eq!(step(Some(&wanted), Some(&stored())), Step::Nothing);
        let edits: [(&str, Value); 8] = [
            ("/webhooks/0/failurePolicy", json!("Fail")),
            (
                "/webhooks/1/clientConfig",
                json!({ "url": "https://elsewhere" }),
            ),
            ("/webhooks/1/rules/0/operations", json!(["CREATE"])),
            (
                "/webhooks/2/namespaceSelector",
                json!({ "matchLabels": { "a": "b" } }),
            ),
            ("/webhooks/2/matchConditions", json!([])),
            ("/webhooks", json!([])),
            ("/metadata/labels", json!({})),
            ("/webhooks/0/timeoutSeconds", json!(30)),
        ];
        for (path, value) in edits {
            let mut edited = stored();
            match (edited.pointer_mut(path), path.rsplit_once('/')) {
                (Some(place), _) => *place = value,
                (None, Some((parent, key))) => edited.pointer_mut(parent).unwrap()[key] = value,
                (None, None) => unreachable!(),
            }
            assert_eq!(
                step(Some(&wanted), Some(&edited)),
                Step::Apply(object.clone()),
                "{path}"
            );
        }
        let moved = WantedWebhook {
            base: "https://b".into(),
            ..wanted.clone()
        };
        assert!(matches!(
            step(Some(&moved), Some(&stored())),
            Step::Apply(_)
        ));
        let rotated = WantedWebhook {
            ca: Some("PEM and another".into()),
            ..wanted
        };
        assert!(matches!(
            step(Some(&rotated), Some(&stored())),
            Step::Apply(_)
        ));
    }

    #[test]
    fn an_admins_conditions_stay_and_fipds_own_follows_its_user() {
        let mut edited = stored();
        let theirs = json!({ "name": "x", "expression": "request.name != 'a'" });
        let own = edited["webhooks"][0]["matchConditions"][0].clone();
        edited["webhooks"][0]["matchConditions"] = json!([own, theirs]);
        assert_eq!(step(Some(&wanted()), Some(&edited)), Step::Nothing);
        edited["webhooks"][0]["failurePolicy"] = json!("Fail");
        let Step::Apply(object) = step(Some(&wanted()), Some(&edited)) else {
            panic!("it is repaired")
        };
        assert_eq!(object["webhooks"][0]["failurePolicy"], "Ignore");
        assert_eq!(
            object["webhooks"][0]["matchConditions"],
            json!([own, theirs])
        );
        let renamed = WantedWebhook {
            user: Some("fipd \"2\"".into()),
            ..wanted()
        };
        let Step::Apply(object) = step(Some(&renamed), Some(&edited)) else {
            panic!("another user")
        };
        let conditions = object["webhooks"][0]["matchConditions"].as_array().unwrap();
        let expression = conditions[0]["expression"].as_str().unwrap();
        assert!(expression.contains(r#"== "fipd \"2\"" &&"#), "{expression}");
        assert_eq!(conditions[1], theirs);
        let unknown = WantedWebhook {
            user: None,
            ..wanted()
        };
        let Step::Apply(object) = step(Some(&unknown), Some(&edited)) else {
            panic!("no user")
        };
        assert_eq!(object["webhooks"][0]["matchConditions"], json!([theirs]));
    }

    #[test]
    fn conditions_of_a_kind_come_after_fipds_own_and_none_stays_that_is_not_wanted() {
        const FLAT: &[MatchCondition] = &[MatchCondition {
            name: "fipd.io/flat",
            expression: "has(object.spec)",
        }];
        const KIND: ReviewedKind = ReviewedKind {
            conditions: FLAT,
            ..rancher_fip::admission::POOL
        };
        let named = |object: &Value| -> Vec<Value> {
            conditions(object).map(|one| one["name"].clone()).collect()
        };
        let mut object = json!({ "webhooks": [webhook(&wanted(), &KIND)] });
        assert_eq!(named(&object["webhooks"][0]), [OWN_WRITES, "fipd.io/flat"]);
        let mut found = object.clone();
        let others = [("fipd.io/former", "true"), ("x", "true")];
        let others = others.map(|(name, text)| json!({ "name": name, "expression": text }));
        found["webhooks"][0]["matchConditions"] = json!(others);
        keep_conditions(&mut object, &found);
        assert_eq!(
            named(&object["webhooks"][0]),
            [OWN_WRITES, "fipd.io/flat", "x"]
        );
    }

    #[test]
    fn a_repair_takes_what_others_added() {
        let mut edited = stored();
        edited["webhooks"][0]["rules"][0]["operations"] = json!(["*"]);
        let object = configuration(&wanted());
        let repair = repair(&edited, &object);
        assert_eq!(repair["webhooks"], object["webhooks"]);
        assert_eq!(
            repair["metadata"],
            json!({ "uid": "u-1", "resourceVersion": "7" })
        );
    }

    #[test]
    fn only_what_is_fipds_is_deleted() {
        assert_eq!(step(None, Some(&stored())), Step::Delete("u-1".into()));
        let mut other = stored();
        other["metadata"]["labels"] = json!({});
        assert_eq!(step(None, Some(&other)), Step::Nothing);
        assert_eq!(step(None, None), Step::Nothing);
    }

    #[test]
    fn the_originals_configuration_is_spoken_of_while_it_asks_a_service() {
        let service = json!({ "name": "webhook", "namespace": "rancher-fip-manager" });
        let found = json!({ "webhooks": [{ "clientConfig": { "service": service }, "failurePolicy": "Fail" }] });
        let text = original(&ASKS, &found, "prod").unwrap();
        assert!(
            text.contains("rancher-fip-manager/webhook")
                && text.contains("failurePolicy Fail")
                && text.ends_with("`fipd adopt rancher-fip --cluster prod`"),
            "{text}"
        );
        let other = json!({ "webhooks": [{ "clientConfig": { "url": "https://a" } }] });
        assert_eq!(original(&ASKS, &other, "prod"), None);
    }
}
