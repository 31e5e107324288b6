//! What admins said of clusters beside the configuration file: those that they added by uploading a kubeconfig, and those that
//! fipd has left; and in which clusters something of fipd's may be.
//!
//! One file of the data directory, for fipd's user only. Not in the store: a copy of the address book that leaves this host is not
//! to carry the keys of clusters. After a restore elsewhere they are added again; their leases are there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
    sync::Arc,
};

use fipd_core::{System, Text};
use serde::{Deserialize, Serialize};

use crate::{
    config::{ClusterConfig, Config, Systems},
    private_file::{self, if_there},
};

const FILE: &str = "clusters.json";
/// Names of the clusters that hold something of fipd's, one a line, for who removes the package.
const ATTACHED: &str = "attached-clusters";

/// A cluster by its uploaded kubeconfig.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Added {
    pub systems: BTreeSet<String>,
    /// TOML, as below `[[cluster]]`.
    #[serde(default)]
    pub settings: String,
    /// Never printed.
    pub kubeconfig: Arc<str>,
}

/// What an admin said of a cluster when adding it, but for the kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    pub systems: BTreeSet<String>,
    /// TOML, as below `[[cluster]]`.
    pub settings: String,
}

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Registrations {
    pub added: BTreeMap<Text, Added>,
    /// No system is on for these.
    pub detached: BTreeSet<Text>,
    /// Clusters in which something of fipd's may be, with the systems that were on there since they were last left cleanly.
    pub held: BTreeMap<Text, BTreeSet<System>>,
    /// Clusters that are another one, says an admin, where no Secret can prove it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub same_as: BTreeMap<Text, Text>,
}

impl Registrations {
    /// What was kept; nothing where there is no file. Of a cluster that only the list has, every system may have been on.
    pub fn load(data_dir: &Path, known: Systems) -> io::Result<Self> {
        let mut kept: Self = match if_there(fs::read(data_dir.join(FILE)))? {
            Some(text) => serde_json::from_slice(&text)?,
            None => Self::default(),
        };
        let listed = if_there(fs::read(data_dir.join(ATTACHED)))?.unwrap_or_default();
        let listed = String::from_utf8_lossy(&listed);
        for name in listed.lines().filter(|name| !name.is_empty()) {
            let all = || known.all().collect();
            kept.held.entry(name.into()).or_insert_with(all);
        }
        Ok(kept)
    }

    /// Of each cluster that was added by hand.
    pub fn said(&self) -> BTreeMap<Text, Registration> {
        let said = |added: &Added| Registration {
            systems: added.systems.clone(),
            settings: added.settings.clone(),
        };
        let all = self.added.iter();
        all.map(|(name, added)| (name.clone(), said(added)))
            .collect()
    }

    /// Writes all of it; on the disk when it returns, and where it fails what was there counts. Blocks.
    pub fn save(&self, data_dir: &Path) -> io::Result<()> {
        let listed = if_there(fs::read(data_dir.join(ATTACHED)))?.unwrap_or_default();
        self.save_list(data_dir)?;
        let saved = private_file::write(&data_dir.join(FILE), serde_json::to_vec(self)?);
        if saved.is_err() {
            // Where this fails as well the file still has who is attached, and the next start makes the list of it.
            let _ = private_file::write(&data_dir.join(ATTACHED), listed);
        }
        saved
    }

    /// Writes the list alone. Blocks.
    pub fn save_list(&self, data_dir: &Path) -> io::Result<()> {
        let lines: String = self.held.keys().map(|name| format!("{name}\n")).collect();
        private_file::write(&data_dir.join(ATTACHED), lines)
    }

