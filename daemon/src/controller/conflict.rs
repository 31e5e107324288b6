//! What an object says of others that use its address.

use std::net::IpAddr;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff};

use super::merge::{Says, set, unset};

/// Type of the condition, and reason of the Event.
pub const CONFLICT: &str = "AddressConflict";

/// What is to be said of who contends for the address; `None` where nobody does.
pub fn also_used(address: IpAddr, contenders: &[String]) -> Option<String> {
    (!contenders.is_empty()).then(|| {
        let others = contenders.join(", ");
        format!("{address} is also used by {others}; end one of the two uses")
    })
}

/// Sets the condition, or takes it away where there is nothing to say.
pub fn set_conflict(
    conditions: &mut Vec<Condition>,
    message: Option<String>,
    generation: Option<i64>,
    now: jiff::Timestamp,
) {
    let Some(message) = message else {
        return unset(conditions, CONFLICT);
    };
    let says = Says {
        kind: CONFLICT,
        status: true,
        reason: "AlsoUsedBy",
        message,
    };
    set(conditions, &says, generation, now);
}
