//! Quotas: what each project may have of each pool, what it has, and where its status says another number.

use std::collections::{BTreeMap, BTreeSet};

use fipd_crds::{
    floating_ip::{FloatingIPProjectQuota, pool_name},
    labels::QUOTA_CLEANUP,
};

use super::pool_ranges::{PoolRanges, Uses};
use super::{SiteReport, inventory::SiteInventory, parts};
use crate::adopt::{ChangeBy, FindingKind};
use crate::validation::quota::{ProjectLimits, limits, wanted};

/// Says how each quota is.
pub fn judge<'a>(
    found: &'a SiteInventory,
    known: &PoolRanges<'a>,
    uses: &Uses<'a>,
    report: &mut SiteReport,
) {
    let names = Names::of(found, known);
    for (project, quota) in &found.quotas {
        report.count("quotas", 1);
        if is_ending(quota) {
            end(project, uses, report);
            continue;
        }
        let (mut says, mut wrongs) = (Vec::new(), Vec::new());
        let taken = match limits(&quota.spec.floating_ip_quota) {
            Ok(limits) => {
                let wanted = wanted(limits, |name| names.usable(name));
                let twice = wanted.ambiguous();
                wrongs.extend(twice.clone());
                for (pool, (named, limit)) in &wanted.limits {
                    let used = uses.charged(project, pool);
                    says.push(format!("{used} of {limit} in {named}"));
                    if used > *limit {
                        wrongs.push(format!("more than allowed of {named}; they are kept"));
                    }
                }
                wrongs.extend(wanted.unknown.iter().map(|name| names.why_not(name)));
                twice.is_none().then_some(wanted)
            }
            Err(all) => {
                wrongs.extend(all.iter().map(ToString::to_string));
                None
            }
        };
        let expected = expected(found, &names, uses, (project, quota), taken.as_ref());
        if !is_so(quota, &expected) {
            let name = format!("FloatingIPProjectQuota {project}");
            report.change(ChangeBy::Itself, name, "writes its status anew");
        }
        wrongs.extend(drift(quota, &expected));
        say(project, says, wrongs, report);
    }
}

/// Whether its deletion waits for what the project has.
fn is_ending(quota: &FloatingIPProjectQuota) -> bool {
    let meta = &quota.metadata;
    let mut finalizers = meta.finalizers.iter().flatten();
    meta.deletion_timestamp.is_some() && finalizers.any(|one| one == QUOTA_CLEANUP)
}

/// The controllers end what the originals began.
fn end<'a>(project: &'a str, uses: &Uses<'a>, report: &mut SiteReport) {
    let used: u64 = uses.of_project(project).map(|(_, used)| used).sum();
    let says = format!("is being deleted, and the project has {used} addresses");
    report.wrong(FindingKind::Quota, project, says);
    let does = "ends its deletion: gives the project nothing more, and deletes its FloatingIPs but for those that Services \
                of fipd hold";
    let name = format!("FloatingIPProjectQuota {project}");
    report.change(ChangeBy::Itself, name, does);
}

fn say(project: &str, mut says: Vec<String>, mut wrongs: Vec<String>, report: &mut SiteReport) {
    let fine = wrongs.is_empty();
    says.append(&mut wrongs);
    if says.is_empty() {
        says.push("names no pool".to_owned());
    }
    report.finding(FindingKind::Quota, project, fine, parts(&says));
}

/// Pools by the names that quotas have for them.
struct Names<'a> {
    found: &'a SiteInventory,
    /// Those of which there is, or is to be, a mirror.
    usable: BTreeSet<&'a str>,
    /// By cluster and network.
    others: BTreeMap<String, Vec<&'a str>>,
}

impl<'a> Names<'a> {
    fn of(found: &'a SiteInventory, known: &PoolRanges<'a>) -> Self {
        let mut others: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        let mut usable = BTreeSet::new();
        for (name, pool) in &found.pools {
            let other = pool_name(&pool.spec.target_cluster, &pool.spec.target_network);
            others.entry(other).or_default().push(name);
            if known.get(name).is_some() || found.book.is_mirrored(name) {
                usable.insert(&**name);
            }
        }
        Self {
            found,
            usable,
            others,
        }
    }

    /// By its own name, or else by that of its cluster and network.
    fn called(&self, name: &str) -> Vec<&'a str> {
        match self.found.pools.get_key_value(name) {
            Some((own, _)) => vec![own],
            None => self.others.get(name).cloned().unwrap_or_default(),
        }
    }

    fn usable(&self, name: &str) -> Vec<&'a str> {
        let mut called = self.called(name);
        called.retain(|name| self.usable.contains(name));
        called
    }

    fn why_not(&self, name: &str) -> String {
        match (&*self.called(name), &*self.usable(name)) {
            (_, [_, _, ..]) => format!("several pools are called {name}"),
            ([], _) => format!("there is no pool {name}"),
            _ => format!("pool {name} cannot be used"),
        }
    }
}

/// What the status will say: pool, by the name that the quota has for it, and number.
///
/// `taken` are the limits of the object; `None`: it is not taken as it is, and its last limits stay.
fn expected<'a>(
    found: &'a SiteInventory,
    names: &Names<'a>,
    uses: &Uses<'a>,
    (project, quota): (&'a String, &'a FloatingIPProjectQuota),
    taken: Option<&ProjectLimits<&'a str>>,
) -> BTreeMap<String, u64> {
    let named: BTreeMap<&str, &str> = match taken {
        Some(wanted) => wanted
            .limits
            .iter()
            .map(|(pool, (named, _))| (*pool, &**named))
            .collect(),
        None => quota
            .spec
            .floating_ip_quota
            .keys()
            .map(|name| &**name)
            .filter(|name| names.usable.contains(name) && found.book.limits(project, name))
            .map(|name| (name, name))
            .collect(),
    };
    let limited = named
        .iter()
        .map(|(pool, named)| ((*named).to_owned(), uses.charged(project, pool)));
    let others = uses
        .of_project(project)
        .filter(|(pool, _)| !named.contains_key(pool));
    let others = others.map(|(pool, used)| (pool.to_owned(), used));
    limited.chain(others).collect()
}

/// Whether the status says just that.
fn is_so(quota: &FloatingIPProjectQuota, expected: &BTreeMap<String, u64>) -> bool {
    let said = quota.status.iter().flat_map(|status| &status.fips);
    let said = said.map(|(named, usage)| (named.clone(), usage.used));
    let expected = expected
        .iter()
        .map(|(named, used)| (named.clone(), signed(*used)));
    said.eq(expected)
}

/// Where the status says another number than there is.
fn drift(quota: &FloatingIPProjectQuota, expected: &BTreeMap<String, u64>) -> Vec<String> {
    let Some(status) = &quota.status else {
        return Vec::new();
    };
    let names: BTreeSet<&String> = status.fips.keys().chain(expected.keys()).collect();
    let differs = names.into_iter().filter_map(|named| {
        let said = status.fips.get(named).map_or(0, |usage| usage.used);
        let used = expected.get(named).copied().unwrap_or_default();
        let differs = said != signed(used);
        differs.then(|| format!("its status says {said} of {named}, {used} are there"))
    });
    differs.collect()
}

/// A count as the API holds it.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
