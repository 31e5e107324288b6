//! Which network a pool of a cluster belongs to.

use std::{collections::BTreeSet, ops::Range};

use fipd_core::{Pool, System, Text};
use fipd_crds::names::is_label;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Pattern, Systems};
use toml::Spanned;

/// Name of the network that always exists.
pub const DEFAULT_NETWORK: &str = "default";

/// `[[network]]`: pools that any of the matches fits belong to the network of that name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NetworkRule {
    /// The network that such pools belong to.
    #[serde(deserialize_with = "network_name")]
    #[schemars(with = "String")]
    pub name: Text,
    /// One of these must fit, with all of its keys: `cluster`, `system`, `namespace`, `interface`, `vlan`, `pool`; patterns with
    /// `*` and `?`.
    #[serde(rename = "match", deserialize_with = "matches")]
    #[schemars(with = "Vec<Match>")]
    pub matches: Vec<Match>,
}

/// All keys that are there must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Match {
    /// Any name of the cluster: configured, Rancher id or display name.
    pub cluster: Option<Pattern>,
    #[schemars(with = "Option<String>")]
    pub system: Option<Spanned<System>>,
    /// Namespace of the pool object; never fits a cluster-scoped one.
    pub namespace: Option<Pattern>,
    /// The interface that the pool names, or the physical network of the VLAN.
    pub interface: Option<Pattern>,
    pub vlan: Option<u16>,
    /// Name of the pool object.
    pub pool: Option<Pattern>,
}

/// What is known of a pool object when its network is chosen.
#[derive(Clone, Copy, Debug)]
pub struct PoolFacts<'a> {
    /// Every name of the cluster that holds the object.
    pub cluster: &'a [Text],
    pub system: &'a System,
    /// `None` for cluster-scoped kinds.
    pub namespace: Option<&'a str>,
    pub interface: Option<&'a str>,
    pub link: &'a PoolLink,
    pub pool: &'a str,
    /// Value of the annotation `fipd.io/network`.
    pub annotation: Option<&'a str>,
    /// The network that its system has for it where no rule fits; `None`: its VLAN's, else `default`.
    pub own_network: Option<&'a str>,
}

/// The link that a pool is for, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolLink {
    pub vlan: Option<u16>,
    /// The physical network of the VLAN.
    pub physical: Option<Text>,
    /// The pool names a network of which this could not be read.
    pub unread: bool,
}

impl PoolLink {
    /// The pool names no link.
    pub const NONE: Self = Self {
        vlan: None,
        physical: None,
        unread: false,
    };
}

/// The network of a pool and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkChoice {
    pub network: Text,
    pub by: ChosenBy,
    /// Why an annotation that is there does not count; for a condition.
    pub ignored_annotation: Option<String>,
}

/// What decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChosenBy {
    Annotation,
    Rule,
    /// Its system has a network for it.
    System,
    /// Nothing said so: pools that overlap only across such choices are ambiguous.
    Default,
}

impl NetworkChoice {
    /// The network that the pool is in, where nothing says another: a default takes nothing away from where an admin took it.
    #[must_use]
    pub fn unless_in(self, network: Option<Text>) -> Self {
        let is_word = matches!(self.by, ChosenBy::Annotation | ChosenBy::Rule);
        match network.filter(|_| !is_word) {
            Some(network) => Self { network, ..self },
            None => self,
        }
    }

    /// Whether nobody chose the network: neither object nor rule, nor an admin who took the mirror there.
    pub fn is_default_for(&self, mirror: Option<&Pool>) -> bool {
        self.by == ChosenBy::Default && mirror.is_none_or(|pool| pool.spec.network_by_default)
    }
}

/// The network of pools on a VLAN, or on none, where nothing says another.
pub fn default_network(vlan: Option<u16>) -> Text {
    vlan.map_or_else(
        || DEFAULT_NETWORK.into(),
        |vlan| format!("vlan-{vlan}").into(),
    )
}

/// The rules in the order of the file; the first that fits decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkRules(Vec<NetworkRule>);

impl NetworkRules {
    /// # Errors
    /// A system that there is not, and where it is named.
    pub(super) fn new(
        known: Systems,
        rules: Vec<NetworkRule>,
    ) -> Result<Self, (Range<usize>, String)> {
        let systems = rules.iter().flat_map(|rule| &rule.matches);
        for system in systems.filter_map(|one| one.system.as_ref()) {
            let found = known.find(system.get_ref().as_str());
            found.map_err(|what| (system.span(), format!("system: system {what}")))?;
        }
        Ok(Self(rules))
    }

    /// The network of a pool: its annotation where that counts, else the first rule that fits, else the VLAN's
    /// own network, else `default`.
    pub fn choose(&self, pool: &PoolFacts<'_>) -> NetworkChoice {
        let mut ignored_annotation = None;
        if let Some(name) = pool.annotation {
            match annotation_counts(pool, name) {
                Ok(()) => {
                    return NetworkChoice {
                        network: name.into(),
                        by: ChosenBy::Annotation,
                        ignored_annotation: None,
                    };
                }
                Err(why) => ignored_annotation = Some(why),
            }
        }
        // What a rule ahead may decide once the link is known, none after it does.
        let rule = (self.0.iter()).find(|rule| rule.fits(pool, pool.link.unread));
        let decided = rule.filter(|rule| rule.fits(pool, false));
        let (network, by) = match (decided, pool.own_network, pool.link.vlan) {
            (Some(rule), ..) => (rule.name.clone(), ChosenBy::Rule),
            (None, Some(own), _) => (own.into(), ChosenBy::System),
            (None, None, vlan) => (default_network(vlan), ChosenBy::Default),
        };
        NetworkChoice {
            network,
            by,
            ignored_annotation,
        }
    }

