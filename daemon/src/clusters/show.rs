//! What the registry shows of clusters.

use std::collections::{BTreeMap, BTreeSet};

use fipd_core::{ClusterId, ClusterRecord, System, Text};

use super::{
    ClusterOrigin, ClusterState, ClusterView, connect,
    identity::Verdict,
    registry::{LinkState, ManagedSite, Registry},
};
use crate::clusters::{
    converge::{Standings, leads},
    identity_conflicts::{SiteDoubt, SiteStanding},
};

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
fn state_of(
    site: &ManagedSite,
    standing: &SiteStanding,
    used: bool,
) -> (ClusterState, Option<Text>) {
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
        Some(SiteDoubt::Conflict(why)) => (None, Some(why.clone())),
        Some(SiteDoubt::Waits(why)) => (Some(why.clone()), None),
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
fn too_large(site: &ManagedSite) -> Option<Text> {
    let ups = site.links.values().filter_map(|link| link.up.as_ref());
    ups.filter_map(|up| up.memory.trouble()).next()
}

/// As it is configured, and as it was called before.
fn names(registry: &Registry, own: &[Text], id: Option<&ClusterId>) -> Vec<Text> {
    let recorded = id.and_then(|id| registry.record(id));
    let recorded = recorded.into_iter().flat_map(|record| record.names);
    let more = recorded.filter(|name| !own.contains(name));
    own.iter().cloned().chain(more).collect()
}

/// Sites with the systems whose cluster manager was on there since they were last left cleanly.
pub(super) fn managers(
    registry: &Registry,
    standings: &BTreeMap<Text, SiteStanding>,
) -> BTreeSet<(Text, System)> {
    let managing = |(name, site): (&Text, &ManagedSite)| {
        let held = registry.kept.held.get(name).into_iter().flatten();
        let settings = &site.spec.settings;
        let manages = |system: &&System| settings.any(system).is_some_and(|of| of.manages_guests());
        let managing = held.filter(manages);
        let managing = managing.map(|system| (name.clone(), system.clone()));
        managing.collect::<Vec<_>>()
    };
    let sites = registry.sites.iter();
    let leading = sites.filter(|(name, _)| leads(standings, name));
    leading.flat_map(managing).collect()
}

/// All sites, and clusters that only have leases left.
pub(super) fn views(
    registry: &Registry,
    standings: &BTreeMap<Text, SiteStanding>,
) -> Vec<ClusterView> {
    let view = |(name, site): (&Text, &ManagedSite)| {
        let standing = standings.get(name).cloned().unwrap_or_default();
        (name.clone(), view_of(registry, site, standing))
    };
    let mut views: BTreeMap<Text, ClusterView> = registry.sites.iter().map(view).collect();
    let shown: BTreeSet<ClusterId> = views.values().filter_map(|view| view.id.clone()).collect();
    registry.ipam.for_each_cluster(|ledger, record| {
        if shown.contains(&record.id) || ledger.cluster_lease_count(&record.id, None) == 0 {
            return;
        }
        if let Some(name) = record.names.first() {
            let remembered = || remembered(name, record);
            views.entry(name.clone()).or_insert_with(remembered);
        }
    });
    views.into_values().collect()
}

fn view_of(registry: &Registry, site: &ManagedSite, standing: SiteStanding) -> ClusterView {
    let spec = &site.spec;
    let running = standing
        .id
        .as_ref()
        .and_then(|id| registry.sessions.get(id))
        .filter(|_| standing.joined.is_none());
    let shared = running.map(|running| &running.session.shared);
    let held_back = shared.map_or_else(Vec::new, |shared| {
        shared.held_back.borrow().values().cloned().collect()
    });
    let waiting = || shared?.waiting.borrow().values().next().cloned();
    let troubles = shared.map(|shared| shared.troubles.borrow().clone());
    let mut troubles = troubles.unwrap_or_default();
    let first = || {
        let (part, why) = troubles.first_key_value()?;
        Some(format!("{part}: {why}").into())
    };
    let last_error = site.last_error.clone().or_else(waiting).or_else(first);
    if let Some(why) = running.and_then(|running| registry.without_secret(site, running)) {
        troubles.insert("identity", why);
    }
    let mut ups = site.links.values().filter_map(|link| link.up.as_ref());
    ClusterView {
        name: spec.name.clone(),
        names: names(registry, &spec.names, standing.id.as_ref()),
        id: standing.id,
        state: site.state,
        last_error,
        since: site.since,
        systems: spec.systems.clone(),
        server: ups.next().map(|up| up.server.clone()),
        discovered: spec.discovered,
        found: match (spec.uploaded, spec.discovered) {
            (true, _) => ClusterOrigin::Uploaded,
            (false, true) => ClusterOrigin::Discovered,
            (false, false) => ClusterOrigin::Configured,
        },
        detached: registry.kept.detached.contains(&spec.name),
        lead: standing.joined,
        leases: 0,
        held_back,
        sightings: shared.and_then(|shared| shared.sightings.borrow().clone()),
        troubles,
    }
}

/// A cluster that only has leases left.
fn remembered(name: &Text, record: &ClusterRecord) -> ClusterView {
    let why = format!(
        "neither configured nor discovered; its leases are kept until `fipd clusters forget {name}`"
    );
    ClusterView {
        name: name.clone(),
        names: record.names.clone(),
        id: Some(record.id.clone()),
        state: ClusterState::Stopped,
        last_error: Some(why.into()),
        since: record.first_seen,
        discovered: record.discovered,
        found: ClusterOrigin::Remembered,
        ..ClusterView::default()
    }
}
