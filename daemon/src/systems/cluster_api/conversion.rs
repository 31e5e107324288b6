//! Pools of v1alpha1 for whoever still asks for them: the API server has them converted at a path of the hooks, by a
//! `ConversionReview` of `apiextensions.k8s.io/v1`.

pub mod definition;

use fipd_crds::cluster_api::{
    InClusterIPPoolSpec, InClusterIPPoolV1Alpha1Spec, to_v1alpha1, to_v1alpha2,
};
use serde_json::{Map, Value, json};

use super::names::{IPAM_GROUP, POOL_VERSION};

/// Where it is asked, below the path of the hooks of a cluster.
pub const PATH: &str = "pools/convert";
/// The version without `excludedAddresses` and the like.
pub const OLDER: &str = "v1alpha1";
/// Keeps the older form in an object of the newer version, as the in-cluster provider does.
const OLDER_FORM: &str = "cluster.x-k8s.io/conversion-data";
/// Keeps the fields that the older version lacks in an object of that.
const NEWER_FIELDS: &str = "fipd.io/conversion-data";
/// Fields of the newer version that the older one has too.
const COMMON: [&str; 3] = ["addresses", "gateway", "prefix"];
/// Fields of the older version alone.
pub const ONLY_OLDER: [&str; 3] = ["subnet", "start", "end"];

/// The answer to a review. Of several objects all are converted or none.
pub fn answer(body: &[u8]) -> Value {
    let review: Value = serde_json::from_slice(body).unwrap_or_default();
    let request = &review["request"];
    let wanted = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let converted = match request["objects"].as_array() {
        Some(objects) => objects.iter().map(|one| convert(one, wanted)).collect(),
        None => Err("request.objects: missing; send a ConversionReview".to_owned()),
    };
    let (objects, result): (Vec<Value>, Value) = match converted {
        Ok(objects) => (objects, json!({ "status": "Success" })),
        Err(why) => (
            Vec::new(),
            json!({ "status": "Failure", "message": why, "reason": "BadRequest", "code": 400 }),
        ),
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "response": { "uid": request["uid"].as_str(), "convertedObjects": objects, "result": result },
    })
}

/// One pool in another version. Everything but its specification and two annotations stays.
fn convert(object: &Value, wanted: &str) -> Result<Value, String> {
    let Some(mut object) = object.as_object().cloned() else {
        return Err("request.objects: one is no object".to_owned());
    };
    let from = object.get("apiVersion").and_then(Value::as_str);
    let from = from.unwrap_or_default().to_owned();
    let [older, newer] = [OLDER, POOL_VERSION].map(|version| format!("{IPAM_GROUP}/{version}"));
    let spec = object.get("spec").cloned().unwrap_or_else(|| json!({}));
    let mut metadata = take_map(&mut object, "metadata");
    let mut annotations = take_map(&mut metadata, "annotations");
    let spec = if from == older && wanted == newer {
        to_newer(&spec, &mut annotations)?
    } else if from == newer && wanted == older {
        to_older(&spec, &mut annotations)
    } else {
        let allowed = format!("{older} and {newer} are converted to each other");
        return Err(format!(
            "request.desiredAPIVersion: {wanted:?} is not allowed for {from:?}: {allowed}"
        ));
    };
    object.insert("apiVersion".to_owned(), json!(wanted));
    object.insert("spec".to_owned(), spec);
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), annotations.into());
    }
    object.insert("metadata".to_owned(), metadata.into());
    Ok(object.into())
}

/// What is in a field, which is empty from then on.
fn take_map(parent: &mut Map<String, Value>, field: &str) -> Map<String, Value> {
    let value = parent.remove(field);
    let map = value.as_ref().and_then(Value::as_object);
    map.cloned().unwrap_or_default()
}

fn to_newer(spec: &Value, annotations: &mut Map<String, Value>) -> Result<Value, String> {
    let old: InClusterIPPoolV1Alpha1Spec =
        serde_json::from_value(spec.clone()).map_err(|error| format!("spec: {error}"))?;
    let newer = serde_json::to_value(to_v1alpha2(&old)?);
    let mut newer = newer.map_err(|error| format!("spec: {error}"))?;
    let kept = annotations.remove(NEWER_FIELDS);
    let kept = kept.as_ref().and_then(Value::as_str);
    let kept: Option<Map<String, Value>> = kept.and_then(|text| serde_json::from_str(text).ok());
    for (field, value) in kept.into_iter().flatten() {
        if !COMMON.contains(&&*field) {
            newer[field] = value;
        }
    }
    annotations.remove(OLDER_FORM);
    if ONLY_OLDER.iter().any(|field| spec.get(field).is_some()) {
        let form = json!({ "spec": spec }).to_string();
        annotations.insert(OLDER_FORM.to_owned(), json!(form));
    }
    Ok(newer)
}

