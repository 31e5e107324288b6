//! Which cluster each site is, which of several sites of one cluster leads, and who claims a name that is not its.
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use fipd_core::{ClusterId, Text};

use super::sites::SiteWay;

/// What a site claims to be.
#[derive(Clone, Debug, Default)]
pub(super) struct SiteClaim {
    pub site: Text,
    /// Its ways that have proved which cluster they lead to, and those to a cluster that its name is not; whether each answers.
    pub ways: Vec<(SiteWay, ClusterId, bool)>,
    /// Ways that are enough for systems without leases only.
    pub compared: Vec<(SiteWay, ClusterId, bool)>,
    /// The cluster that one of its ways is still to prove.
    pub pending: Option<ClusterId>,
    pub doubt: Option<SiteDoubt>,
    /// Whom the site's name belongs to.
    pub owner: Option<ClusterId>,
    /// 0: it led last; else its place among the names that the owner is known by. `None`: it is new.
    pub rank: Option<usize>,
}

/// What a site is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SiteStanding {
    /// `None`: not reached yet, and its name is nobody's.
    pub id: Option<ClusterId>,
    /// (whom the name belongs to, who answers instead)
    pub conflict: Option<(ClusterId, ClusterId)>,
    /// The site that leads, where that is another one.
    pub joined: Option<Text>,
    /// Why one of its ways has not proved which cluster it leads to.
    pub doubt: Option<SiteDoubt>,
}

/// What keeps a way from being used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SiteDoubt {
    /// It may still prove itself.
    Waits(Text),
    /// Only an admin can tell.
    Conflict(Text),
}

/// The ways to one identity, best first, and the site that leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lead {
    pub site: Text,
    /// (site, way, answers now)
    pub ways: Vec<(Text, SiteWay, bool)>,
}

/// Decides over all claims. The name that led last leads, then the one that was known first, whatever is added later; new
/// names come in the order of the claims.
pub(super) fn decide(
    claims: &[SiteClaim],
) -> (BTreeMap<Text, SiteStanding>, BTreeMap<ClusterId, Lead>) {
    let mut standings: BTreeMap<Text, SiteStanding> = BTreeMap::new();
    let mut also = Vec::new();
    let mut leads: BTreeMap<ClusterId, Lead> = BTreeMap::new();
    let mut claims: Vec<&SiteClaim> = claims.iter().collect();
    claims.sort_by_key(|claim| claim.rank.unwrap_or(usize::MAX));
    let proven: BTreeSet<&ClusterId> = claims
        .iter()
        .flat_map(|claim| &claim.ways)
        .map(|(_, id, _)| id)
        .collect();
    // Its systems with leases are not to run over a way that is only compared.
    let pending: BTreeSet<&ClusterId> = claims
        .iter()
        .filter_map(|claim| claim.pending.as_ref())
        .collect();
    for claim in claims {
        let compared = claim.compared.iter();
        let weak = compared
            .clone()
            .filter(|(_, id, _)| !proven.contains(id) && !pending.contains(id));
        let ways: Vec<&(SiteWay, ClusterId, bool)> = claim.ways.iter().chain(weak).collect();
        let first = || {
            let all = || ways.iter().copied().chain(&claim.compared);
            let up = all().find(|(_, _, up)| *up);
            up.or(all().next()).map(|(_, id, _)| id.clone())
        };
        let id = claim.owner.clone().or_else(first);
        let mut standing = SiteStanding {
            id: id.clone(),
            doubt: claim.doubt.clone(),
            ..SiteStanding::default()
        };
        let Some(id) = id else {
            standings.insert(claim.site.clone(), standing);
            continue;
        };
        if let Some(pending) = claim.pending.as_ref().filter(|pending| **pending == id) {
            leads.entry(pending.clone()).or_insert_with(|| Lead {
                site: claim.site.clone(),
                ways: Vec::new(),
            });
        }
        // It is the same cluster as one that others lead to.
        if claim
            .compared
            .iter()
            .any(|(_, found, _)| *found == id && proven.contains(found))
        {
            also.push((claim.site.clone(), id.clone()));
        }
        for (way, found, up) in ways {
            if *found != id {
                standing.conflict.get_or_insert((id.clone(), found.clone()));
                continue;
            }
            let lead = leads.entry(id.clone()).or_insert_with(|| Lead {
                site: claim.site.clone(),
                ways: Vec::new(),
            });
            if lead.site != claim.site {
                standing.joined = Some(lead.site.clone());
            }
            lead.ways.push((claim.site.clone(), way.clone(), *up));
        }
        standings.insert(claim.site.clone(), standing);
    }
    leads.retain(|_, lead| !lead.ways.is_empty());
    for (site, id) in also {
        let lead = leads.get(&id).filter(|lead| lead.site != site);
        if let (Some(lead), Some(standing)) = (lead, standings.get_mut(&site)) {
            standing.joined.get_or_insert_with(|| lead.site.clone());
        }
    }
    (standings, leads)
}

