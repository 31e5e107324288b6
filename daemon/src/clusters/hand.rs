//! What an admin does with clusters while the daemon runs: adding one by its kubeconfig, removing it, leaving one and coming back.

use std::collections::BTreeSet;

use fipd_core::{Action, Actor, Text};

use super::{
    ClustersError,
    kept::{Added, Kept, note_attached},
    kubeconfig,
    registry::Registry,
    settle::Standings,
};

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
    /// Takes a cluster in, or gives one that was added before another kubeconfig or other systems.
    pub(super) async fn add(&mut self, upload: Upload, actor: Actor) -> Result<(), ClustersError> {
        let name = upload.name.clone();
        self.only_by_hand(&name)?;
        kubeconfig::check_text(&upload.kubeconfig, &format!("of {name}"))
            .map_err(|refused| ClustersError::Invalid("kubeconfig", refused.to_string()))?;
        let added = Added {
            systems: upload.systems,
            settings: upload.settings,
            kubeconfig: upload.kubeconfig.into(),
        };
        let cluster = added
            .cluster(&name)
            .map_err(|wrong| ClustersError::Invalid("cluster", wrong))?;
        let systems: Vec<_> = cluster.systems.iter().map(ToString::to_string).collect();
        let mut kept = self.kept.clone();
        let again = kept.added.insert(name.clone(), added).is_some();
        kept.detached.remove(&name);
        self.keep(kept).await?;
        let how = if again { "added again" } else { "added" };
        let what = format!("cluster {name} {how}, systems: {}", systems.join(", "));
        self.note(what, actor).await
    }

    /// Takes a cluster out that was added by hand. Releases nothing.
    pub(super) async fn remove(&mut self, name: &Text, actor: Actor) -> Result<(), ClustersError> {
        if !self.kept.added.contains_key(name) {
            self.only_by_hand(name)?;
            return Err(ClustersError::Unknown(name.clone()));
        }
        let mut kept = self.kept.clone();
        kept.added.remove(name);
        kept.detached.remove(name);
        self.keep(kept).await?;
        let what = format!("cluster {name} removed; its leases stay until it is forgotten");
        self.note(what, actor).await
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
        self.keep(kept).await?;
        let how = if attached {
            "attached again"
        } else {
            "detached: all systems are off"
        };
        self.note(format!("cluster {name} {how}"), actor).await
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

    async fn keep(&mut self, kept: Kept) -> Result<(), ClustersError> {
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

    async fn note(&self, what: String, actor: Actor) -> Result<(), ClustersError> {
        tracing::info!(%actor, "{what}");
        let noted = self.ipam.note(Action::ClusterChanged, what, actor);
        Ok(noted.await?)
    }

    /// Keeps the list of clusters that hold something of fipd's.
    pub(super) async fn note_attached(&mut self, standings: &Standings) {
        let attached = |name: &Text| {
            let systems = self.sites.get(name).map(|site| &site.spec.systems);
            let reached = standings.get(name).is_some_and(|one| one.id.is_some());
            reached && systems.is_some_and(|systems| !systems.is_empty())
        };
        let names: BTreeSet<Text> = standings
            .keys()
            .filter(|name| attached(name))
            .cloned()
            .collect();
        let Some(data_dir) = self.data_dir.clone() else {
            return;
        };
        if self.attached.as_ref() == Some(&names) {
            return;
        }
        let noted = names.clone();
        let done = tokio::task::spawn_blocking(move || note_attached(&data_dir, &noted)).await;
        match done.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            Ok(()) => self.attached = Some(names),
            Err(error) => tracing::warn!(%error, "the list of attached clusters is not up to date"),
        }
    }
}
