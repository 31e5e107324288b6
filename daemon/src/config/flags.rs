//! Flags of the original cluster manager, which hold for every management cluster.

use fipd_core::Text;

use super::{Config, Source};

/// What the command line says of management clusters; the rest is as the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub app_namespace: Option<Text>,
    pub leader_elect: Option<bool>,
    pub lease_lock_name: Option<Text>,
    pub lease_lock_namespace: Option<Text>,
    /// Context in kubeconfigs for which the file names none.
    pub kubecontext: Option<String>,
}

impl Config {
    /// The configuration as it is under the flags.
    #[must_use]
    pub fn under(mut self, flags: &Flags) -> Self {
        for cluster in &mut self.clusters {
            let mut managing = false;
            for (_, settings) in cluster.settings.all_mut() {
                if settings.is_management() {
                    settings.set_flags(flags);
                    managing = true;
                }
            }
            if let Source::File { context, .. } = &mut cluster.source
                && managing
                && context.is_none()
            {
                context.clone_from(&flags.kubecontext);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::systems::rancher_fip::settings::RancherFipSettings;

    const TWO: &str = r#"
[[cluster]]
name = "rancher"
kubeconfig = "rancher.kubeconfig"
systems = ["rancher-fip"]
[[cluster]]
name = "other"
kubeconfig = "other.kubeconfig"
context = "own"
systems = ["rancher-fip"]
[cluster.rancher-fip]
role = "downstream"
management = "rancher"
"#;

    fn context(config: &Config, name: &str) -> Option<String> {
        match &config.cluster(name).unwrap().source {
            Source::File { context, .. } => context.clone(),
            Source::InCluster | Source::Uploaded { .. } => None,
        }
    }

    #[test]
    fn defect_35_flags_that_had_no_effect_count_for_management_clusters() {
        let config = Config::parse(TWO, Path::new("/etc/fipd")).unwrap();
        assert_eq!(config.clone().under(&Flags::default()), config);
        let flags = Flags {
            app_namespace: Some("app".into()),
            leader_elect: Some(false),
            lease_lock_name: Some("lock".into()),
            lease_lock_namespace: Some("locks".into()),
            kubecontext: Some("admin".into()),
        };
        let under = config.clone().under(&flags);
        let settings = &under
            .cluster("rancher")
            .unwrap()
            .settings
            .of::<RancherFipSettings>();
        let names = [
            &*settings.app_namespace,
            &*settings.lease_lock_name,
            &*settings.lease_lock_namespace,
        ];
        assert_eq!(names, ["app", "lock", "locks"]);
        assert!(!settings.leader_elect);
        assert_eq!(context(&under, "rancher").as_deref(), Some("admin"));
        assert_eq!(under.cluster("other"), config.cluster("other"));
    }
}