impl Lead {
    /// The way to use: one of the leading site that answers, else another that does, else the current one; the current one
    /// of several.
    pub fn choose(&self, current: Option<&(Text, SiteWay)>) -> Option<(Text, SiteWay)> {
        let is_current =
            |site: &Text, way: &SiteWay| current.is_some_and(|(s, w)| s == site && w == way);
        let up = || self.ways.iter().filter(|(_, _, up)| *up);
        let best = up().min_by_key(|(site, way, _)| (*site != self.site, !is_current(site, way)));
        let kept = || {
            self.ways
                .iter()
                .find(|(site, way, _)| is_current(site, way))
        };
        best.or_else(kept)
            .map(|(site, way, _)| (site.clone(), way.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ClusterId {
        ClusterId(text.into())
    }

    fn claim(site: &str, ways: &[(&str, bool)], owner: Option<&str>) -> SiteClaim {
        let way = |(n, (found, up)): (usize, &(&str, bool))| {
            let way = if n == 0 {
                SiteWay::Config
            } else {
                SiteWay::Secret(format!("ns/{n}").into())
            };
            (way, id(found), *up)
        };
        SiteClaim {
            site: site.into(),
            ways: ways.iter().enumerate().map(way).collect(),
            compared: Vec::new(),
            pending: None,
            doubt: None,
            owner: owner.map(id),
            rank: owner.map(|_| 0),
        }
    }

    #[test]
    fn the_name_that_was_known_first_leads_also_while_it_is_down() {
        let known = |site, up, rank| SiteClaim {
            rank: Some(rank),
            ..claim(site, &[("X", up)], Some("X"))
        };
        let thief = claim("athief", &[("X", true)], None);
        for up in [true, false] {
            let victim = known("victim", up, 0);
            // Added, sorted first; and remembered as a name of the cluster since.
            for thief in [thief.clone(), known("athief", true, 1)] {
                let (standings, leads) = decide(&[thief, victim.clone()]);
                assert_eq!(&*leads[&id("X")].site, "victim");
                assert_eq!(standings["athief"].joined.as_deref(), Some("victim"));
                let first = (Text::from("victim"), SiteWay::Config);
                assert_eq!(leads[&id("X")].choose(None) == Some(first), up);
            }
        }
    }

    #[test]
    fn systems_with_leases_wait_while_only_another_names_comparison_leads_there() {
        let waiting = SiteClaim {
            pending: Some(id("X")),
            doubt: Some(SiteDoubt::Waits("its Secret".into())),
            ..claim("a", &[], Some("X"))
        };
        let left = SiteClaim {
            compared: vec![(SiteWay::Config, id("X"), true)],
            rank: Some(1),
            ..claim("b", &[], Some("X"))
        };
        let (_, leads) = decide(&[waiting, left.clone()]);
        assert!(leads.is_empty(), "nothing of a over b: {leads:?}");
        let (_, leads) = decide(&[left]);
        assert_eq!(&*leads[&id("X")].site, "b", "its own systems");
    }

    #[test]
    fn a_new_name_is_whoever_answers() {
        let (standings, leads) = decide(&[claim("a", &[("X", true)], None), claim("b", &[], None)]);
        assert_eq!(
            standings["a"],
            SiteStanding {
                id: Some(id("X")),
                ..SiteStanding::default()
            }
        );
        assert_eq!(standings["b"], SiteStanding::default());
        assert_eq!(leads.keys().collect::<Vec<_>>(), [&id("X")]);
    }

    #[test]
    fn a_known_name_with_another_identity_is_stopped() {
        let (standings, leads) = decide(&[claim("a", &[("Y", true)], Some("X"))]);
        assert_eq!(standings["a"].conflict, Some((id("X"), id("Y"))));
        assert!(
            leads.is_empty(),
            "nothing may run on the stranger: {leads:?}"
        );
    }

    #[test]
    fn a_stranger_under_one_of_two_ways_does_not_stop_the_other() {
        let (standings, leads) = decide(&[claim("a", &[("X", true), ("Y", true)], None)]);
        assert_eq!(standings["a"].id, Some(id("X")));
        assert_eq!(standings["a"].conflict, Some((id("X"), id("Y"))));
        assert_eq!(leads.len(), 1);
        assert_eq!(leads[&id("X")].ways.len(), 1);
    }

    #[test]
    fn the_second_name_of_a_cluster_joins_the_first() {
        let (standings, leads) = decide(&[
            claim("a", &[("X", false)], Some("X")),
            claim("b", &[("X", true)], None),
        ]);
        assert_eq!(standings["b"].joined.as_deref(), Some("a"));
        assert_eq!(&*leads[&id("X")].site, "a");
        assert_eq!(
            leads[&id("X")].choose(None),
            Some(("b".into(), SiteWay::Config)),
            "the way that answers is used"
        );
    }

    #[test]
    fn the_way_in_use_stays_while_it_answers_and_the_leading_site_comes_first() {
        let lead = |a, b| Lead {
            site: "a".into(),
            ways: vec![
                ("a".into(), SiteWay::Config, a),
                ("b".into(), SiteWay::Config, b),
            ],
        };
        let first = Some(("a".into(), SiteWay::Config));
        let current = ("b".into(), SiteWay::Config);
        assert_eq!(lead(true, true).choose(Some(&current)), first);
        assert_eq!(lead(true, false).choose(Some(&current)), first);
        assert_eq!(
            lead(false, true).choose(None),
            Some(("b".into(), SiteWay::Config))
        );
        assert_eq!(lead(false, false).choose(Some(&current)), Some(current));
        assert_eq!(lead(false, false).choose(None), None);
        let secret = |name: &str| SiteWay::Secret(name.into());
        let two = Lead {
            site: "a".into(),
            ways: ["x", "y"].map(|way| ("a".into(), secret(way), true)).into(),
        };
        let current = ("a".into(), secret("y"));
        assert_eq!(two.choose(Some(&current)), Some(current));
    }
}
