//! What pools, FloatingIPs and quotas may say: one set of rules, for the controllers and for
//! the admission webhook. Pure: texts in, typed values or what is wrong with them out.

pub mod addresses;
pub mod flat_network;
pub mod floating_ip;
pub mod held_address;
pub mod in_cluster_pool;
pub mod mirror;
pub mod pool;
pub mod quota;

/// The most characters of a value that are repeated.
const SHOWN: usize = 100;

/// A field that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value:?} is not allowed: {allowed}")]
pub struct Wrong {
    pub field: String,
    pub value: String,
    pub allowed: String,
}

impl Wrong {
    pub fn new(field: impl Into<String>, value: &str, allowed: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            value: value.chars().take(SHOWN).collect(),
            allowed: allowed.into(),
        }
    }
}
