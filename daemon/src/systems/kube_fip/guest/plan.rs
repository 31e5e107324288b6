//! What a guest is to have of kube-vip, or why that is not known. Pure.

use std::time::Duration;

use fipd_crds::kube_fip::{CLUSTER_NAME, GUEST_RANGE, KUBE_VIP, SERVICE_NAMESPACE};

use super::{
    address_map::{self, GuestAddress},
    config::GuestConfig,
};
use crate::{
    config::compat::go_boolean,
    controller::store::MALFORMED,
    guests::{GuestPhase, GuestStatus, GuestUnready, charts::ChartRelease, objects::Texts},
    systems::kube_fip::settings::GuestInstall,
};

/// What is known of a guest.
pub struct VipFacts<'a> {
    pub config: &'a GuestConfig,
    /// Label `kube-vip` of its provisioning Cluster.
    pub label: Option<&'a str>,
    /// In the order of the FloatingIPs' names.
    pub addresses: &'a [GuestAddress],
    /// One of its FloatingIPs says `updateConfigMap: "true"`.
    pub rewrites: bool,
    /// The ConfigMap is written in mode `disabled` too.
    pub map_when_disabled: bool,
}

/// What a guest is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VipPlan {
    /// The keys of the ConfigMap that are fipd's.
    pub keys: Texts,
    pub map: MapRule,
    /// `None`: what is installed stays as it is. None at all: what fipd installed goes.
    pub releases: Option<Vec<ChartRelease>>,
}

impl VipPlan {
    /// Releases are to be there.
    pub fn brings(&self) -> bool {
        self.releases.as_ref().is_some_and(|all| !all.is_empty())
    }

    /// What fipd installed goes.
    pub fn removes(&self) -> bool {
        self.releases.as_ref().is_some_and(Vec::is_empty)
    }

    /// A guest without anything of fipd's need not be reached for it.
    pub fn is_nothing(&self) -> bool {
        self.removes() && matches!(self.map, MapRule::Leave | MapRule::Clear)
    }
}

/// When the ConfigMap is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapRule {
    /// It is left as it is.
    #[default]
    Leave,
    /// It is made where there is none.
    Make,
    /// The same, and its keys are kept in step.
    Keep,
    /// No Service is to get an address: its keys that are fipd's go.
    Clear,
}

/// Why a guest does not have everything yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VipWait {
    #[error(transparent)]
    Guest(#[from] GuestUnready),
    #[error("none of its FloatingIPs has an address yet: the condition Ready of each says why")]
    NoAddress,
    #[error("its namespace is not there yet; Rancher makes it")]
    NoNamespace,
    #[error(
        "namespace {0} does not exist in the cluster of Rancher, and fipd notes there what it does in guests: make it"
    )]
    NoConfigNamespace(String),
    #[error(
        "no FloatingIPRange has annotation harvesterClusterName: {0:?}, the Harvester cluster that it runs on: make one, or name one by annotation {GUEST_RANGE} of the provisioning.cattle.io Cluster"
    )]
    NoRange(String),
    #[error(
        "annotation {GUEST_RANGE}: there is no FloatingIPRange {0:?}; make it, or correct the annotation"
    )]
    UnknownRange(String),
    #[error(
        "label {KUBE_VIP}: {0:?} of its provisioning.cattle.io Cluster is no truth value; allowed are \"true\" and \"false\"; what is installed stays as it is until it is one of these"
    )]
    LabelInvalid(String),
    #[error(
        "both releases would be {0:?}, and two of one name cannot stand beside each other: let the settings or kube-fip-config give one of them another name; what is installed stays as it is"
    )]
    SameRelease(String),
    #[error(
        "annotation {SERVICE_NAMESPACE} of its FloatingIP {0} is no namespace; what the guest has stays as it is until it is one, or is removed"
    )]
    ServiceNamespace(String),
    #[error(
        "annotation {CLUSTER_NAME}: {named:?} of FloatingIP {fip} in its namespace is not {cluster:?}, its name, and no other FloatingIP there has that; what the guest has stays as it is until the annotation is corrected or the FloatingIP deleted"
    )]
    OtherCluster {
        fip: String,
        named: String,
        cluster: String,
    },
    #[error(
        "its FloatingIP {0} shows an address that may be in use and is not its own now ({1}); what the guest has stays as it is until the FloatingIP has one, or is deleted"
    )]
    AddressUnclear(String, String),
    #[error(
        "its FloatingIP {0} holds an address and is not in the list of FloatingIPs; what the guest has stays as it is until it is listed again, or is known to be gone"
    )]
    Unlisted(String),
    #[error(
        "its FloatingIP {0} does not fit its schema; what the guest has stays as it is until it does, or is deleted"
    )]
    Malformed(String),
}

