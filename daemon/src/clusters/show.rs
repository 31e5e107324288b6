//! What the registry shows of clusters.

use std::collections::{BTreeMap, BTreeSet};

use fipd_core::{ClusterId, System, Text};

use super::{
    ClusterState, ClusterView, Found, connect,
    identity::Verdict,
    registry::{LinkState, Registry, Site},
    sites::SiteSpec,
};
use crate::clusters::{
    converge::Standings,
    identity_conflicts::{Doubt, Standing},
};
use crate::config::RancherFipRole;

impl Registry {
    pub(super) fn show(&mut self, standings: &Standings) {
        let now = self.ipam.now();
        for (name, site) in &mut self.sites {
            let standing = standings.get(name).cloned().unwrap_or_default();
            let used = site.links.iter().any(|(way, link)| {
                let verdict = self.proofs.verdicts.get(&(name.clone(), way.clone()));
                let good = matches!(
                    verdict,
                    Some((_, Verdict::Proven | Verdict::Vouched | Verdict::Compared))
                );
                good && link.answers
            });
            let (state, error) = state_of(site, &standing, used);
            if site.state != state {
                site.state = state;
                site.since = now;
            }
            site.last_error = error;
        }
        self.clusters.publish(self, standings);
    }
}

/// `used`: one of its ways has proved what it leads to.
fn state_of(site: &Site, standing: &Standing, used: bool) -> (ClusterState, Option<Text>) {
    let conflict = standing.conflict.as_ref().map(|(expected, found)| -> Text {
        format!(
            "{} is known as cluster {expected}, but cluster {found} answers: nothing runs on it and nothing is released. \
             Correct its kubeconfig, or run `fipd clusters forget {}` if the old cluster is gone for good",
            site.spec.name, site.spec.name
        )
        .into()
    });
    let answers = |link: &LinkState| {
        let uid = standing.id.as_ref().map(connect::uid);
        link.answers && link.up.as_ref().map(|up| &*up.id.0) == uid
    };
    let error = || site.links.values().find_map(|link| link.error.clone());
    let (waits, doubt) = match &standing.doubt {
        Some(Doubt::Conflict(why)) => (None, Some(why.clone())),
        Some(Doubt::Waits(why)) => (Some(why.clone()), None),
        None => (None, None),
    };
    if used && site.links.values().any(answers) {
        if let Some(why) = too_large(site) {
            return (ClusterState::Degraded, Some(why));
        }
        return match &standing.joined {
            Some(lead) => (
                ClusterState::Joined,
                Some(format!("the same cluster as {lead}, whose settings count").into()),
            ),
            None => (ClusterState::Ready, conflict.or(doubt).or_else(error)),
        };
    }
    if conflict.is_some() || doubt.is_some() {
        return (ClusterState::IdentityConflict, conflict.or(doubt));
    }
    if !site.links.is_empty() && site.links.values().all(|link| link.refused) {
        return (ClusterState::Refused, error());
    }
    let state = if standing.id.is_some() {
        ClusterState::Degraded
    } else {
        ClusterState::Connecting
    };
    (state, error().or(waits))
}

/// What a way to it has answered that is too large to be read or kept.
fn too_large(site: &Site) -> Option<Text> {
    let ups = site.links.values().filter_map(|link| link.up.as_ref());
    ups.filter_map(|up| up.memory.trouble()).next()
}

/// As it is configured, and as it was called before.
fn names(registry: &Registry, own: &[Text], id: Option<&ClusterId>) -> Vec<Text> {
    let recorded = id.and_then(|id| {
        registry
            .ipam
            .read(|ledger| ledger.cluster(id).map(|record| record.names.clone()))
    });
    let mut names = own.to_vec();
    let recorded = recorded.into_iter().flatten();
    names.extend(recorded.filter(|name| !own.contains(name)));
    names
}

