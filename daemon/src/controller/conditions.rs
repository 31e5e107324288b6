//! Conditions as a list with one entry per type.

use std::net::IpAddr;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff,
};

/// Type of the condition that says whether the object is served as it asks.
pub const READY: &str = "Ready";
/// Reason of [`READY`] and of the Event: the object breaks a rule, and what was accepted of it last stays in force.
pub const REFUSED: &str = "Refused";
/// The same of one of which nothing was ever accepted.
pub const INVALID: &str = "Invalid";

/// What a condition is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionUpdate {
    pub kind: &'static str,
    pub status: bool,
    pub reason: &'static str,
    pub message: String,
}

impl ConditionUpdate {
    pub fn ready(status: bool, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind: READY,
            status,
            reason,
            message: message.into(),
        }
    }
}

/// Sets a condition: one entry per type, in place of all of that type. The time of its last transition stays
/// unless the status turned.
pub fn set(
    conditions: &mut Vec<Condition>,
    says: &ConditionUpdate,
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
pub fn note_condition(
    conditions: &mut Vec<Condition>,
    (kind, reason): (&'static str, &'static str),
    message: Option<String>,
    generation: Option<i64>,
    now: jiff::Timestamp,
) {
    let Some(message) = message else {
        return unset(conditions, kind);
    };
    let says = ConditionUpdate {
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

/// Type of the condition, and reason of the Event.
pub const CONFLICT: &str = "AddressConflict";

/// What is to be said of who contends for the address; `None` where nobody does.
pub fn also_used(address: IpAddr, contenders: &[String]) -> Option<String> {
    (!contenders.is_empty()).then(|| {
        let others = contenders.join(", ");
        format!("{address} is also used by {others}; end one of the two uses")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_of_one_type_becomes_one_entry_that_keeps_its_time() {
        let at = |second| jiff::Timestamp::from_second(second).expect("a time");
        let says = |status, message: &str| ConditionUpdate {
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
