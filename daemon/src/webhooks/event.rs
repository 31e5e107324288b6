//! What a receiver is sent: an entry of the audit log under its name.

use fipd_core::{AuditEntry, Ledger};
use serde_json::{Value, json};

use super::cursor::Cursor;
use crate::{clock, config::event_names};

/// Sent by `fipd webhooks test`.
pub const TEST: &str = "fipd.test";
/// Entries were gone before they could be sent.
pub const GAP: &str = "fipd.gap";

/// Something to send.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The same whenever it is sent again: receivers drop what they have had.
    pub id: String,
    pub body: String,
}

/// An entry of the audit log as JSON, with the names that things have now.
pub type EntryView = fn(&Ledger, u64, &AuditEntry) -> Value;

impl Message {
    /// Of an entry, which is `data`.
    pub fn of(at: Cursor, number: u64, entry: &AuditEntry, data: &Value) -> Self {
        let (name, time) = (event_names::name(entry.action), clock::rfc3339(entry.at));
        Self::new(at.id(number), name, &time, data)
    }

    /// That the entries `from` to `to` are gone.
    pub fn gap(at: Cursor, from: u64, to: u64) -> Self {
        let id = format!("{}_{to}_gap", at.id(from));
        let data = json!({
            "from": from, "to": to, "count": to.saturating_sub(from).saturating_add(1),
            "detail": "the audit log was trimmed before these entries could be sent",
        });
        let at = clock::rfc3339(clock::now());
        Self::new(id, GAP, &at, &data)
    }

    /// That the log is another one than that which was told until then. The first entry of that which is not known is named.
    pub fn other_log(told: Cursor) -> Self {
        let from = told.after.saturating_add(1);
        let id = format!("{}_gap", told.id(from));
        let data = json!({
            "from": from, "to": null, "count": null,
            "detail": "another store took the place of the one that this was told of: its audit log is told from the beginning",
        });
        let at = clock::rfc3339(clock::now());
        Self::new(id, GAP, &at, &data)
    }

    /// To see whether they arrive.
    pub fn test(hook: &str) -> Self {
        let now = clock::now();
        let id = format!("fipd_test_{}", now.0);
        let data = json!({ "webhook": hook, "detail": "an admin asks whether this arrives" });
        Self::new(id, TEST, &clock::rfc3339(now), &data)
    }

    fn new(id: String, name: &str, at: &str, data: &Value) -> Self {
        let body = json!({ "type": name, "timestamp": at, "data": data }).to_string();
        Self { id, body }
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::Action;

    use super::*;
    use crate::api::rest::audit;
    use crate::config::event_names::{NAMES, name};

    #[test]
    fn every_action_has_a_name_of_its_own_that_can_be_subscribed_to() {
        let mut names = Action::ALL.map(name).to_vec();
        let mut all = NAMES.to_vec();
        names.sort_unstable();
        all.sort_unstable();
        assert_eq!(names, all);
    }

    #[test]
    fn a_message_says_what_the_audit_log_says() {
        let entry = AuditEntry {
            length: None,
            at: fipd_core::Timestamp(1_767_225_600_123),
            actor: "token:ci".into(),
            action: Action::Allocated,
            network: Some(fipd_core::NetworkId::DEFAULT),
            address: Some([10, 0, 0, 7].into()),
            pool: None,
            identity: Some("fipd/Host/lab/a".parse().unwrap()),
            detail: "".into(),
        };
        let at = Cursor {
            instance: 0xabc,
            epoch: 2,
            after: 16,
            written: None,
        };
        let data = audit::json(&Ledger::new(), 17, &entry);
        let message = Message::of(at, 17, &entry, &data);
        assert_eq!(message.id, "fipd_0000000000000abc_2_17");
        let body: Value = serde_json::from_str(&message.body).unwrap();
        assert_eq!(body["type"], "lease.allocated");
        assert_eq!(body["timestamp"], "2026-01-01T00:00:00.123Z");
        assert_eq!(body["data"]["address"], "10.0.0.7");
        assert_eq!(body["data"]["owner"], "fipd/Host/lab/a");
        assert_eq!(body["data"]["number"], 17);
    }
}
