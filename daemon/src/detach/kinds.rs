//! The kinds in which fipd leaves something, where it looks for them, and for what it writes them. Pure.

use std::collections::BTreeSet;

use fipd_core::{System, Text};
use fipd_crds::labels::{API_SERVICE, INTERFACE_MAPPINGS};

use crate::{
    config::{ClusterSettings, Webhook},
    controller::{
        kind::{
            CONFIG_MAP, ENDPOINT_SLICE, Kind, SECRET, SERVICE, VALIDATING_WEBHOOK_CONFIGURATION,
        },
        webhook::{IP_RULE_VALIDATOR, RANCHER_FIP_VALIDATOR},
    },
    guests::charts::helm_chart::HELM_CHART,
    systems::{
        claims::{
            names::{CLAIM, NAMESPACED_POOL, POOL},
            settings::ClaimsSettings,
        },
        ip_rule::{
            names::{CONFIG, RULE},
            settings::IpRuleSettings,
        },
        rancher_fip::{
            guests::{COPY, NOTES},
            kinds::{FLOATING_IP, POOL as FLOATING_IP_POOL, QUOTA},
            service::announce,
            settings::{Announce, RancherFipRole, RancherFipSettings},
        },
    },
};

/// What fipd did in a cluster, as far as it is known.
#[derive(Clone)]
pub struct Past {
    /// Systems that were on there since it was last left cleanly.
    pub systems: BTreeSet<System>,
    pub settings: ClusterSettings,
    /// Whether a cluster manager may have put something there.
    pub guest: bool,
    /// Ranchers whose cluster manager has not said so either way.
    pub unheard: BTreeSet<Text>,
}

/// Whether fipd may have written such a thing, so that not being allowed to look leaves something unseen.
type Wrote = fn(&Past) -> bool;

/// A kind in which fipd leaves something.
pub struct Leftover {
    pub kind: Kind,
    /// Only where the family's programs are: elsewhere fipd writes none, and reads none.
    pub in_app: bool,
    /// Those with fipd's label are its own, and go.
    pub own: bool,
    /// `None`: they are only asked for by name.
    pub listed: Option<Wrote>,
    /// Those that fipd knows by name, for roles that allow no list.
    pub named: Named,
}

/// Objects whose names are known.
pub struct Named {
    pub names: &'static [&'static str],
    /// Where the family's programs are; else they are cluster-scoped.
    pub in_app: bool,
    pub wrote: Wrote,
}

impl Past {
    /// Whether fipd may have written in a namespace; guests have theirs where a chart says.
    pub fn writes_in(&self, namespace: &str) -> bool {
        namespace.is_empty()
            || self.guest
            || namespace == &*self.settings.of::<RancherFipSettings>().app_namespace
    }

    /// Why what could not be seen may be nothing of fipd's.
    pub fn doubt(&self) -> Option<String> {
        let names: Vec<&str> = self.unheard.iter().map(|name| &**name).collect();
        (!names.is_empty()).then(|| {
            format!(
                "it is not known yet whether the cluster manager of {} has put that there: attach it, or wait until it is ready, \
                 and run it again",
                names.join(" or of ")
            )
        })
    }

    pub fn manages(&self) -> bool {
        self.systems.contains(&System::rancher_fip())
            && self.settings.of::<RancherFipSettings>().role == RancherFipRole::Management
    }

    fn serves(&self) -> bool {
        self.systems.contains(&System::rancher_fip())
            && self.settings.of::<RancherFipSettings>().role == RancherFipRole::Downstream
    }

    fn announces(&self, by: Announce) -> bool {
        self.serves() && self.settings.of::<RancherFipSettings>().announce == by
    }

    fn claims(&self) -> bool {
        self.systems.contains(&System::claims())
    }

    pub fn rules(&self) -> bool {
        self.systems.contains(&System::ip_rule())
    }

    fn leads_api_service(&self) -> bool {
        self.manages() && self.settings.of::<RancherFipSettings>().api_service
    }

    pub fn manages_guests(&self) -> bool {
        self.manages()
            && self
                .settings
                .of::<RancherFipSettings>()
                .cluster_manager
                .enabled
    }

    /// Whether the Leases of the rancher-fip family were held.
    pub fn led_family(&self) -> bool {
        self.manages() && self.settings.of::<RancherFipSettings>().leader_elect
    }

    /// Whether the Lease of ip-rule was held.
    pub fn led_rules(&self) -> bool {
        self.rules() && self.settings.of::<IpRuleSettings>().leader_elect
    }
}

/// Switched off, it is removed, and its right may be taken away then.
fn kept(webhook: &Webhook) -> bool {
    webhook.enabled != Some(false)
}

const fn of(kind: Kind, listed: Wrote) -> Leftover {
    Leftover {
        kind,
        in_app: false,
        own: false,
        listed: Some(listed),
        named: Named {
            names: &[],
            in_app: false,
            wrote: |_| false,
        },
    }
}

const fn validator(names: &'static [&'static str], wrote: Wrote) -> Leftover {
    Leftover {
        kind: VALIDATING_WEBHOOK_CONFIGURATION,
        in_app: false,
        own: true,
        listed: None,
        named: Named {
            names,
            in_app: false,
            wrote,
        },
    }
}

/// In the namespaces of clusters of Rancher.
pub static PROJECT_SECRETS: Leftover = of(SECRET, Past::manages_guests);

/// In the order in which they are left: who waits for something comes before it.
pub static LEFTOVERS: [Leftover; 18] = [
    validator(&[RANCHER_FIP_VALIDATOR], |past| {
        past.manages() && kept(&past.settings.of::<RancherFipSettings>().webhook)
    }),
    validator(&[IP_RULE_VALIDATOR], |past| {
        past.rules() && kept(&past.settings.of::<IpRuleSettings>().webhook)
    }),
    Leftover {
        named: Named {
            names: &[API_SERVICE],
            in_app: true,
            wrote: Past::leads_api_service,
        },
        ..of(SERVICE, Past::serves)
    },
    of(FLOATING_IP, Past::manages),
    of(QUOTA, Past::manages),
    of(FLOATING_IP_POOL, Past::manages),
    of(CLAIM, Past::claims),
    of(NAMESPACED_POOL, |past| {
        past.claims() && past.settings.of::<ClaimsSettings>().pool_objects
    }),
    Leftover {
        own: true,
        ..of(POOL, Past::claims)
    },
    of(RULE, Past::rules),
    of(CONFIG, Past::rules),
    of(announce::POOL, |past| past.announces(Announce::Metallb)),
    of(announce::ADVERTISEMENT, |past| {
        past.announces(Announce::Metallb)
    }),
    of(announce::GROUP, |past| past.announces(Announce::Purelb)),
    Leftover {
        own: true,
        in_app: true,
        ..of(ENDPOINT_SLICE, Past::leads_api_service)
    },
    Leftover {
        own: true,
        ..of(HELM_CHART, |past| past.guest)
    },
    Leftover {
        own: true,
        in_app: true,
        named: Named {
            names: &[INTERFACE_MAPPINGS, NOTES, COPY],
            in_app: true,
            wrote: |past| past.guest || past.manages_guests(),
        },
        ..of(CONFIG_MAP, Past::manages_guests)
    },
    Leftover {
        own: true,
        in_app: true,
        ..of(SECRET, |past| past.guest || past.manages_guests())
    },
];