    /// The configuration of the file with what is kept here. Where both have a cluster of a name the file's counts.
    pub fn over(&self, file: &Config) -> Config {
        let mut config = file.clone();
        for (name, added) in &self.added {
            if file.cluster(name).is_some() {
                tracing::error!(cluster = %name, "is in the configuration and was added by hand as well: the configuration counts");
                continue;
            }
            match added.cluster(file.known, name) {
                Ok(cluster) => config.clusters.push(cluster),
                Err(error) => {
                    tracing::error!(cluster = %name, %error, "was added by hand and cannot be served")
                }
            }
        }
        for cluster in &mut config.clusters {
            if self.detached.contains(&cluster.name) {
                cluster.systems.clear();
            }
        }
        config
    }
}

impl Added {
    /// As the configuration would have it.
    pub fn cluster(&self, known: Systems, name: &str) -> Result<ClusterConfig, String> {
        let systems: Vec<String> = self.systems.iter().cloned().collect();
        ClusterConfig::uploaded(known, name, &systems, &self.settings, &self.kubeconfig)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::systems::{SYSTEMS, claims::settings::ClaimsSettings};

    fn kept() -> Registrations {
        let added = Added {
            systems: BTreeSet::from(["claims".to_owned()]),
            settings: "[claims]\npools = [\"lab\"]\n".to_owned(),
            kubeconfig: "secret".into(),
        };
        Registrations {
            added: BTreeMap::from([("east".into(), added)]),
            detached: BTreeSet::from(["west".into()]),
            held: BTreeMap::from([("west".into(), BTreeSet::from([System::claims()]))]),
            same_as: BTreeMap::from([("far".into(), "west".into())]),
        }
    }

    #[test]
    fn what_is_kept_is_read_again_and_for_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Registrations::load(dir.path(), *SYSTEMS).unwrap() == Registrations::default());
        kept().save(dir.path()).unwrap();
        assert!(Registrations::load(dir.path(), *SYSTEMS).unwrap() == kept());
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(
            Registrations::load(dir.path(), *SYSTEMS).is_err(),
            "it is not taken as empty"
        );
    }

    #[test]
    fn what_is_kept_in_part_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(format!("{ATTACHED}.new"))).unwrap();
        assert!(kept().save(dir.path()).is_err());
        assert!(!dir.path().join(FILE).exists());
    }

    #[test]
    fn a_cluster_whose_leaving_is_not_kept_stays_in_the_list() {
        let dir = tempfile::tempdir().unwrap();
        kept().save(dir.path()).unwrap();
        fs::create_dir(dir.path().join(format!("{FILE}.new"))).unwrap();
        assert!(Registrations::default().save(dir.path()).is_err());
        let list = fs::read_to_string(dir.path().join(ATTACHED)).unwrap();
        assert_eq!(list, "west\n");
    }

    #[test]
    fn a_cluster_that_only_the_list_has_may_have_had_every_system() {
        let dir = tempfile::tempdir().unwrap();
        kept().save(dir.path()).unwrap();
        let list = dir.path().join(ATTACHED);
        assert_eq!(fs::read_to_string(&list).unwrap(), "west\n");
        fs::write(&list, "old\nwest\n").unwrap();
        let held = Registrations::load(dir.path(), *SYSTEMS).unwrap().held;
        assert_eq!(held["west"], BTreeSet::from([System::claims()]));
        assert_eq!(held["old"].len(), SYSTEMS.all().count());
    }

    #[test]
    fn the_file_counts_before_what_was_added_and_a_cluster_that_was_left_has_no_system() {
        let text = "[[cluster]]\nname = \"west\"\nkubeconfig = \"w\"\nsystems = [\"claims\"]\n";
        let file = Config::parse(text, Path::new("/etc/fipd")).unwrap();
        let config = kept().over(&file);
        assert_eq!(config.clusters.len(), 2);
        assert!(config.cluster("west").unwrap().systems.is_empty());
        let east = config.cluster("east").unwrap();
        assert_eq!(
            (
                east.systems.len(),
                east.settings.of::<ClaimsSettings>().pools.len()
            ),
            (1, 1)
        );
        let mut both = kept();
        both.added = BTreeMap::from([("west".into(), both.added["east"].clone())]);
        both.detached.clear();
        let config = both.over(&file);
        assert_eq!(config, file);
    }
}
