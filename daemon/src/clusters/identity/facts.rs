//! What is known of the ways to each cluster, from sites and links.

use std::collections::BTreeMap;

use fipd_core::{ClusterId, Text};

use super::{Facts, Seen, WayKey, apart, secret};
use crate::{
    clusters::{
        connect,
        registry::{ManagedSite, Registry, Running},
    },
    config::{Draws, HostRole},
};

impl Registry {
    /// The ways to each cluster, in the order in which they count. A way whose name is another cluster's is in none.
    pub(super) fn groups(&self) -> BTreeMap<ClusterId, Vec<Facts>> {
        let sites = self.sites_in_order();
        let mut groups: BTreeMap<ClusterId, Vec<(usize, WayKey, Facts)>> = BTreeMap::new();
        let mut unknown = Vec::new();
        for (order, site) in sites.iter().enumerate() {
            let owner = self.owner(&site.spec.name);
            for (key, facts, id) in self.ways_of(site, owner.as_ref()) {
                match id {
                    Some(id) if owner.as_ref().is_none_or(|owner| *owner == id) => {
                        groups.entry(id).or_default().push((order, key, facts));
                    }
                    Some(_) => {}
                    None => unknown.push((order, key, facts)),
                }
            }
        }
        let known = |id: &ClusterId| self.ipam.read(|ledger| ledger.cluster(id).is_some());
        groups
            .into_iter()
            .map(|(id, mut ways)| {
                // Any of those that were not heard of may be another way to a new cluster.
                if !known(&id) {
                    ways.extend(unknown.iter().cloned());
                }
                ways.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
                (id, ways.into_iter().map(|(_, _, facts)| facts).collect())
            })
            .collect()
    }

    pub(super) fn owner(&self, name: &Text) -> Option<ClusterId> {
        let owner =
            |ledger: &fipd_core::Ledger| ledger.cluster_by_name(name).map(|one| one.id.clone());
        self.ipam.read(owner)
    }

    fn ways_of(
        &self,
        site: &ManagedSite,
        owner: Option<&ClusterId>,
    ) -> Vec<(WayKey, Facts, Option<ClusterId>)> {
        let spec = &site.spec;
        let admins = self.kept.same_as.get(&spec.name).cloned();
        let same_as = spec.same_as.clone().or(admins);
        let strict = self.strict(site);
        let ways = site.links.iter().map(|(way, link)| {
            let key = (spec.name.clone(), way.clone());
            let client = link.up.as_ref().map(|up| (link.serial, up.generation));
            let heard = link.up.is_some() || link.error.is_some();
            let facts = Facts {
                proved: client.is_some() && self.proofs.proved.get(&key).copied() == client,
                key: key.clone(),
                same_as: same_as.clone(),
                strict,
                answers: heard.then_some(link.answers),
                shown: link.up.as_ref().map(|up| up.shown.clone()),
            };
            let id = match &link.up {
                Some(up) => Some(self.target(&up.id, &up.shown.secret, owner)),
                None => owner.cloned(),
            };
            (key, facts, id)
        });
        ways.collect()
    }

    /// Whether what runs there holds leases, or decides which clusters have left.
    fn strict(&self, site: &ManagedSite) -> bool {
        let spec = &site.spec;
        if self.file.role == HostRole::Agent || self.kept.detached.contains(&spec.name) {
            return false;
        }
        let discovery = self.config.discovery.as_ref();
        let source = discovery.is_some_and(|discovery| spec.names.contains(&discovery.cluster));
        source
            || spec
                .systems
                .iter()
                .any(|system| spec.settings.draws(system) != Draws::Nothing)
    }

    /// Which right is missing where nothing but UID and CA tell the cluster of a session from its clones.
    pub(in crate::clusters) fn without_secret(
        &self,
        site: &ManagedSite,
        running: &Running,
    ) -> Option<Text> {
        let unknown = running.session.identity_namespace().is_none() && self.strict(site);
        let (site, way) = &running.over;
        let link = &self.sites.get(site)?.spec.links.get(way)?;
        unknown.then(|| {
            format!(
                "fipd may not keep the Secret {}/{}, so that only UID and CA tell the cluster from its clones: give fipd's user the \
                 role of packaging/rbac/identity.yaml (secrets: create, and get, update and delete of {}) in that namespace",
                link.namespace,
                secret::NAME,
                secret::NAME
            )
            .into()
        })
    }

    /// Which of the clusters with this UID the way is about.
    fn target(&self, uid: &ClusterId, secret: &Seen, owner: Option<&ClusterId>) -> ClusterId {
        if let Seen::Value { nonce, .. } = secret {
            let apart = apart(uid, nonce);
            if self.ipam.read(|ledger| ledger.cluster(&apart).is_some()) {
                return apart;
            }
        }
        let owner = owner.filter(|owner| connect::uid(owner) == &*uid.0);
        owner.unwrap_or(uid).clone()
    }

    /// The names of a site that no other cluster has.
    pub(super) fn names_for(&self, site: &Text, id: &ClusterId) -> Vec<Text> {
        let Some(site) = self.sites.get(site) else {
            return Vec::new();
        };
        self.ipam.read(|ledger| {
            let free = |name: &&Text| {
                let known = ledger.cluster_by_name(name);
                // An alias that is another site's own name may turn out to be another cluster.
                let others = **name != site.spec.name && self.sites.contains_key(*name);
                known.map_or(!others, |known| known.id == *id)
            };
            site.spec.names.iter().filter(free).cloned().collect()
        })
    }
}