/// Never fails: one that cannot be shown would keep a list of all from being shown.
fn to_older(spec: &Value, annotations: &mut Map<String, Value>) -> Value {
    let form = annotations.remove(OLDER_FORM);
    let form = form.as_ref().and_then(Value::as_str);
    let form: Option<Value> = form.and_then(|text| serde_json::from_str(text).ok());
    let form = form.and_then(|form| serde_json::from_value(form["spec"].clone()).ok());
    let Ok(newer) = serde_json::from_value::<InClusterIPPoolSpec>(spec.clone()) else {
        return spec.clone();
    };
    let mut rest = spec.as_object().cloned().unwrap_or_default();
    rest.retain(|field, _| !COMMON.contains(&field.as_str()));
    if !rest.is_empty() {
        let rest = Value::Object(rest).to_string();
        annotations.insert(NEWER_FIELDS.to_owned(), json!(rest));
    }
    let old = to_v1alpha1(&newer, form.as_ref());
    serde_json::to_value(old).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(version: &str, spec: Value, annotations: Value) -> Value {
        json!({
            "apiVersion": format!("{IPAM_GROUP}/{version}"), "kind": "InClusterIPPool",
            "metadata": { "name": "a", "uid": "u", "annotations": annotations, "managedFields": [{ "manager": "m" }] },
            "spec": spec, "status": { "ipAddresses": { "total": 3 } },
        })
    }

    fn asked(objects: &[Value], version: &str) -> Value {
        let review = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": { "uid": "r", "desiredAPIVersion": format!("{IPAM_GROUP}/{version}"), "objects": objects },
        });
        let answer = answer(review.to_string().as_bytes());
        assert_eq!(answer["response"]["uid"], "r");
        answer["response"].clone()
    }

    fn converted(object: &Value, version: &str) -> Value {
        let response = asked(std::slice::from_ref(object), version);
        assert_eq!(response["result"]["status"], "Success", "{response}");
        response["convertedObjects"][0].clone()
    }

    #[test]
    fn the_older_form_survives_the_way_there_and_back() {
        let spec = json!({ "subnet": "10.0.0.0/24", "start": "10.0.0.10", "gateway": "10.0.0.1" });
        let before = pool(OLDER, spec, json!({ "mine": "stays" }));
        let newer = converted(&before, POOL_VERSION);
        assert_eq!(
            newer["spec"],
            json!({ "addresses": ["10.0.0.10-10.0.0.254"], "prefix": 24, "gateway": "10.0.0.1" })
        );
        assert_eq!(
            (&newer["metadata"]["uid"], &newer["status"]),
            (&json!("u"), &before["status"])
        );
        assert_eq!(converted(&newer, OLDER), before);
        // Somebody edits the newer form: the older one no longer counts.
        let mut edited = newer;
        edited["spec"]["addresses"] = json!(["10.0.0.7"]);
        let older = converted(&edited, OLDER);
        assert_eq!(
            older["spec"],
            json!({ "addresses": ["10.0.0.7"], "prefix": 24, "gateway": "10.0.0.1" })
        );
        assert_eq!(older["metadata"]["annotations"], json!({ "mine": "stays" }));
    }

    #[test]
    fn what_the_older_version_lacks_survives_a_write_in_it() {
        let spec = json!({
            "addresses": ["10.0.0.0/28"], "prefix": 24, "excludedAddresses": ["10.0.0.3"], "stickySeconds": 60,
        });
        let before = pool(POOL_VERSION, spec, Value::Null);
        let mut older = converted(&before, OLDER);
        assert_eq!(
            older["spec"],
            json!({ "addresses": ["10.0.0.0/28"], "prefix": 24 })
        );
        older["spec"]["addresses"] = json!(["10.0.0.0/27"]);
        let after = converted(&older, POOL_VERSION);
        let mut wanted = before["spec"].clone();
        wanted["addresses"] = json!(["10.0.0.0/27"]);
        assert_eq!(after["spec"], wanted);
        assert_eq!(after["metadata"]["annotations"], Value::Null);
    }

    #[test]
    fn nonsense_is_refused_and_what_is_stored_is_always_shown() {
        let good = pool(OLDER, json!({ "subnet": "10.0.0.0/24" }), Value::Null);
        for (objects, version, why) in [
            (
                vec![pool(OLDER, json!({}), Value::Null)],
                POOL_VERSION,
                "no addresses",
            ),
            (
                vec![
                    good.clone(),
                    pool(OLDER, json!({ "subnet": "x" }), Value::Null),
                ],
                POOL_VERSION,
                "spec.subnet",
            ),
            (vec![good.clone()], OLDER, "desiredAPIVersion"),
            (vec![good], "v9", "desiredAPIVersion"),
            (vec![json!(7)], OLDER, "no object"),
        ] {
            let response = asked(&objects, version);
            let message = response["result"]["message"].as_str().unwrap_or_default();
            assert!(message.contains(why), "{response}");
            assert_eq!(response["convertedObjects"], json!([]));
        }
        for body in ["", "[]", "null", r#"{"request":{"objects":{}}}"#] {
            assert_eq!(
                answer(body.as_bytes())["response"]["result"]["status"],
                "Failure"
            );
        }
        for (spec, annotations) in [
            (Value::Null, Value::Null),
            (json!("x"), json!("x")),
            (
                json!({ "prefix": "many" }),
                json!({ OLDER_FORM: "{", NEWER_FIELDS: 7 }),
            ),
        ] {
            let stored = pool(POOL_VERSION, spec, annotations);
            assert_eq!(converted(&stored, OLDER)["metadata"]["name"], "a");
        }
    }
}
