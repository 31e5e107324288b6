//! What was written to the API server, by its audit log.

use anyhow::Result;
use serde_json::Value;

use crate::testbed::ControlPlane;

/// Whose writes count.
#[derive(Debug)]
pub struct Counted {
    /// Kinds of objects, by API group and plural.
    pub objects: &'static [(&'static str, &'static str)],
    /// API group of the pools.
    pub pools: &'static str,
}

/// Successful writes of everybody so far.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Writes {
    /// Of the objects that count, their status included.
    pub objects: f64,
    pub events: f64,
    /// Of the status of pools.
    pub pool_status: f64,
}

impl Writes {
    pub fn read(plane: &ControlPlane, counted: &Counted) -> Result<Self> {
        let mut writes = Self::default();
        for request in plane.audited()? {
            writes.count(counted, &request);
        }
        Ok(writes)
    }

    fn count(&mut self, counted: &Counted, request: &Value) {
        let code = request["responseStatus"]["code"].as_u64();
        if !code.is_some_and(|code| (200..300).contains(&code)) {
            return;
        }
        let object = &request["objectRef"];
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let kind = (text("apiGroup"), text("resource"));
        let counter = match (kind, text("subresource")) {
            (kind, _) if counted.objects.contains(&kind) => &mut self.objects,
            ((group, _), "status") if group == counted.pools => &mut self.pool_status,
            ((_, "events"), _) => &mut self.events,
            _ => return,
        };
        *counter += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GROUP: &str = "ipam.cluster.x-k8s.io";
    const COUNTED: Counted = Counted {
        objects: &[(GROUP, "ipaddressclaims"), (GROUP, "ipaddresses")],
        pools: GROUP,
    };

    #[test]
    fn what_was_refused_or_is_of_others_does_not_count() {
        let request = |group: &str, resource: &str, subresource: &str, code: u16| {
            json!({
                "verb": "patch", "responseStatus": { "code": code },
                "objectRef": { "apiGroup": group, "resource": resource, "subresource": subresource },
            })
        };
        let mut writes = Writes::default();
        for one in [
            request(GROUP, "ipaddressclaims", "", 201),
            request(GROUP, "ipaddressclaims", "status", 200),
            request(GROUP, "ipaddresses", "", 409),
            request(GROUP, "inclusterippools", "status", 200),
            request(GROUP, "inclusterippools", "", 200),
            request("events.k8s.io", "events", "", 201),
            request("coordination.k8s.io", "leases", "", 200),
        ] {
            writes.count(&COUNTED, &one);
        }
        let wanted = Writes {
            objects: 2.0,
            events: 1.0,
            pool_status: 1.0,
        };
        assert_eq!(writes, wanted);
    }
}
