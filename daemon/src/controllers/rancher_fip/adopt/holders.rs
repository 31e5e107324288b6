//! Quotas: what each project may have of each pool, and what it has.

use std::collections::BTreeMap;

use fipd_crds::floating_ip::{FloatingIPProjectQuota, pool_name};

use super::{
    found::Found,
    pools::Known,
    report::{By, Kind, Report},
};
use crate::{controllers::objects::Key, fip_rules::quota::limits};

/// Addresses by project and pool.
type Uses<'a> = BTreeMap<(&'a str, &'a str), u64>;

/// Says how each quota is.
pub fn judge(found: &Found, known: &Known, report: &mut Report) {
    let uses = uses(found);
    for (project, quota) in &found.quotas {
        report.count("quotas", 1);
        let mut says = Vec::new();
        let mut wrongs = Vec::new();
        match limits(&quota.spec.floating_ip_quota) {
            Ok(limits) => {
                for (named, limit) in limits {
                    match real_name(found, &named) {
                        Some(pool) => {
                            let used = uses.get(&(&**project, pool)).copied().unwrap_or_default();
                            says.push(format!("{used} of {limit} in {named}"));
                            if used > limit {
                                wrongs.push(format!("more than allowed of {named}; they are kept"));
                            } else if known.get(pool).is_none() {
                                wrongs.push(format!("pool {named} cannot be used"));
                            }
                        }
                        None => wrongs.push(format!("there is no pool {named}")),
                    }
                }
            }
            Err(all) => wrongs.extend(all.iter().map(ToString::to_string)),
        }
        if let Some(drift) = drift(found, project, quota, &uses) {
            wrongs.push(drift);
            let name = format!("FloatingIPProjectQuota {project}");
            report.change(By::Itself, name, "writes its status anew");
        }
        let fine = wrongs.is_empty();
        says.append(&mut wrongs);
        if says.is_empty() {
            says.push("names no pool".to_owned());
        }
        if fine {
            report.fine(Kind::Quota, project, says.join("; "));
        } else {
            report.wrong(Kind::Quota, project, says.join("; "));
        }
    }
}

fn uses(found: &Found) -> Uses<'_> {
    let mut uses = Uses::new();
    for fip in found.fips.values() {
        if let (Some(project), Some(_)) = (&fip.project, fip.shown()) {
            *uses.entry((&*project.0, &*fip.pool)).or_default() += 1;
        }
    }
    uses
}

/// The pool that a quota calls so: by its own name, or by that of its cluster and network.
fn real_name<'a>(found: &'a Found, named: &str) -> Option<&'a str> {
    if let Some((name, _)) = found.pools.get_key_value(named) {
        return Some(name);
    }
    let mut called = found.pools.iter().filter(|(_, pool)| {
        pool_name(&pool.spec.target_cluster, &pool.spec.target_network) == named
    });
    match (called.next(), called.next()) {
        (Some((name, _)), None) => Some(name),
        (Some(_), Some(_)) | (None, _) => None,
    }
}

/// Where the status says another number than there is.
fn drift(
    found: &Found,
    project: &str,
    quota: &FloatingIPProjectQuota,
    uses: &Uses<'_>,
) -> Option<String> {
    let said = quota.status.iter().flat_map(|status| &status.fips);
    let drifted = said.filter_map(|(named, usage)| {
        let pool = real_name(found, named).unwrap_or(named);
        let used = uses.get(&(project, pool)).copied().unwrap_or_default();
        let differs = i64::try_from(used) != Ok(usage.used);
        differs.then(|| {
            format!(
                "its status says {} of {named}, {used} are there",
                usage.used
            )
        })
    });
    let drifted: Vec<String> = drifted.collect();
    (!drifted.is_empty()).then(|| drifted.join("; "))
}

/// Where a project is.
pub fn namespaces<'a>(found: &'a Found, project: &str) -> Vec<&'a Key> {
    let keys = found.projects.iter();
    keys.filter(|key| *key.name == *project).collect()
}
