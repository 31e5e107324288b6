//! What the cluster manager is told: the ConfigMap `rancher-fip-config`, fipd's own configuration over it, and
//! what follows from `[api] advertise`.

use std::collections::BTreeMap;

use fipd_core::Text;
use fipd_crds::labels::{APP_NAMESPACE, LB_CONTROLLER};

use crate::{
    config::ChartSettings,
    guests::charts::{ChartRelease, Unversioned},
    systems::rancher_fip::{clusters::LoadBalancer, settings::ClusterManager},
};

/// Version prefix of the API for addresses.
const API_PREFIX: &str = "/v1";

/// What holds for all guests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Where guests find the API for addresses; `None`: nobody said.
    pub api_url: Option<String>,
    /// The namespace in each guest.
    pub namespace: String,
    /// The ConfigMap is gone, and what it said holds.
    pub held: bool,
    /// The same, but nobody knows what it said.
    pub unknown: bool,
    /// Whether the configuration or a ConfigMap, were it only one without the key, says what the namespace is.
    told: bool,
    /// Empty texts of these are not given.
    lb_controller: ChartRelease,
    purelb: ChartRelease,
    metallb: ChartRelease,
}

impl Settings {
    /// `map` is the data of the ConfigMap, `own_url` the URL by which others reach fipd.
    pub fn new(
        map: Option<&BTreeMap<String, String>>,
        given: &ClusterManager,
        own_url: Option<&str>,
    ) -> Self {
        let chart = |prefix: &'static str, given: &ChartSettings| chart(map, prefix, given);
        let lb_controller = chart("RancherFipLBController", &given.lb_controller);
        let api_url = either(given.api_server_url.as_ref(), map, "RancherFipApiServerURL");
        let own = || own_url.map(|url| format!("{}{API_PREFIX}", url.trim_end_matches('/')));
        let namespace = or(&lb_controller.namespace, APP_NAMESPACE);
        Self {
            api_url: Some(api_url).filter(|url| !url.is_empty()).or_else(own),
            namespace,
            held: false,
            unknown: false,
            told: map.is_some() || given.lb_controller.namespace.is_some(),
            lb_controller,
            purelb: chart("PureLBController", &given.purelb),
            metallb: chart("MetalLBController", &given.metallb),
        }
    }

    /// These hold because a ConfigMap said so that is gone; `without` are those without it. Where they are the same
    /// nobody misses it.
    pub fn instead_of(mut self, without: &Self) -> Self {
        let told = self.told;
        self.held = self
            != Self {
                told,
                ..without.clone()
            };
        self
    }

    /// For a guest that has fipd's things in the namespace `noted`: where nobody says another, they stay there.
    pub fn of(mut self, noted: Option<&str>) -> Self {
        if let Some(noted) = noted.filter(|noted| !self.told && *noted != self.namespace) {
            self.namespace = noted.to_owned();
            self.held = true;
            self.unknown = true;
        }
        self
    }

    /// What a guest with this load balancer is to have, in the order of installation. Charts that nobody named
    /// are left out.
    pub fn releases(&self, load_balancer: LoadBalancer) -> Vec<ChartRelease> {
        let charts = [&self.lb_controller, self.chart_of(load_balancer)].into_iter();
        let named = charts.filter(|chart| !chart.name.is_empty() && !chart.reference.is_empty());
        let place = |chart: &ChartRelease| ChartRelease {
            namespace: or(&chart.namespace, &self.namespace),
            ..chart.clone()
        };
        named.map(place).collect()
    }

    /// The load balancer that one of [`Self::releases`] is; `None` for the controller.
    pub fn balancer_of(&self, release: &ChartRelease) -> Option<LoadBalancer> {
        LoadBalancer::ALL
            .into_iter()
            .find(|of| self.chart_of(*of).prefix == release.prefix)
    }

    /// Whether there is nothing to be installed whatever the load balancer.
    pub fn names_no_chart(&self) -> bool {
        LoadBalancer::ALL
            .into_iter()
            .all(|of| self.releases(of).is_empty())
    }

