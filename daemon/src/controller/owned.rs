//! One object that fipd owns: made with its mark, put right where it differs, deleted by the UID with which it was read.

use fipd_crds::labels::{FIELD_MANAGER, MANAGED_BY};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::{
    client::{CallError, Patch, Remote, Target},
    kind::Kind,
    store::Key,
};

/// Whether fipd made the object.
pub fn is_ours(meta: &ObjectMeta) -> bool {
    let labels = meta.labels.as_ref();
    labels
        .and_then(|labels| labels.get(MANAGED_BY))
        .is_some_and(|manager| manager == FIELD_MANAGER)
}

/// The same of an object as the API gives it.
pub fn is_marked(object: &Value) -> bool {
    object["metadata"]["labels"][MANAGED_BY] == FIELD_MANAGER
}

/// Selects what fipd made.
pub fn selector() -> String {
    format!("{MANAGED_BY}={FIELD_MANAGER}")
}

/// Key and UID of an object as the API gives it.
pub fn identify(object: &Value) -> Option<(Key, String)> {
    let meta = object.get("metadata")?;
    let text = |key: &str| meta.get(key).and_then(Value::as_str);
    Some((
        Key::new(text("namespace").unwrap_or(""), text("name")?),
        text("uid")?.to_owned(),
    ))
}

/// Makes an object with fipd's mark.
pub async fn create(
    remote: &Remote,
    kind: Kind,
    target: &Target,
    mut body: Value,
) -> Result<(), CallError> {
    body["apiVersion"] = json!(kind.api_version());
    body["kind"] = json!(kind.kind);
    body["metadata"]["name"] = json!(target.name);
    body["metadata"]["labels"][MANAGED_BY] = json!(FIELD_MANAGER);
    remote.create(target, &body).await
}

/// Changes the object that was read, and no other of its name.
pub async fn put(
    remote: &Remote,
    target: &Target,
    read: &ObjectMeta,
    mut change: Value,
) -> Result<(), CallError> {
    change["metadata"]["uid"] = json!(read.uid);
    remote.patch(target, Patch::Merge, &change).await
}

/// The same, but a conflict where anybody changed the object since it was read.
pub async fn put_unchanged(
    remote: &Remote,
    target: &Target,
    read: &ObjectMeta,
    mut change: Value,
) -> Result<(), CallError> {
    change["metadata"]["resourceVersion"] = json!(read.resource_version);
    put(remote, target, read, change).await
}

/// Deletes the object, where `goes` tells by a fresh read that it is to go.
pub async fn delete_if(
    remote: &Remote,
    target: &Target,
    goes: impl Fn(&Value) -> bool,
) -> Result<(), CallError> {
    let found: Option<Value> = remote.get(target).await?;
    match found.filter(goes).as_ref().and_then(identify) {
        Some((_, uid)) => remote.delete(target, &uid).await,
        None => Ok(()),
    }
}

/// Deletes those listed objects of a kind that `goes` names.
pub async fn delete_listed(
    remote: &Remote,
    kind: Kind,
    listed: &[Value],
    goes: impl Fn(&Key, &Value) -> bool,
) -> Result<(), CallError> {
    for object in listed {
        if let Some((key, uid)) = identify(object).filter(|(key, _)| goes(key, object)) {
            remote.delete(&kind.target(&key), &uid).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{client::testing::canned, kind::SECRET};

    #[tokio::test]
    async fn only_what_is_to_go_is_deleted_and_by_its_uid() {
        let ours = r#"{"metadata":{"namespace":"ns","name":"a","uid":"u","labels":{"app.kubernetes.io/managed-by":"fipd"}}}"#;
        let other = r#"{"metadata":{"namespace":"ns","name":"a","uid":"v"}}"#;
        let (remote, asked) = canned(&[
            ("GET", 200, ours),
            ("DELETE", 200, "{}"),
            ("GET", 200, other),
            ("GET", 404, "gone"),
            ("DELETE", 200, "{}"),
        ]);
        let target = SECRET.named("ns", "a");
        for _ in 0..3 {
            delete_if(&remote, &target, is_marked).await.unwrap();
        }
        let listed = [ours, other, "{}"].map(|text| serde_json::from_str(text).unwrap());
        let goes = |_: &Key, object: &Value| !is_marked(object);
        let deleted = delete_listed(&remote, SECRET, &listed, goes).await;
        deleted.unwrap();
        let asked = asked.lock();
        let uids = asked.iter().map(|one| &one.body["preconditions"]["uid"]);
        let uids: Vec<_> = uids.filter(|uid| !uid.is_null()).collect();
        assert_eq!(uids, ["u", "v"]);
    }
}
