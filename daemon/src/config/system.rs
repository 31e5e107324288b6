//! What the configuration knows of a system: its tables below `[[cluster]]` and `[discovery]`, and what they mean for others.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use fipd_core::{Origin, Pool, System, Text};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeValue, ValueDeserializer},
};

use super::{CompatFlag, Pattern, SightingMode, Webhook, operation::Operations};

/// A system that a configuration can switch on.
#[derive(Debug)]
pub struct SystemConfig {
    /// As `systems` and the tables name it.
    pub name: &'static str,
    /// What it does in a cluster, as the page says it that adds one.
    pub tick: &'static str,
    pub draws: Draws,
    /// Whether its series have a page of their own: `metrics:NAME`.
    pub metrics: bool,
    /// Before the names of clusters whose rules it brings to this host, also to one that decides nothing.
    pub host_wishes: Option<&'static str>,
    /// Whether CNI plugins ask for its addresses, also on a host that decides nothing.
    pub cni: bool,
    /// `[cluster.NAME]`.
    pub cluster: SettingsTable,
    /// `[discovery.NAME]`.
    pub discovery: SettingsTable,
    /// Tables below `[cluster.NAME]` whose keys the example explains in another one: `(path, path of the other)`.
    pub alike: &'static [(&'static str, &'static str)],
    /// Flags and variables of its original; empty: it has none.
    pub compat: &'static [CompatFlag],
    /// What it can be asked for; `None`: nothing of its own.
    pub operations: Option<&'static Operations>,
}

/// Whose pools a system allocates from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draws {
    /// It allocates no addresses.
    Nothing,
    /// Pools of fipd and of the cluster itself.
    Own,
    /// Pools of the cluster that its settings name as the management cluster.
    Management,
}

/// Reads a table that is called `place` in errors; `None`: what holds without it.
pub type ReadTable =
    fn(Option<Written<'_>>, place: &str) -> Result<Box<dyn SystemSettings>, WrongTable>;

/// How a table is read and described.
#[derive(Debug)]
pub struct SettingsTable {
    pub read: ReadTable,
    pub schema: fn(&mut SchemaGenerator) -> Schema,
}

/// A table as it is written.
pub struct Written<'a>(Spanned<DeValue<'a>>);

/// Why a table is not used: a key at a place of its own, or what its keys are together.
#[derive(Debug)]
pub enum WrongTable {
    Key(toml::de::Error),
    Whole(String),
}

/// What a system's settings say that is not the system's alone.
pub trait SystemSettings: AnySettings {
    /// Another name of the cluster.
    fn alias(&self) -> Option<&Text> {
        None
    }

    /// Takes the id that Rancher has for a cluster that was discovered.
    fn set_rancher_id(&mut self, _id: Option<&Text>) {}

    /// Where the pools are that it draws from.
    fn pools_in(&self) -> PoolsIn<'_> {
        PoolsIn::Here
    }

    /// Whether other clusters draw from pools here.
    fn is_management(&self) -> bool {
        false
    }

    /// Whether it writes into the guest clusters of this one.
    fn manages_guests(&self) -> bool {
        false
    }

    /// Names of fipd's own pools that the cluster may use.
    fn offered_pools(&self) -> &[Pattern] {
        &[]
    }

    /// Whether the cluster may use this pool as one of fipd's own. Objects there ask for addresses, which a pool of prefixes
    /// does not give.
    fn offers(&self, pool: &Pool) -> bool {
        let own = matches!(pool.spec.origin, Origin::Own);
        let own = own && pool.spec.allocation_length.is_none();
        let mut patterns = self.offered_pools().iter();
        own && patterns.any(|one| one.matches(&pool.spec.name))
    }

    /// Whether this host is a node of the cluster, for whose pods it answers CNI plugins; `None`: nobody says.
    fn node(&self) -> Option<bool> {
        None
    }

    /// Takes what holds where nobody says.
    fn set_node(&mut self, _is_node: bool) {}

    fn webhook(&self) -> Option<&Webhook> {
        None
    }

    fn webhook_mut(&mut self) -> Option<&mut Webhook> {
        None
    }

    /// Keys that name a URL or a file of fipd's host, but for those of the webhook: table below the system's (empty: its own), key and
    /// value.
    fn references(&self) -> Vec<(&'static str, &'static str, &str)> {
        Vec::new()
    }

    /// Host names by which pods of the cluster reach fipd.
    fn host_names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Which cluster has the pools that another one draws from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolsIn<'a> {
    Here,
    Cluster(&'a Text),
    /// The only management cluster of the system.
    OnlyManagement,
}

/// Settings whose type is known.
pub trait TypedSettings: SystemSettings + Default + Sized {
    const NAME: &'static str;

    /// What holds where the system is off.
    fn fallback() -> &'static Self;
}