    /// Whether VLAN or physical network of a pool, which are not known, decide its network.
    pub fn ask_for_vlan(&self, pool: &PoolFacts<'_>) -> bool {
        let chosen = |name| annotation_counts(pool, name).is_ok();
        let mut ahead = (self.0.iter()).take_while(|rule| !rule.fits(pool, false));
        !pool.annotation.is_some_and(chosen) && ahead.any(|rule| rule.asks_for_link(pool))
    }

    /// Every network that a pool object of this cluster and system may belong to as far as rules and default say
    /// (annotations and VLANs are known only once an object is seen).
    pub fn possible(&self, cluster: &[Text], system: &System) -> BTreeSet<Text> {
        let mut networks = BTreeSet::new();
        for rule in &self.0 {
            for one in rule
                .matches
                .iter()
                .filter(|one| one.may_fit(cluster, system))
            {
                networks.insert(rule.name.clone());
                if one.fits_every_pool() {
                    return networks;
                }
            }
        }
        networks.insert(DEFAULT_NETWORK.into());
        networks
    }

    /// Names of all networks the rules speak of.
    pub fn names(&self) -> BTreeSet<Text> {
        self.0.iter().map(|rule| rule.name.clone()).collect()
    }
}

impl NetworkRule {
    fn fits(&self, pool: &PoolFacts<'_>, any_link: bool) -> bool {
        self.matches.iter().any(|one| one.fits(pool, any_link))
    }

    fn asks_for_link(&self, pool: &PoolFacts<'_>) -> bool {
        let mut all = self.matches.iter();
        all.any(|one| (one.vlan.is_some() || one.interface.is_some()) && one.fits(pool, true))
    }
}

impl Match {
    /// `any_link`: whatever its VLAN and its physical network are.
    fn fits(&self, pool: &PoolFacts<'_>, any_link: bool) -> bool {
        let fits = |pattern: &Option<Pattern>, value: Option<&str>| match (pattern, value) {
            (None, _) => true,
            (Some(pattern), Some(value)) => pattern.matches(value),
            (Some(_), None) => false,
        };
        let interfaces = [pool.interface, pool.link.physical.as_deref()];
        self.may_fit(pool.cluster, pool.system)
            && fits(&self.namespace, pool.namespace)
            && fits(&self.pool, Some(pool.pool))
            && (any_link
                || (self.vlan.is_none() || self.vlan == pool.link.vlan)
                    && interfaces.iter().any(|name| fits(&self.interface, *name)))
    }

    fn may_fit(&self, cluster: &[Text], system: &System) -> bool {
        self.cluster
            .as_ref()
            .is_none_or(|pattern| cluster.iter().any(|name| pattern.matches(name)))
            && self
                .system
                .as_ref()
                .is_none_or(|only| only.get_ref() == system)
    }

    /// Whether nothing but cluster and system is asked for.
    fn fits_every_pool(&self) -> bool {
        self.namespace.is_none()
            && self.interface.is_none()
            && self.vlan.is_none()
            && self.pool.as_ref().is_none_or(Pattern::matches_all)
    }
}

/// Whether `name` is a network name: 1 to 63 of `[a-z0-9-]`, starting and ending with a letter or digit.
fn is_network_name(name: &str) -> bool {
    name.len() <= 63 && is_label(name)
}

const ALLOWED_NAME: &str =
    "must be 1 to 63 of a-z, 0-9 and '-', starting and ending with a letter or digit";

fn annotation_counts(pool: &PoolFacts<'_>, name: &str) -> Result<(), String> {
    if !is_network_name(name) {
        return Err(format!(
            "fipd.io/network {name:?} {ALLOWED_NAME}; it is ignored"
        ));
    }
    if let Some(namespace) = pool.namespace {
        return Err(format!(
            "fipd.io/network {name:?} is ignored: users of namespace {namespace:?} may not choose the network; a [[network]] rule can"
        ));
    }
    Ok(())
}

fn network_name<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
    let name = String::deserialize(from)?;
    if is_network_name(&name) {
        Ok(name.into())
    } else {
        Err(serde::de::Error::custom(format!(
            "[[network]] name = {name:?} {ALLOWED_NAME}"
        )))
    }
}

fn matches<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Match>, D::Error> {
    let matches = Vec::<Match>::deserialize(from)?;
    let fail = |what: &str| Err(serde::de::Error::custom(what));
    if matches.is_empty() {
        return fail(
            "[[network]] match is empty: the rule would never fit; give at least one { ... }",
        );
    }
    if matches.contains(&Match::default()) {
        return fail(
            "[[network]] match has an empty { }: give at least one of cluster, system, namespace, interface, vlan, pool",
        );
    }
    Ok(matches)
}
