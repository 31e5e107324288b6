//! Differences as JSON merge patches, and conditions as a list with one entry per type.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff,
};
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

/// What a condition is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Says {
    pub kind: &'static str,
    pub status: bool,
    pub reason: &'static str,
    pub message: String,
}

/// Sets a condition: one entry per type, in place of all of that type. The time of its last transition stays
/// unless the status turned.
pub fn set(
    conditions: &mut Vec<Condition>,
    says: &Says,
    generation: Option<i64>,
    now: jiff::Timestamp,
) {
    let status = if says.status { "True" } else { "False" };
    let before = conditions.iter().rfind(|one| one.type_ == says.kind);
    let since = match before {
        Some(one) if one.status == status => one.last_transition_time.0,
        Some(_) | None => to_the_second(now),
    };
    let condition = Condition {
        type_: says.kind.into(),
        status: status.into(),
        reason: says.reason.into(),
        message: says.message.clone(),
        observed_generation: generation,
        last_transition_time: Time(since),
    };
    let place = conditions.iter().position(|one| one.type_ == says.kind);
    conditions.retain(|one| one.type_ != says.kind);
    conditions.insert(
        place.unwrap_or(conditions.len()).min(conditions.len()),
        condition,
    );
}

/// Takes a condition out.
pub fn unset(conditions: &mut Vec<Condition>, kind: &str) {
    conditions.retain(|one| one.type_ != kind);
}

/// A condition of its own that is there for as long as there is something to say.
pub fn remark(
    conditions: &mut Vec<Condition>,
    (kind, reason): (&'static str, &'static str),
    message: Option<String>,
    generation: Option<i64>,
    now: jiff::Timestamp,
) {
    let Some(message) = message else {
        return unset(conditions, kind);
    };
    let says = Says {
        kind,
        status: true,
        reason,
        message,
    };
    set(conditions, &says, generation, now);
}

/// The API keeps whole seconds; anything finer would look like a difference for ever.
fn to_the_second(time: jiff::Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_diff_names_only_what_changes() {
        let old = json!({ "a": 1, "b": { "x": 1, "y": 2 }, "c": [1, 2], "d": true });
        let new = json!({ "a": 1, "b": { "x": 1, "z": 3 }, "c": [1], "e": "n" });
        let patch = diff(&old, &new);
        assert_eq!(
            patch,
            Some(json!({ "b": { "y": null, "z": 3 }, "c": [1], "d": null, "e": "n" }))
        );
        assert_eq!(diff(&new, &new), None);
        assert_eq!(
            diff(&Value::Null, &json!({ "a": 1 })),
            Some(json!({ "a": 1 }))
        );
    }

    #[test]
    fn a_log_of_one_type_becomes_one_entry_that_keeps_its_time() {
        let at = |second| jiff::Timestamp::from_second(second).expect("a time");
        let says = |status, message: &str| Says {
            kind: "Ready",
            status,
            reason: "IPAssigned",
            message: message.into(),
        };
        let mut conditions = Vec::new();
        set(&mut conditions, &says(true, "a"), Some(1), at(10));
        let mut log = vec![conditions[0].clone(), conditions[0].clone()];
        set(&mut log, &says(true, "b"), Some(2), at(20));
        assert_eq!(log.len(), 1);
        assert_eq!(log[0].last_transition_time.0, at(10));
        assert_eq!(
            (log[0].message.as_str(), log[0].observed_generation),
            ("b", Some(2))
        );
        set(&mut log, &says(false, "c"), Some(2), at(30));
        assert_eq!(log[0].last_transition_time.0, at(30));
        unset(&mut log, "Ready");
        assert!(log.is_empty());
    }
}