impl VipWait {
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Guest(unready) => unready.reason(),
            Self::NoAddress => "NoAddress",
            Self::NoNamespace => "NoNamespace",
            Self::NoConfigNamespace(_) => "NoConfigNamespace",
            Self::NoRange(_) => "NoRange",
            Self::UnknownRange(_) => "UnknownRange",
            Self::LabelInvalid(_) => "LabelInvalid",
            Self::SameRelease(_) => "ReleaseNamesEqual",
            Self::ServiceNamespace(_) | Self::OtherCluster { .. } => "AnnotationInvalid",
            Self::AddressUnclear(..) | Self::Unlisted(_) => "AddressUnclear",
            Self::Malformed(_) => MALFORMED,
        }
    }

    /// The guest is looked at again after this time at the latest; a change wakes it earlier.
    pub fn pause(&self) -> Duration {
        match self {
            Self::Guest(unready) => unready.pause(),
            Self::NoNamespace => Duration::from_secs(5),
            // Nothing wakes the guest when the address is free.
            Self::NoConfigNamespace(_) | Self::Unlisted(_) => Duration::from_secs(30),
            Self::NoAddress
            | Self::NoRange(_)
            | Self::UnknownRange(_)
            | Self::LabelInvalid(_)
            | Self::SameRelease(_)
            | Self::ServiceNamespace(_)
            | Self::OtherCluster { .. }
            | Self::AddressUnclear(..)
            | Self::Malformed(_) => Duration::from_secs(120),
        }
    }

    pub fn status(&self) -> GuestStatus {
        GuestStatus::new(GuestPhase::Waiting, self.reason(), self.to_string())
    }
}

/// Whether kube-vip is to be installed.
///
/// # Errors
/// The label says neither.
pub fn installs(mode: GuestInstall, label: Option<&str>) -> Result<bool, VipWait> {
    match (mode, label) {
        (GuestInstall::Enabled, _) => Ok(true),
        (GuestInstall::Disabled, _) | (GuestInstall::ClusterLabel, None) => Ok(false),
        (GuestInstall::ClusterLabel, Some(text)) => {
            go_boolean(text).ok_or_else(|| VipWait::LabelInvalid(text.to_owned()))
        }
    }
}