    /// Namespace and name of the release of the load balancer that is not `wanted`.
    pub fn other(&self, wanted: LoadBalancer) -> (String, String) {
        let other = wanted.other();
        let chart = self.chart_of(other);
        (
            or(&chart.namespace, &self.namespace),
            or(&chart.name, other.as_str()),
        )
    }

    /// What a release of this name is, as the settings or else its name say: `None` is the controller.
    pub fn serves(&self, name: &str) -> Option<LoadBalancer> {
        if name == self.lb_controller.name {
            return None;
        }
        let types = LoadBalancer::ALL.into_iter();
        let mut said = types.clone().filter(|of| self.chart_of(*of).name == name);
        let mut alike = types.filter(|of| name.contains(of.as_str()));
        said.next().or_else(|| alike.next())
    }

    /// Whether a release of this name is the controller, whoever installed it.
    pub fn is_controller(&self, name: &str) -> bool {
        name == LB_CONTROLLER || name == self.lb_controller.name
    }

    fn chart_of(&self, load_balancer: LoadBalancer) -> &ChartRelease {
        match load_balancer {
            LoadBalancer::PureLb => &self.purelb,
            LoadBalancer::MetalLb => &self.metallb,
        }
    }
}

fn or(given: &str, default: &str) -> String {
    match given {
        "" => default.to_owned(),
        given => given.to_owned(),
    }
}

/// A chart as its keys say it.
fn chart(
    map: Option<&BTreeMap<String, String>>,
    prefix: &'static str,
    given: &ChartSettings,
) -> ChartRelease {
    let value =
        |over: &Option<Text>, key: &str| either(over.as_ref(), map, &format!("{prefix}{key}"));
    let name = value(&given.chart_name, "ChartName");
    ChartRelease {
        prefix,
        chart: name.clone(),
        name,
        reference: value(&given.chart_ref, "ChartRef"),
        version: value(&given.chart_version, "ChartVersion"),
        unversioned: Unversioned::Refused,
        once: false,
        namespace: value(&given.namespace, "Namespace"),
        values: value(&given.values, "Values"),
    }
}

