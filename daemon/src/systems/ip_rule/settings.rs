//! What a cluster's policy-routing rules need beside its IPRules.

use std::{sync::LazyLock, time::Duration};

use fipd_core::Text;
use fipd_crds::ip_rule::{LEASE, NAMESPACE};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    clock,
    config::{Draws, SettingsTable, SystemConfig, SystemSettings, TypedSettings, Webhook},
};

/// Before the names of clusters that want rules here.
pub const WISHES: &str = "ip-rule/";

/// What the configuration knows of the system.
pub static CONFIG: SystemConfig = SystemConfig {
    name: IpRuleSettings::NAME,
    tick: "ip-rule: policy-routing rules for its load balancers",
    draws: Draws::Nothing,
    metrics: true,
    host_wishes: Some(WISHES),
    cni: false,
    cluster: SettingsTable::of::<IpRuleSettings>(),
    discovery: SettingsTable::of::<IpRuleSettings>(),
    alike: &[],
    compat: super::compat::FLAGS,
    operations: None,
};

/// `[cluster.ip-rule]`
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct IpRuleSettings {
    /// Whether the original's Lease is held while fipd decides here.
    pub leader_elect: bool,
    /// Name of that Lease.
    pub lease_lock_name: Text,
    /// Where it is.
    pub lease_lock_namespace: Text,
    /// How long a node that is not ready, or that never had a rule and stays silent, keeps the object of a removed rule.
    #[serde(deserialize_with = "patience")]
    #[schemars(with = "String")]
    pub node_timeout: Duration,
    /// The same of a node that is ready and had the rule: fipd is stopped or removed there. Never less than
    /// `node-timeout`.
    #[serde(deserialize_with = "patience")]
    #[schemars(with = "String")]
    pub silent_timeout: Duration,
    /// The image that an `Agent` runs which names none.
    pub agent_image: Option<Text>,
    pub webhook: Webhook,
}

impl Default for IpRuleSettings {
    fn default() -> Self {
        Self {
            leader_elect: true,
            lease_lock_name: LEASE.into(),
            lease_lock_namespace: NAMESPACE.into(),
            node_timeout: Duration::from_secs(600),
            silent_timeout: Duration::from_secs(3600),
            agent_image: None,
            webhook: Webhook::default(),
        }
    }
}

impl TypedSettings for IpRuleSettings {
    const NAME: &'static str = "ip-rule";

    fn fallback() -> &'static Self {
        static FALLBACK: LazyLock<IpRuleSettings> = LazyLock::new(Default::default);
        &FALLBACK
    }
}

impl SystemSettings for IpRuleSettings {
    fn webhook(&self) -> Option<&Webhook> {
        Some(&self.webhook)
    }

    fn webhook_mut(&mut self) -> Option<&mut Webhook> {
        Some(&mut self.webhook)
    }
}

impl IpRuleSettings {
    /// The image of fipd for Agents: of the configuration, or of the variables that the versions of the original read.
    pub fn agent_image(&self) -> Option<String> {
        let told = |name: &str| std::env::var(name).ok().filter(|image| !image.is_empty());
        let own = self.agent_image.as_ref().map(ToString::to_string);
        own.or_else(|| told("RELATED_IMAGE_AGENT_IMAGE"))
            .or_else(|| told("AGENT_IMAGE"))
    }
}

fn patience<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    clock::duration(&text).map_err(|allowed| {
        serde::de::Error::custom(format!(
            "[cluster.ip-rule] node-timeout or silent-timeout = {text:?}: {allowed}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    fn settings(systems: &str, text: &str) -> Result<IpRuleSettings, String> {
        let text = format!(
            "[[cluster]]\nname = \"a\"\nin-cluster = true\nsystems = [{systems}]\n[cluster.ip-rule]\n{text}"
        );
        let config = Config::parse(&text, Path::new("/etc/fipd"))?;
        Ok(config
            .clusters
            .into_iter()
            .next()
            .unwrap()
            .settings
            .of::<IpRuleSettings>()
            .clone())
    }

    #[test]
    fn the_defaults_are_the_originals_and_times_need_a_unit() {
        let plain = settings("\"ip-rule\"", "").unwrap();
        assert_eq!(plain, IpRuleSettings::default());
        assert_eq!(&*plain.lease_lock_name, "fed43742.brtrm.dev");
        let quick = settings(
            "\"ip-rule\"",
            "node-timeout = \"30s\"\nleader-elect = false\n",
        )
        .unwrap();
        assert_eq!(
            (quick.node_timeout, quick.leader_elect),
            (Duration::from_secs(30), false)
        );
        let wrong = settings("\"ip-rule\"", "node-timeout = \"30\"\n").unwrap_err();
        assert!(wrong.contains("silent-timeout = \"30\""), "{wrong}");
        let off = settings("\"claims\"", "leader-elect = false\n").unwrap_err();
        assert!(off.contains("ip-rule"), "{off}");
    }
}
