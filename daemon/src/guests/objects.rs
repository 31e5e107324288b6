//! Objects in clusters that fipd makes and keeps: what differs is written, and what fipd made carries its mark.

use std::collections::BTreeMap;

use fipd_crds::labels::{FIELD_MANAGER, MANAGED_BY};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Map, Value, json};

use crate::controller::client::{CallError, Patch, Remote, Target};

/// The data of a ConfigMap, or of a Secret as text.
pub type Texts = BTreeMap<String, String>;

/// Makes the values of these keys so, and leaves others alone. A Secret that is not there is made where `makes` says so.
pub async fn write_secret(
    remote: &Remote,
    target: &Target,
    want: &Texts,
    makes: bool,
) -> Result<(), CallError> {
    match remote.get::<Secret>(target).await? {
        Some(found) => match differing(&texts(&found), want, false) {
            Some(change) => {
                let change = json!({ "stringData": change });
                put(remote, target, &found.metadata, change).await
            }
            None => Ok(()),
        },
        None if makes => create(remote, target, "Secret", json!({ "stringData": want })).await,
        None => Ok(()),
    }
}

/// Makes a ConfigMap hold exactly this. One that is not there is made where `makes` says so.
pub async fn write_config_map(
    remote: &Remote,
    target: &Target,
    want: &Texts,
    makes: bool,
) -> Result<(), CallError> {
    match remote.get::<ConfigMap>(target).await? {
        Some(found) => match differing(&found.data.clone().unwrap_or_default(), want, true) {
            Some(change) => put(remote, target, &found.metadata, json!({ "data": change })).await,
            None => Ok(()),
        },
        None if makes => create(remote, target, "ConfigMap", json!({ "data": want })).await,
        None => Ok(()),
    }
}

/// What is to be merged into `have`; with `exact` what is not wanted goes.
pub fn differing(have: &Texts, want: &Texts, exact: bool) -> Option<Value> {
    let mut change = Map::new();
    for (key, value) in want {
        if have.get(key) != Some(value) {
            change.insert(key.clone(), json!(value));
        }
    }
    if exact {
        let gone = have.keys().filter(|key| !want.contains_key(*key));
        change.extend(gone.map(|key| (key.clone(), Value::Null)));
    }
    (!change.is_empty()).then_some(Value::Object(change))
}

/// A Secret's values; those that are no text count as absent.
pub fn texts(secret: &Secret) -> Texts {
    let data = secret.data.iter().flatten();
    let text = |(key, ByteString(bytes)): (&String, &ByteString)| {
        let text = std::str::from_utf8(bytes).ok()?;
        Some((key.clone(), text.to_owned()))
    };
    data.filter_map(text).collect()
}

/// Whether fipd made the object.
pub fn is_ours(meta: &ObjectMeta) -> bool {
    let labels = meta.labels.as_ref();
    labels
        .and_then(|labels| labels.get(MANAGED_BY))
        .is_some_and(|manager| manager == FIELD_MANAGER)
}

/// Makes an object with fipd's mark.
pub async fn create(
    remote: &Remote,
    target: &Target,
    kind: &str,
    mut body: Value,
) -> Result<(), CallError> {
    body["apiVersion"] = json!("v1");
    body["kind"] = json!(kind);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> Texts {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn only_differences_are_written_and_foreign_keys_go_only_where_the_data_is_to_be_exact() {
        let (have, want) = (
            map(&[("a", "1"), ("x", "9")]),
            map(&[("a", "1"), ("b", "2")]),
        );
        assert_eq!(differing(&have, &want, false), Some(json!({ "b": "2" })));
        assert_eq!(
            differing(&have, &want, true),
            Some(json!({ "b": "2", "x": null }))
        );
        assert_eq!(differing(&want, &want, true), None);
        assert_eq!(
            differing(&have, &Texts::new(), true),
            Some(json!({ "a": null, "x": null }))
        );
    }
}
