//! `[cluster.claims]`: what claims of a cluster may use of fipd's own pools.

use std::sync::LazyLock;

use fipd_core::Text;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::{
    Draws, Pattern, ReleaseWait, SettingsTable, SystemConfig, SystemSettings, TypedSettings,
};

/// What the configuration knows of the system.
pub static CONFIG: SystemConfig = SystemConfig {
    name: ClaimsSettings::NAME,
    tick: "Claims: users ask for addresses with AddressClaim objects",
    draws: Draws::Own,
    metrics: false,
    host_wishes: None,
    cni: false,
    cluster: SettingsTable::of::<ClaimsSettings>(),
    discovery: SettingsTable::of::<ClaimsSettings>(),
    alike: &[],
    compat: &[],
    operations: None,
};

/// `[cluster.claims]`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ClaimsSettings {
    /// Own pools that the cluster may use. None, unless it says so.
    pub pools: Vec<Pattern>,
    /// The pool of claims that name none, by the name of its `Pool` object.
    pub default_pool: Option<Text>,
    /// Whether `Pool` and `NamespacedPool` objects that others write become pools. Who may write them decides over addresses.
    pub pool_objects: bool,
    /// How long a finalizer of fipd keeps a pool object that is being deleted while its addresses are in use, from `1s` to
    /// `1h`.
    pub release_wait: ReleaseWait,
}

impl TypedSettings for ClaimsSettings {
    const NAME: &'static str = "claims";

    fn fallback() -> &'static Self {
        static FALLBACK: LazyLock<ClaimsSettings> = LazyLock::new(Default::default);
        &FALLBACK
    }
}

impl SystemSettings for ClaimsSettings {
    fn offered_pools(&self) -> &[Pattern] {
        &self.pools
    }
}
