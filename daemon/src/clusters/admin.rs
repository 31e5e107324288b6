//! What an admin does with clusters while the daemon runs: adding one by its kubeconfig, removing it, leaving one and coming back.

use std::collections::{BTreeMap, BTreeSet};

use fipd_core::{Action, Actor, ClusterId, ClusterRecord, System, Text};

use super::{ClustersError, kubeconfig, registry::Registry};
use crate::clusters::{
    converge::Standings,
    registrations::{Added, Registrations},
};
use crate::config::checked_cluster_name;

/// What the admin has.
#[derive(Clone)]
pub struct Upload {
    pub name: Text,
    /// Must be self-contained.
    pub kubeconfig: String,
    pub systems: BTreeSet<String>,
    /// TOML, as below `[[cluster]]`; may be empty.
    pub settings: String,
}

impl Registry {
    /// Takes a cluster in, or gives one that was added before another kubeconfig or other systems. One that was left stays so:
    /// whether it is.
    pub(super) async fn add(
        &mut self,
        upload: Upload,
        actor: Actor,
    ) -> Result<bool, ClustersError> {
        let name = upload.name.clone();
        checked_cluster_name(&name).map_err(|wrong| ClustersError::Invalid("name", wrong))?;
        self.only_by_hand(&name)?;
        kubeconfig::check_text(&upload.kubeconfig, &format!("of {name}"))
            .map_err(|refused| ClustersError::Invalid("kubeconfig", refused.to_string()))?;
        let added = Added {
            systems: upload.systems,
            settings: upload.settings,
            kubeconfig: upload.kubeconfig.into(),
        };
        let cluster = added
            .cluster(self.file.known, &name)
            .map_err(|wrong| ClustersError::Invalid("cluster", wrong))?;
        let systems: Vec<_> = cluster.systems.iter().map(ToString::to_string).collect();
        let mut kept = self.kept.clone();
        let again = kept.added.insert(name.clone(), added).is_some();
        let detached = kept.detached.contains(&name);
        let how = if again { "added again" } else { "added" };
        let off = if detached {
            ", all off: it is detached"
        } else {
            ""
        };
        let what = format!("cluster {name} {how}, systems: {}{off}", systems.join(", "));
        self.note_and_keep(what, kept, actor).await?;
        Ok(detached)
    }

    /// Takes a cluster out that was added by hand. Releases nothing. Whether something of fipd's may be there.
    pub(super) async fn remove(
        &mut self,
        name: &Text,
        actor: Actor,
    ) -> Result<bool, ClustersError> {
        if !self.kept.added.contains_key(name) {
            self.only_by_hand(name)?;
            return Err(ClustersError::Unknown(name.clone()));
        }
        let mut kept = self.kept.clone();
        kept.added.remove(name);
        let held = kept.held.contains_key(name);
        // One that comes from elsewhere by this name, or comes back, is not attached by that.
        if !held && !self.elsewhere(name) {
            kept.detached.remove(name);
        }
        let what = format!("cluster {name} removed; its leases stay until it is forgotten");
        self.note_and_keep(what, kept, actor).await?;
        Ok(held)
    }

    /// Whether the configuration file or the discovery has a cluster of this name.
    fn elsewhere(&self, name: &Text) -> bool {
        let found = self.found.as_ref();
        let mut found = found.into_iter().flat_map(|found| &found.found);
        self.file.cluster(name).is_some() || found.any(|found| found.name == *name)
    }

    /// Switches all systems of a cluster off, or on again as they are configured, and remembers it.
    pub(super) async fn attach(
        &mut self,
        name: &Text,
        attached: bool,
        actor: Actor,
    ) -> Result<(), ClustersError> {
        if !self.sites.contains_key(name) {
            return Err(ClustersError::Unknown(name.clone()));
        }
        let mut kept = self.kept.clone();
        let changed = match attached {
            true => kept.detached.remove(name),
            false => kept.detached.insert(name.clone()),
        };
        if !changed {
            return Ok(());
        }
        let how = if attached {
            "attached again"
        } else {
            "detached: all systems are off"
        };
        let what = format!("cluster {name} {how}");
        self.note_and_keep(what, kept, actor).await
    }

    /// Says where a cluster comes from that admins cannot take out here.
    fn only_by_hand(&self, name: &Text) -> Result<(), ClustersError> {
        let from = if self.file.cluster(name).is_some() {
            "the configuration file"
        } else if self
            .sites
            .get(name)
            .is_some_and(|site| site.spec.discovered)
        {
            "[discovery], through Rancher's Secrets"
        } else {
            return Ok(());
        };
        Err(ClustersError::Elsewhere {
            name: name.clone(),
            from,
        })
    }

