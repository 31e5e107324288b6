//! Differences as JSON merge patches (RFC 7386).

use serde::Serialize;
use serde_json::{Map, Value};

/// The merge patch (RFC 7386) that turns `old` into `new`; `None` if they are equal.
pub fn diff(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(from), Value::Object(to)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (key, value) in to {
        match from.get(key) {
            Some(before) => {
                if let Some(change) = diff(before, value) {
                    patch.insert(key.clone(), change);
                }
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// The merge patch between two values of a type; `None` if they are equal.
pub fn change<T: Serialize>(old: &T, new: &T) -> Result<Option<Value>, serde_json::Error> {
    Ok(diff(
        &serde_json::to_value(old)?,
        &serde_json::to_value(new)?,
    ))
}

#[cfg(any(test, feature = "fuzz"))]
pub mod testing {
    use super::*;

    /// What a merge patch makes of a value.
    pub fn merged(value: &Value, patch: &Value) -> Value {
        let Value::Object(changes) = patch else {
            return patch.clone();
        };
        let mut map = value.as_object().cloned().unwrap_or_default();
        for (key, change) in changes {
            let before = map.remove(key).unwrap_or_default();
            if !change.is_null() {
                map.insert(key.clone(), merged(&before, change));
            }
        }
        Value::Object(map)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{testing::merged, *};

    #[test]
    fn a_diff_names_only_what_changes() {
        let old = json!({ "a": 1, "b": { "x": 1, "y": 2 }, "c": [1, 2], "d": true });
        let new = json!({ "a": 1, "b": { "x": 1, "z": 3 }, "c": [1], "e": "n" });
        let patch = diff(&old, &new);
        assert_eq!(
            patch,
            Some(json!({ "b": { "y": null, "z": 3 }, "c": [1], "d": null, "e": "n" }))
        );
        assert_eq!(merged(&old, &patch.unwrap()), new);
        assert_eq!(diff(&new, &new), None);
        assert_eq!(
            diff(&Value::Null, &json!({ "a": 1 })),
            Some(json!({ "a": 1 }))
        );
    }
}