/// What a box of settings can do whatever is in it.
pub trait AnySettings: Any + Debug + Send + Sync {
    fn boxed(&self) -> Box<dyn SystemSettings>;
    fn same(&self, other: &dyn Any) -> bool;
}

impl<T: SystemSettings + Clone + PartialEq> AnySettings for T {
    fn boxed(&self) -> Box<dyn SystemSettings> {
        Box::new(self.clone())
    }

    fn same(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<T>() == Some(self)
    }
}

impl Clone for Box<dyn SystemSettings> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

impl PartialEq for Box<dyn SystemSettings> {
    fn eq(&self, other: &Self) -> bool {
        let other: &dyn Any = &**other;
        (**self).same(other)
    }
}

impl<'a> Written<'a> {
    pub(super) fn new(table: Spanned<DeValue<'a>>) -> Self {
        Self(table)
    }

    /// The table as a type.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, WrongTable> {
        T::deserialize(ValueDeserializer::from(self.0)).map_err(WrongTable::Key)
    }
}

impl SystemConfig {
    /// Whether it has work on a host that decides nothing.
    pub fn has_agent_part(&self) -> bool {
        self.host_wishes.is_some() || self.cni
    }
}

impl SettingsTable {
    /// The table whose keys are those of `T`, without rules beyond them.
    pub const fn of<T: TypedSettings + DeserializeOwned + JsonSchema>() -> Self {
        Self {
            read: |written, _| {
                let settings = match written {
                    None => T::default(),
                    Some(written) => written.read()?,
                };
                Ok(Box::new(settings))
            },
            schema: SchemaGenerator::subschema_for::<T>,
        }
    }
}

/// Settings of each system on a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterSettings {
    by_system: BTreeMap<&'static str, (Draws, Box<dyn SystemSettings>)>,
    pub sightings: SightingMode,
}

impl ClusterSettings {
    pub(super) fn new(sightings: SightingMode) -> Self {
        Self {
            by_system: BTreeMap::new(),
            sightings,
        }
    }

    pub(super) fn set(&mut self, system: &SystemConfig, settings: Box<dyn SystemSettings>) {
        self.by_system.insert(system.name, (system.draws, settings));
    }

    /// The settings of one system.
    pub fn of<T: TypedSettings>(&self) -> &T {
        let settings = self.by_system.get(T::NAME).and_then(|(_, settings)| {
            let settings: &dyn Any = &**settings;
            settings.downcast_ref()
        });
        match settings {
            Some(settings) => settings,
            None => T::fallback(),
        }
    }

    /// The same, to be changed; switches the settings on where there are none. For tests.
    #[cfg(test)]
    pub fn of_mut<T: TypedSettings + Clone + PartialEq>(&mut self) -> &mut T {
        let found = self.by_system.entry(T::NAME);
        let (_, settings) = found.or_insert_with(|| (Draws::Own, Box::new(T::default())));
        let settings: &mut dyn Any = &mut **settings;
        settings.downcast_mut().expect("settings of this system")
    }

    /// The same, to be changed; `None` where the system is off.
    pub fn get_mut<T: TypedSettings>(&mut self) -> Option<&mut T> {
        let (_, settings) = self.by_system.get_mut(T::NAME)?;
        let settings: &mut dyn Any = &mut **settings;
        settings.downcast_mut()
    }

    /// Whatever the system is.
    pub fn any(&self, system: &System) -> Option<&dyn SystemSettings> {
        let (_, settings) = self.by_system.get(system.as_str())?;
        Some(&**settings)
    }

    /// Of all systems, by name.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &dyn SystemSettings)> {
        let all = self.by_system.iter();
        all.map(|(name, (_, settings))| (*name, &**settings))
    }

    pub(super) fn all_mut(
        &mut self,
    ) -> impl Iterator<Item = (&'static str, &mut Box<dyn SystemSettings>)> {
        let all = self.by_system.iter_mut();
        all.map(|(name, (_, settings))| (*name, settings))
    }

    /// Takes the id that Rancher has for the cluster.
    pub fn set_rancher_id(&mut self, id: Option<&Text>) {
        self.all_mut().for_each(|(_, one)| one.set_rancher_id(id));
    }

    /// Whose pools the system allocates from. A system that is not known may have any.
    pub fn draws(&self, system: &System) -> Draws {
        let found = self.by_system.get(system.as_str());
        found.map_or(Draws::Own, |(draws, _)| *draws)
    }

    /// What becomes of sightings where these systems are on: without one that holds leases nobody looks.
    pub fn sightings(&self, systems: &BTreeSet<System>) -> SightingMode {
        let mut draws = systems.iter().map(|system| self.draws(system));
        match draws.any(|draws| draws != Draws::Nothing) {
            true => self.sightings,
            false => SightingMode::Off,
        }
    }

    /// Whether the cluster may use this pool as one of fipd's own.
    pub fn offers(&self, system: &System, pool: &Pool) -> bool {
        self.any(system).is_some_and(|one| one.offers(pool))
    }
}