    /// Puts it in force once the audit log has it: what cannot be noted is not done.
    pub(super) async fn note_and_keep(
        &mut self,
        what: String,
        kept: Registrations,
        actor: Actor,
    ) -> Result<(), ClustersError> {
        if self.data_dir.is_none() {
            return Err(ClustersError::NoPlace);
        }
        self.note(what.clone(), actor.clone()).await?;
        let done = self.keep(kept).await;
        if let Err(error) = &done {
            let undone = format!("not done: {what}: {error}");
            if let Err(error) = self.note(undone, actor).await {
                tracing::warn!(%error, "not in the audit log");
            }
        }
        done
    }

    async fn keep(&mut self, kept: Registrations) -> Result<(), ClustersError> {
        let Some(data_dir) = self.data_dir.clone() else {
            return Err(ClustersError::NoPlace);
        };
        let saved = kept.clone();
        let done = tokio::task::spawn_blocking(move || saved.save(&data_dir)).await;
        let done = done.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        done.map_err(ClustersError::NotKept)?;
        self.kept = kept;
        self.config = self.kept.over(&self.file);
        Ok(())
    }

    pub(super) async fn note(&self, what: String, actor: Actor) -> Result<(), ClustersError> {
        tracing::info!(%actor, "{what}");
        let noted = self.ipam.note(Action::ClusterChanged, what, actor);
        Ok(noted.await?)
    }

    /// What the store knows of the cluster that goes by this name.
    pub(super) fn record_of(&self, name: &Text) -> Option<ClusterRecord> {
        (self.ipam).read(|ledger| ledger.cluster_by_name(name).cloned())
    }

    /// What it knows of the one with this id.
    pub(super) fn record(&self, id: &ClusterId) -> Option<ClusterRecord> {
        self.ipam.read(|ledger| ledger.cluster(id).cloned())
    }

    /// Every name of the cluster that goes by this one.
    pub(super) fn names_of(&self, name: &Text) -> BTreeSet<Text> {
        let names = self.record_of(name).map(|record| record.names);
        let names = names.into_iter().flatten();
        names.chain([name.clone()]).collect()
    }

    /// Nothing of fipd's is left in a cluster.
    pub(super) async fn left(&mut self, name: &Text, actor: Actor) -> Result<(), ClustersError> {
        let names = self.names_of(name);
        self.forget_proof(name, &names).await?;
        let mut kept = self.kept.clone();
        kept.held.retain(|name, _| !names.contains(name));
        if kept == self.kept {
            return Ok(());
        }
        let what = format!("cluster {name}: nothing of fipd's is left there");
        self.note_and_keep(what, kept, actor).await
    }

    /// Nobody asks any more what is left in the clusters of these names. Whether anything was.
    pub(super) async fn forget_held(
        &mut self,
        names: &[Text],
        actor: Actor,
    ) -> Result<bool, ClustersError> {
        let mut kept = self.kept.clone();
        for name in names {
            kept.held.remove(name);
            kept.same_as.remove(name);
            if !self.sites.contains_key(name) {
                kept.detached.remove(name);
            }
        }
        let any = kept != self.kept;
        if any {
            let what = format!(
                "clusters {}: what is left there is not asked after any more",
                names.join(", ")
            );
            self.note_and_keep(what, kept, actor).await?;
        }
        Ok(any)
    }

    /// Notes in which clusters systems are on: something of fipd's is there until they were left cleanly.
    pub(super) async fn note_held(&mut self, standings: &Standings) {
        let reached = |name: &Text| {
            let standing = standings.get(name);
            standing.is_some_and(|one| one.id.is_some() && one.joined.is_none())
        };
        let mut held = BTreeMap::new();
        for (name, site) in self.sites.iter().filter(|(name, _)| reached(name)) {
            let known = self.kept.held.get(name);
            let new = |system: &&System| known.is_none_or(|known| !known.contains(*system));
            let news: BTreeSet<System> = site.spec.systems.iter().filter(new).cloned().collect();
            if !news.is_empty() {
                held.insert(name.clone(), news);
            }
        }
        if held.is_empty() || self.data_dir.is_none() {
            return;
        }
        let mut kept = self.kept.clone();
        for (name, systems) in held {
            kept.held.entry(name).or_default().extend(systems);
        }
        if let Err(error) = self.keep(kept).await {
            tracing::warn!(%error, "the list of attached clusters is not up to date");
        }
    }
}
