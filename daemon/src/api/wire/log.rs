//! What was done and what changed: the audit log, and pages of lists.

use std::net::IpAddr;

use fipd_core::prefix_text;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// Part of who asked, such as `user:ann`.
    pub actor: Option<String>,
    /// What was decided, such as `allocated`.
    pub action: Option<String>,
    pub network: Option<String>,
    pub pool: Option<String>,
    /// An address, a prefix or a range: entries about any of it, or about a prefix around it.
    pub address: Option<String>,
    /// Whose lease it was.
    pub owner: Option<String>,
    /// Not before: RFC 3339, or a day with or without a time, in UTC.
    pub from: Option<String>,
    /// Not after: as `from`.
    pub to: Option<String>,
    /// Only entries with a smaller number.
    pub before: Option<u64>,
    /// `next` of the page before.
    pub cursor: Option<String>,
    /// 1 to 1000; 100 when left out.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    /// Newest first; fewer than `limit`, even none, where the rest is further back than one request looks.
    pub entries: Vec<AuditView>,
    /// Cursor of the next page; null on the last.
    pub next: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditView {
    pub number: u64,
    pub at: String,
    pub actor: String,
    pub action: String,
    pub network: Option<String>,
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// Bits of the prefix that begins with the address; left out where it is just the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u8>,
    pub pool: Option<String>,
    pub owner: Option<String>,
    pub detail: String,
}

impl AuditView {
    /// The address or prefix that it is about.
    pub fn what(&self) -> Option<String> {
        Some(prefix_text(self.address?, self.length))
    }
}

/// Since when.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ChangesQuery {
    /// Changes after this revision; left out: after the current one.
    pub since: Option<u64>,
    /// `next` of the page before.
    pub cursor: Option<String>,
    /// 1 to 1000; 100 when left out. Not for event streams.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

/// One page of changes. With `accept: text/event-stream` each comes as an event `change` with its revision as the id.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChangesPage {
    pub changes: Vec<ChangeView>,
    /// Nothing up to this revision is missing; ask for changes since it.
    pub revision: u64,
    /// The changes since then are no longer known: read everything anew, then ask for changes since `revision`.
    pub reset: bool,
    /// Cursor of the next page; null where nothing more has changed.
    pub next: Option<String>,
}

/// One decision. What is named has changed, has come or is gone; several decisions later it may be different again.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChangeView {
    pub revision: u64,
    /// What it touched, of `pools`, `leases`, `quotas` and `other` (networks, clusters, users, tokens).
    pub kinds: Vec<String>,
    /// Pools that changed themselves, in their use or in their quotas.
    pub pools: Vec<ChangedPool>,
    pub leases: Vec<ChangedLease>,
    /// Tenants that may be given more than before.
    pub tenants: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChangedPool {
    pub id: u32,
    /// Null where it is gone.
    pub name: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChangedLease {
    pub network: String,
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Bits of the prefix that begins with the address; left out where it is just the address, or not for the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u8>,
    /// As it is now; null where nobody holds it any more.
    pub state: Option<String>,
    pub pool: Option<String>,
    pub owner: Option<String>,
}

/// Which page of a list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct PageQuery {
    /// `next` of the page before.
    pub cursor: Option<String>,
    /// 1 to 1000; 100 when left out.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}
