//! What the stock LB controller may ask, as values: [`crate::api::fip_v1`] decodes and answers it, the controllers of
//! floating IPs decide it. Neither knows the other.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::Text;
use futures::future::BoxFuture;
use http::StatusCode;
use secrecy::SecretString;
use serde::Serialize;

/// Who asks, as token and body say. Nothing of it is believed yet.
#[derive(Clone, Debug)]
pub struct Claim {
    /// `client_id` of the token.
    pub client: String,
    pub project: String,
    /// What the project's clusters share.
    pub secret: SecretString,
    /// `None` where the body has none: then the token says it.
    pub cluster: Option<String>,
}

/// Who asks, as it was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The configured name of the management cluster.
    pub management: Text,
    /// Rancher's id of the project.
    pub project: String,
    /// Where the project's FloatingIPs are.
    pub namespace: String,
    /// Rancher's id of the cluster.
    pub cluster: String,
}

/// A Service of the asker's cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub namespace: String,
    pub name: String,
}

/// An address for a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    pub service: Service,
    /// As the asker calls it: the pool's name, or `<display name>--<network>`.
    pub pool: String,
    pub address: Option<IpAddr>,
    /// Services of one group share an address.
    pub group: Option<String>,
}

/// What a Service no longer needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FipRelease {
    pub service: Service,
    pub address: Option<IpAddr>,
    pub group: Option<String>,
}

/// The address that a Service has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub address: IpAddr,
    /// Of the pool that the address is in.
    pub subnet: String,
    pub group: Option<String>,
    /// Under which announcers let the group share the address.
    pub shared_key: Option<String>,
}

/// One Service's use of an address of the project; an address that nobody uses has empty texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    pub project: String,
    pub cluster: String,
    #[serde(rename = "floatingippool")]
    pub pool: String,
    #[serde(rename = "servicenamespace")]
    pub namespace: String,
    #[serde(rename = "servicename")]
    pub name: String,
    #[serde(rename = "ipaddr")]
    pub address: String,
    #[serde(rename = "floatingipgroup", skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// The figures of a pool, as `GET /ipam` of the original manager has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolFigures {
    pub cidr: String,
    pub start: String,
    pub end: String,
    /// Empty for IPv6.
    pub broadcast: String,
    pub total: u64,
    pub used: u64,
    pub available: u64,
    /// Sorted as texts; `null` if there are none.
    pub used_ips: Option<Vec<String>>,
    /// There are more than are listed; the counts are exact.
    #[serde(
        rename = "used_ips_truncated",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub truncated: bool,
}

/// Why the answer is no.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code} {message}")]
pub struct Denied {
    pub code: StatusCode,
    pub message: String,
}

/// Decides what the stock LB controller asks.
pub trait FloatingIps: Send + Sync {
    /// Verifies who asks.
    fn authorize<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Asker, Denied>>;
    /// Gives the Service its address. Asking again is free.
    fn request(&self, asker: Asker, wish: Wish) -> BoxFuture<'_, Result<Given, Denied>>;
    /// Takes the Service off its address, which stays the project's.
    fn release(&self, asker: Asker, fip_release: FipRelease) -> BoxFuture<'_, Result<(), Denied>>;
    /// Gives an address of the project back that nobody uses.
    fn delete(&self, asker: Asker, address: IpAddr) -> BoxFuture<'_, Result<(), Denied>>;
    /// What the asker's cluster has of the project's addresses, and what nobody uses.
    fn list(&self, asker: Asker) -> BoxFuture<'_, Result<Vec<Row>, Denied>>;
    /// The pools of all management clusters where fipd leads, by name.
    fn figures(&self) -> Result<BTreeMap<String, PoolFigures>, Denied>;
    /// In how many of the management clusters fipd does not lead at this moment.
    fn not_leading(&self) -> usize;
}

impl Denied {
    pub fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// Project, secret or cluster are not what they must be; it does not say which.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::FORBIDDEN, "Client not authorized")
    }

    /// Nothing was decided in time; asking again is free.
    pub fn late() -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "timeout waiting for IP allocation",
        )
    }

    /// Somebody else may decide now; asking again is free.
    pub fn elsewhere() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "fipd does not lead in the management cluster, or has not read it yet; ask again",
        )
    }
}