/// Plans a guest. Without an address nothing is installed: kube-vip would have nothing to give.
pub fn plan(facts: &VipFacts<'_>) -> (VipPlan, Option<VipWait>) {
    let keys = address_map::wanted(facts.addresses);
    let off = facts.config.install == GuestInstall::Disabled && !facts.map_when_disabled;
    if keys.is_empty() {
        let nothing = VipPlan {
            map: if off { MapRule::Leave } else { MapRule::Clear },
            releases: Some(Vec::new()),
            ..VipPlan::default()
        };
        return (nothing, Some(VipWait::NoAddress));
    }
    let map = match (off, facts.rewrites) {
        (true, _) => MapRule::Leave,
        (false, false) => MapRule::Make,
        (false, true) => MapRule::Keep,
    };
    let [kube_vip, provider] = &facts.config.releases;
    let installs = match installs(facts.config.install, facts.label) {
        Ok(true) if kube_vip.name == provider.name => {
            Err(VipWait::SameRelease(kube_vip.name.clone()))
        }
        installs => installs,
    };
    let releases = installs.as_ref().ok().map(|installs| match installs {
        true => facts.config.releases.to_vec(),
        false => Vec::new(),
    });
    let plan = VipPlan {
        keys,
        map,
        releases,
    };
    (plan, installs.err())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::kube_fip::settings::KubeFipSettings;

    fn config(install: GuestInstall) -> GuestConfig {
        GuestConfig {
            install,
            ..GuestConfig::new(&Texts::new(), &KubeFipSettings::default())
        }
    }

    /// Number of releases, rule of the map and reason of a guest with an address.
    fn planned(
        install: GuestInstall,
        label: Option<&str>,
        rewrites: bool,
    ) -> (Option<usize>, MapRule, Option<&'static str>) {
        let addresses = [GuestAddress {
            address: [10, 0, 0, 5].into(),
            namespace: None,
        }];
        let config = config(install);
        let (plan, wait) = plan(&VipFacts {
            config: &config,
            label,
            addresses: &addresses,
            rewrites,
            map_when_disabled: true,
        });
        let count = plan.releases.map(|all| all.len());
        (count, plan.map, wait.map(|wait| wait.reason()))
    }

    #[test]
    fn the_mode_and_the_label_say_who_gets_kube_vip() {
        use GuestInstall::{ClusterLabel, Disabled, Enabled};
        for (mode, label, releases) in [
            (Enabled, None, 2),
            (Enabled, Some("false"), 2),
            (Disabled, Some("true"), 0),
            (ClusterLabel, None, 0),
            (ClusterLabel, Some("true"), 2),
            (ClusterLabel, Some("1"), 2),
            (ClusterLabel, Some("False"), 0),
        ] {
            let expected = (Some(releases), MapRule::Make, None);
            assert_eq!(planned(mode, label, false), expected, "{mode:?} {label:?}");
        }
        let mut twice = config(Enabled);
        twice.releases[1].name = twice.releases[0].name.clone();
        let addresses = [GuestAddress {
            address: [10, 0, 0, 5].into(),
            namespace: None,
        }];
        let (held, wait) = plan(&VipFacts {
            config: &twice,
            label: None,
            addresses: &addresses,
            rewrites: false,
            map_when_disabled: true,
        });
        let wait = wait.map(|wait| wait.reason());
        assert_eq!((held.releases, wait), (None, Some("ReleaseNamesEqual")));
        let unclear = planned(ClusterLabel, Some("yes"), true);
        assert_eq!(unclear, (None, MapRule::Keep, Some("LabelInvalid")));
    }

    #[test]
    fn defect_25_the_map_is_written_in_mode_disabled_unless_a_setting_says_otherwise() {
        let disabled = config(GuestInstall::Disabled);
        let addresses = [GuestAddress {
            address: [10, 0, 0, 5].into(),
            namespace: None,
        }];
        let facts = VipFacts {
            config: &disabled,
            label: None,
            addresses: &addresses,
            rewrites: true,
            map_when_disabled: true,
        };
        assert_eq!(plan(&facts).0.map, MapRule::Keep);
        let off = VipFacts {
            map_when_disabled: false,
            ..facts
        };
        assert_eq!(plan(&off).0.map, MapRule::Leave);
    }

    #[test]
    fn without_an_address_there_is_nothing_to_install_and_nothing_is_offered() {
        use GuestInstall::{Disabled, Enabled};
        for (mode, map_when_disabled, map) in [
            (Enabled, true, MapRule::Clear),
            (Enabled, false, MapRule::Clear),
            (Disabled, true, MapRule::Clear),
            (Disabled, false, MapRule::Leave),
        ] {
            let config = config(mode);
            let (plan, wait) = plan(&VipFacts {
                config: &config,
                label: None,
                addresses: &[],
                rewrites: true,
                map_when_disabled,
            });
            assert_eq!(plan.releases, Some(vec![]));
            let expected = (map, Some(VipWait::NoAddress));
            assert_eq!((plan.map, wait), expected, "{mode:?} {map_when_disabled}");
        }
    }
}
