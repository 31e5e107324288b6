//! The systems that a configuration can switch on, and the tables of each.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use fipd_core::{System, Text};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    SightingMode,
    operation::SystemOperation,
    system::{ClusterSettings, SystemConfig, Written, WrongTable},
};

/// All systems of this build.
#[derive(Clone, Copy, Debug, Default)]
pub struct Systems(pub &'static [&'static SystemConfig]);

/// The tables of systems below one table, as written.
pub(super) type Tables<'a> = BTreeMap<&'static str, Spanned<DeValue<'a>>>;

/// Whose tables they are.
#[derive(Clone, Copy)]
pub(super) enum TableOwner<'a> {
    Cluster(&'a Text),
    Discovery,
}

impl PartialEq for Systems {
    fn eq(&self, other: &Self) -> bool {
        let names = |all: &Self| all.0.iter().map(|one| one.name).collect::<Vec<_>>();
        names(self) == names(other)
    }
}

impl From<String> for WrongTable {
    fn from(what: String) -> Self {
        Self::Whole(what)
    }
}

impl TableOwner<'_> {
    fn table(self, name: &str) -> String {
        match self {
            Self::Cluster(cluster) => format!("[[cluster]] {cluster:?}, [cluster.{name}]"),
            Self::Discovery => format!("[discovery.{name}]"),
        }
    }
}

impl fmt::Display for TableOwner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(cluster) => write!(f, "[[cluster]] {cluster:?}"),
            Self::Discovery => f.write_str("[discovery]"),
        }
    }
}

impl Systems {
    /// All names, in order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|one| one.name)
    }

    /// All of them.
    pub fn all(self) -> impl Iterator<Item = System> {
        self.names().filter_map(|name| name.parse().ok())
    }

    /// The system of that name.
    pub fn get(self, name: &str) -> Option<&'static SystemConfig> {
        self.0.iter().find(|one| one.name == name).copied()
    }

    /// The operations of all systems, each with the system's name.
    pub fn operations(self) -> impl Iterator<Item = (&'static str, &'static SystemOperation)> {
        let with = self
            .0
            .iter()
            .filter_map(|one| Some((one.name, one.operations?)));
        with.flat_map(|(name, operations)| operations.all.iter().map(move |one| (name, one)))
    }

    /// The names in backquotes, for descriptions.
    pub(super) fn listed(self) -> String {
        let names: Vec<String> = self.names().map(|name| format!("`{name}`")).collect();
        names.join(", ")
    }

    pub(super) fn find(self, name: &str) -> Result<System, String> {
        let found = self.get(name).and_then(|one| one.name.parse().ok());
        found.ok_or_else(|| {
            let names: Vec<String> = self.names().map(|name| format!("{name:?}")).collect();
            format!(
                "{name:?} is not served by this version; allowed is {}",
                names.join(" or ")
            )
        })
    }

    /// Takes the tables of systems out of a table; what is left has keys of its own only.
    pub(super) fn take_tables<'a>(self, table: &mut DeTable<'a>) -> Tables<'a> {
        let names = self.names();
        names
            .filter_map(|name| Some((name, table.remove(name)?)))
            .collect()
    }

    /// The same of what should be a table.
    pub(super) fn take_tables_of<'a>(self, value: &mut Spanned<DeValue<'a>>) -> Tables<'a> {
        let DeValue::Table(table) = value.get_mut() else {
            return Tables::new();
        };
        self.take_tables(table)
    }

    /// Reads `systems` and the tables of these.
    pub(super) fn settings(
        self,
        given: &[String],
        mut tables: Tables<'_>,
        place: TableOwner<'_>,
        sightings: SightingMode,
    ) -> Result<(BTreeSet<System>, ClusterSettings), WrongTable> {
        let mut systems = BTreeSet::new();
        for name in given {
            let system = self
                .find(name)
                .map_err(|what| format!("{place}: systems: {what}"))?;
            if !systems.insert(system) {
                return Err(format!("{place}: systems: {name:?} is there twice").into());
            }
        }
        let mut settings = ClusterSettings::new(sightings);
        for system in self.0 {
            let name = system.name;
            let written = tables.remove(name).map(Written::new);
            let at = place.table(name);
            if !systems.iter().any(|one| one.as_str() == name) {
                if written.is_none() {
                    // What discovered clusters may still have of a system that is off is what it wrote in such clusters.
                    if let TableOwner::Discovery = place {
                        settings.set(system, (system.discovery.read)(None, &at)?);
                    }
                    continue;
                }
                let what =
                    format!("{at}: these settings do nothing: systems does not have {name:?}");
                return Err(what.into());
            }
            let table = match place {
                TableOwner::Cluster(_) => &system.cluster,
                TableOwner::Discovery => &system.discovery,
            };
            settings.set(system, (table.read)(written, &at)?);
        }
        Ok((systems, settings))
    }
}