/// The key of fipd's configuration, else that of the ConfigMap.
fn either(over: Option<&Text>, map: Option<&BTreeMap<String, String>>, key: &str) -> String {
    let named = over.map(|text| text.trim()).filter(|text| !text.is_empty());
    let mapped = || map.and_then(|map| map.get(key)).map(|text| text.trim());
    named.or_else(mapped).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn the_own_configuration_goes_before_the_map_and_the_map_before_advertise() {
        let own = Some("https://fipd.example.net:8443/");
        let none = ClusterManager::default();
        let url = |map: Option<&BTreeMap<String, String>>, given: &ClusterManager| {
            Settings::new(map, given, own).api_url
        };
        let said = map(&[("RancherFipApiServerURL", " https://old.example.net/v1\n")]);
        assert_eq!(
            url(None, &none).as_deref(),
            Some("https://fipd.example.net:8443/v1")
        );
        assert_eq!(
            url(Some(&said), &none).as_deref(),
            Some("https://old.example.net/v1")
        );
        let given = ClusterManager {
            api_server_url: Some("https://new.example.net/v1".into()),
            ..ClusterManager::default()
        };
        assert_eq!(
            url(Some(&said), &given).as_deref(),
            Some("https://new.example.net/v1")
        );
        assert_eq!(Settings::new(None, &none, None).api_url, None);
    }

    #[test]
    fn releases_follow_the_load_balancer_and_every_key_can_be_given_otherwise() {
        let said = map(&[
            (
                "RancherFipLBControllerChartName",
                "rancher-fip-lb-controller",
            ),
            (
                "RancherFipLBControllerChartRef",
                "https://charts.example.net",
            ),
            ("RancherFipLBControllerChartVersion", "0.4.1"),
            ("RancherFipLBControllerNamespace", "fip"),
            ("PureLBControllerChartName", "purelb"),
            ("PureLBControllerChartRef", "https://purelb.example.net"),
            ("PureLBControllerNamespace", "purelb-system"),
            ("MetalLBControllerChartName", "metallb"),
        ]);
        let mut given = ClusterManager::default();
        given.lb_controller.chart_version = Some("0.4.2".into());
        let settings = Settings::new(Some(&said), &given, None);
        let shown = |load_balancer| -> Vec<_> {
            let releases = settings.releases(load_balancer).into_iter();
            releases
                .map(|one| (one.name, one.namespace, one.version))
                .collect()
        };
        let lb = (
            "rancher-fip-lb-controller".to_owned(),
            "fip".to_owned(),
            "0.4.2".to_owned(),
        );
        let purelb = (
            "purelb".to_owned(),
            "purelb-system".to_owned(),
            String::new(),
        );
        assert_eq!(shown(LoadBalancer::PureLb), [lb.clone(), purelb]);
        assert_eq!(
            shown(LoadBalancer::MetalLb),
            [lb],
            "without a reference there is no chart"
        );
        assert_eq!(settings.namespace, "fip");
        let empty = Settings::new(None, &ClusterManager::default(), None);
        assert_eq!(empty.namespace, "rancher-fip-manager");
        assert_eq!(empty.releases(LoadBalancer::PureLb), []);
    }

    #[test]
    fn what_a_release_is_is_known_by_its_name_after_the_settings_changed_too() {
        let said = map(&[("MetalLBControllerChartName", "announcer")]);
        let settings = Settings::new(Some(&said), &ClusterManager::default(), None);
        let metallb = Some(LoadBalancer::MetalLb);
        assert_eq!(settings.serves("announcer"), metallb);
        assert_eq!(settings.serves("metallb"), metallb);
        assert_eq!(settings.serves("purelb-ng"), Some(LoadBalancer::PureLb));
        assert_eq!(settings.serves("rancher-fip-lb-controller"), None);
        let said = map(&[("RancherFipLBControllerChartName", "fip-for-purelb")]);
        let settings = Settings::new(Some(&said), &ClusterManager::default(), None);
        assert_eq!(settings.serves("fip-for-purelb"), None);
    }

    #[test]
    fn a_guest_does_not_move_because_nobody_says_where_it_is() {
        let none = ClusterManager::default();
        let of = |map: Option<&BTreeMap<String, String>>, given: &ClusterManager| {
            let settings = Settings::new(map, given, None).of(Some("fip"));
            (settings.namespace, settings.held)
        };
        assert_eq!(of(None, &none), ("fip".to_owned(), true));
        let other = map(&[("RancherFipLBControllerNamespace", "other")]);
        assert_eq!(of(Some(&other), &none), ("other".to_owned(), false));
        assert_eq!(
            of(Some(&map(&[])), &none),
            (APP_NAMESPACE.to_owned(), false)
        );
        let mut given = ClusterManager::default();
        given.lb_controller.namespace = Some("other".into());
        assert_eq!(of(None, &given), ("other".to_owned(), false));
        let usual = Settings::new(None, &none, None).of(Some(APP_NAMESPACE));
        assert!(!usual.held);
        let lost = Settings::new(None, &none, None).of(Some("fip"));
        assert!(lost.unknown);
    }

    #[test]
    fn what_a_map_said_that_is_gone_is_held_as_long_as_it_makes_a_difference() {
        let said = map(&[("RancherFipApiServerURL", "https://fip.example.net/v1")]);
        let held = |map: &BTreeMap<String, String>, given: &ClusterManager| {
            let without = Settings::new(None, given, None);
            Settings::new(Some(map), given, None).instead_of(&without)
        };
        let none = ClusterManager::default();
        let settings = held(&said, &none);
        assert_eq!(
            settings.api_url.as_deref(),
            Some("https://fip.example.net/v1")
        );
        assert!(settings.held);
        assert!(!held(&map(&[]), &none).held, "it said nothing");
        let given = ClusterManager {
            api_server_url: Some("https://new.example.net/v1".into()),
            ..ClusterManager::default()
        };
        assert!(!held(&said, &given).held, "the configuration says it all");
    }
}
