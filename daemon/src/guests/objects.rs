//! Objects in clusters that fipd makes and keeps: what differs is written, and what fipd made carries its mark.

use std::collections::BTreeMap;

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use serde_json::{Map, Value, json};

use crate::controller::{
    client::{CallError, Remote, Target},
    kind::{CONFIG_MAP, SECRET},
    owned::{create, put, put_unchanged},
};

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
        None if makes => create(remote, SECRET, target, json!({ "stringData": want })).await,
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
        None if makes => create(remote, CONFIG_MAP, target, json!({ "data": want })).await,
        None => Ok(()),
    }
}

/// Makes a ConfigMap hold exactly what `change` makes of a fresh look at it, where that is anything, so that nothing which
/// another turn wrote is lost; what it holds then, where it was looked at for a change.
pub async fn change_config_map(
    remote: &Remote,
    target: &Target,
    change: impl FnOnce(&Texts) -> Option<Texts>,
) -> Result<Option<Texts>, CallError> {
    let found: Option<ConfigMap> = remote.get(target).await?;
    let have = found.as_ref().and_then(|map| map.data.clone());
    let have = have.unwrap_or_default();
    let Some(want) = change(&have) else {
        return Ok(None);
    };
    match (&found, differing(&have, &want, true)) {
        (Some(_), None) => {}
        (Some(map), Some(data)) => {
            put_unchanged(remote, target, &map.metadata, json!({ "data": data })).await?;
        }
        (None, _) => create(remote, CONFIG_MAP, target, json!({ "data": want })).await?,
    }
    Ok(Some(want))
}

/// What is to be merged into `have`; with `exact` what is not wanted goes.
pub fn differing(have: &Texts, want: &Texts, exact: bool) -> Option<Map<String, Value>> {
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
    (!change.is_empty()).then_some(change)
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
        let differing = |have, want, exact| differing(have, want, exact).map(Value::Object);
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