/// Sites with a cluster manager that was on there since they were last left cleanly.
pub(super) fn managers(
    registry: &Registry,
    standings: &BTreeMap<Text, Standing>,
) -> BTreeSet<Text> {
    let leads = |name: &Text| {
        let standing = standings.get(name);
        standing.is_none_or(|one| one.joined.is_none())
    };
    let was_on = |name: &Text| {
        let held = registry.kept.held.get(name);
        held.is_some_and(|systems| systems.contains(&System::rancher_fip()))
    };
    let managing = registry.sites.iter().filter(|(name, site)| {
        let family = &site.spec.settings.rancher_fip;
        let manages = family.role == RancherFipRole::Management && family.cluster_manager.enabled;
        manages && leads(name) && was_on(name)
    });
    managing.map(|(name, _)| name.clone()).collect()
}

/// All sites, and clusters that only have leases left.
pub(super) fn views(registry: &Registry, standings: &BTreeMap<Text, Standing>) -> Vec<ClusterView> {
    let mut views: BTreeMap<Text, ClusterView> = BTreeMap::new();
    for (name, site) in &registry.sites {
        let standing = standings.get(name).cloned().unwrap_or_default();
        let running = standing
            .id
            .as_ref()
            .and_then(|id| registry.sessions.get(id))
            .filter(|_| standing.joined.is_none());
        let held_back = running.map_or_else(Vec::new, |running| {
            let held_back = running.session.shared.held_back.borrow();
            held_back.values().cloned().collect()
        });
        let waiting = || {
            let waiting = running?.session.shared.waiting.borrow();
            waiting.values().next().cloned()
        };
        let sightings = running.and_then(|one| one.session.shared.sightings.borrow().clone());
        let troubles = running.map(|running| running.session.shared.troubles.borrow().clone());
        let mut troubles = troubles.unwrap_or_default();
        let first = || {
            let (part, why) = troubles.first_key_value()?;
            Some(format!("{part}: {why}").into())
        };
        let error = site.last_error.clone().or_else(waiting).or_else(first);
        if let Some(why) = running.and_then(|running| registry.without_secret(site, running)) {
            troubles.insert("identity", why);
        }
        let names = names(registry, &site.spec.names, standing.id.as_ref());
        let server = site
            .links
            .values()
            .find_map(|link| link.up.as_ref().map(|up| up.server.clone()));
        let view = ClusterView {
            name: name.clone(),
            names,
            id: standing.id,
            state: site.state,
            last_error: error,
            since: site.since,
            systems: site.spec.systems.clone(),
            server,
            discovered: site.spec.discovered,
            found: match &site.spec {
                SiteSpec { uploaded: true, .. } => Found::Uploaded,
                SiteSpec {
                    discovered: true, ..
                } => Found::Discovered,
                SiteSpec { .. } => Found::Configured,
            },
            detached: registry.kept.detached.contains(name),
            lead: standing.joined,
            leases: 0,
            held_back,
            sightings,
            troubles,
        };
        views.insert(name.clone(), view);
    }
    registry.ipam.read(|ledger| {
        for record in ledger.clusters() {
            let shown = views.values().any(|view| view.id.as_ref() == Some(&record.id));
            let Some(name) = record.names.first().filter(|_| !shown && ledger.cluster_lease_count(&record.id, None) > 0) else {
                continue;
            };
            views.entry(name.clone()).or_insert_with(|| ClusterView {
                name: name.clone(),
                names: record.names.clone(),
                id: Some(record.id.clone()),
                state: ClusterState::Stopped,
                last_error: Some(format!("neither configured nor discovered; its leases are kept until `fipd clusters forget {name}`").into()),
                since: record.first_seen,
                systems: BTreeSet::new(),
                server: None,
                discovered: record.discovered,
                found: Found::Remembered,
                detached: false,
                lead: None,
                leases: 0,
                held_back: Vec::new(),
                sightings: None,
                troubles: BTreeMap::new(),
            });
        }
    });
    views.into_values().collect()
}
