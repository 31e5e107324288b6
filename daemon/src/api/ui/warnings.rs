//! What needs somebody: one list for the first page, each entry with what to do and where.
//!
//! Urgent is what does not work; the rest will not, unless somebody does something.

use std::time::Duration;

use fipd_core::{Ledger, Timestamp};
use fipd_web_ui::{ClusterRow, Health, PoolRow, Warning, count, links};

use super::{dashboard::size, pools::Figures, views};
use crate::{
    api::Api,
    backups::{Schedule, Standing},
    clusters::DiscoveryView,
    guests::{GuestBoard, Phase},
    ipam::Ipam,
    reload::Standing as Reloading,
    rules::{EngineState, View},
    store::Condition,
    webhooks::HookView,
};

/// Warnings of one kind; how many more there are is said.
const MOST: usize = 5;
/// A pool that is full within so many hours.
const SOON: u32 = 7 * 24;
/// A certificate that ends sooner.
const CERTIFICATE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Less than this is free on the disk, or less than the store takes.
const DISK: u64 = 256 << 20;
/// Networks that are looked at, and contended leases that are counted.
const NETWORKS: usize = 1_000;

/// Pages that only admins may open.
const ADMINS: [&str; 2] = [links::SETTINGS, links::BACKUP];

/// All there is, what is urgent first, as it is told to an admin or to others.
pub fn all(api: &Api, admin: bool, pools: &[Figures], clusters: &[ClusterRow]) -> Vec<Warning> {
    let now = api.ipam.now();
    let row = |one: &Figures| {
        api.ipam
            .read(|ledger| views::pool_row(ledger, &one.pool, now))
    };
    let mut all: Vec<_> = store(&api.ipam).into_iter().collect();
    all.extend(disk(api.ipam.reader().disk().ok()));
    all.extend(api.ipam.read(restore_hold));
    all.extend(configuration(&api.reload.standing()));
    all.extend(discovery(api.clusters.discovery()));
    all.extend(some(silent(api.webhooks.views(&api.ipam))));
    all.extend(api.ipam.read(adoptions));
    all.extend(full(pools, row));
    all.extend(some(ill(clusters)));
    all.extend(some(held_back(clusters)));
    all.extend(some(guests(&api.guests)));
    all.extend(engine(&api.rules.view()));
    all.extend(api.ipam.read(contended));
    all.extend(filling(pools, row));
    all.extend(doubtful(pools, row));
    all.extend(copies(
        &api.backups.schedule(),
        &api.backups.standing(),
        now,
    ));
    all.extend(certificate(*api.certificate.borrow(), now));
    all.sort_by_key(|warning| !warning.urgent);
    if !admin {
        all.iter_mut().for_each(for_others);
    }
    all
}

/// Nobody is led to a page that is refused.
fn for_others(warning: &mut Warning) {
    let refused = |(to, _): &&mut (String, String)| ADMINS.contains(&to.as_str());
    if let Some(link) = warning.link.as_mut().filter(refused) {
        *link = (String::new(), "That is for an admin to do.".to_owned());
    }
}

/// The first of a kind; the last one says how many more there are.
fn some(warnings: impl IntoIterator<Item = Warning>) -> Vec<Warning> {
    let mut rest = warnings.into_iter();
    let first = rest.by_ref().take(MOST).collect();
    and_more(first, rest.count())
}

/// [`some`] of pools, of which there may be very many: those that are not told are only counted.
fn some_pools<'a>(
    pools: impl IntoIterator<Item = &'a Figures>,
    warning: impl Fn(&'a Figures) -> Warning,
) -> Vec<Warning> {
    let mut rest = pools.into_iter();
    let first = rest.by_ref().take(MOST).map(warning).collect();
    and_more(first, rest.count())
}

fn and_more(mut all: Vec<Warning>, more: usize) -> Vec<Warning> {
    if let Some(last) = all.last_mut().filter(|_| more > 0) {
        last.next = format!("{} {} more like it.", last.next, count(more as u128));
    }
    all
}

/// Of contended leases too many may be there to count.
fn some_leases(mut warnings: Vec<Warning>) -> Vec<Warning> {
    let uncounted = warnings.len() > NETWORKS;
    warnings.truncate(NETWORKS);
    let many = warnings.len() > MOST;
    let mut all = some(warnings);
    if let Some(last) = all.last_mut().filter(|_| many) {
        if uncounted {
            last.next.push_str(" And that is not all.");
        }
        last.link = link(&links::leases_marked(links::CONTENDED), "See all of them");
    }
    all
}

/// A sentence of somebody else's as a part of ours.
fn part(text: &str) -> String {
    text.trim_end_matches('.').to_owned()
}

fn link(to: &str, text: &str) -> Option<(String, String)> {
    Some((to.to_owned(), text.to_owned()))
}

/// That nothing is decided, and why.
pub fn store(ipam: &Ipam) -> Option<Warning> {
    let (what, next) = match ipam.reader().stats().condition {
        Condition::Serving => return None,
        Condition::Full { free, needed } => (
            format!(
                "The disk of the store is full: {} free, {} needed",
                size(free),
                size(needed)
            ),
            "Nothing new is decided; what is shown is right. Free some space in the data directory.",
        ),
        Condition::Reopening { error, attempts } => (
            format!("The store failed ({error}) and is being reopened, attempt {attempts}"),
            "Nothing new is decided meanwhile. Look at the disk if it goes on.",
        ),
        Condition::Stopped { reason } => (
            format!("The store has stopped: {reason}"),
            "Nothing is decided any more. Put it right and start fipd again.",
        ),
    };
    Some(Warning {
        urgent: true,
        what,
        next: next.to_owned(),
        link: link(links::SETTINGS, "See where it lies"),
        ..Warning::default()
    })
}

/// Bytes that the store takes, and bytes that are free.
fn disk(known: Option<(u64, u64)>) -> Option<Warning> {
    let (used, free) = known?;
    (free < DISK.max(used)).then(|| Warning {
        what: format!("The disk of the store has only {} left", size(free)),
        next: "Once it is full nothing new is decided. Free some space, or move the data directory to a larger disk.".to_owned(),
        link: link(links::SETTINGS, "See where it lies"),
        ..Warning::default()
    })
}

/// That a backup was brought back and free addresses are held.
fn restore_hold(ledger: &Ledger) -> Option<Warning> {
    let hold = ledger.restore_hold()?;
    Some(Warning {
        urgent: true,
        what: "A backup was brought back: free addresses are given to nobody new until about"
            .into(),
        at: Some(views::moment(hold.until)),
        next: "Then that ends by itself. If nothing of the time after the backup can be in use:"
            .into(),
        commands: vec!["fipd hold lift --reason TEXT".into()],
        link: link(links::BACKUP, "End it here"),
        ..Warning::default()
    })
}

/// What keeps the daemon from being as the configuration says.
fn configuration(standing: &Reloading) -> Vec<Warning> {
    let failed = standing.failed.as_ref().map(|error| Warning {
        urgent: true,
        what: format!("The configuration file was changed and cannot be used: {error}"),
        next: "The last good configuration stays in force until the file is right.".to_owned(),
        commands: vec!["fipd check".to_owned()],
        link: link(links::SETTINGS, "See what is in force"),
        ..Warning::default()
    });
    let restart = (!standing.needs_restart.is_empty()).then(|| Warning {
        what: format!(
            "Changes of the configuration wait for a restart: {}",
            standing.needs_restart.join(", ")
        ),
        next: "Until then fipd runs with what they were.".to_owned(),
        commands: vec!["sudo systemctl restart fipd".to_owned()],
        link: link(links::SETTINGS, "See what is in force"),
        ..Warning::default()
    });
    failed.into_iter().chain(restart).collect()
}

fn discovery(known: Option<DiscoveryView>) -> Option<Warning> {
    let discovery = known?;
    let error = discovery.last_error?;
    Some(Warning {
        urgent: true,
        what: format!(
            "Clusters cannot be discovered through {}",
            discovery.cluster
        ),
        why: part(&error),
        next: "Clusters that are known go on, new ones are not found. See that this one answers and lets fipd list its Secrets; fipd tries again by itself.".to_owned(),
        commands: vec![format!("fipd clusters show {}", discovery.cluster)],
        link: link(links::CLUSTERS, "Open the clusters"),
        ..Warning::default()
    })
}

/// Receivers of events that take none, and what they will never hear.
fn silent(hooks: impl IntoIterator<Item = HookView>) -> Vec<Warning> {
    let warning = |view: &HookView, what, next| Warning {
        what,
        next,
        commands: vec![format!("fipd webhooks test {}", view.name)],
        link: link(links::SETTINGS, "See where it is"),
        ..Warning::default()
    };
    let of = |view: HookView| {
        let name = &view.name;
        if let Some((why, ..)) = &view.failing {
            let what = format!("Webhook {name} takes no events: {why}");
            let next = format!(
                "{} entries wait. They are sent again by themselves; to try at once:",
                count(view.pending.into())
            );
            return Some(warning(&view, what, next));
        }
        (view.missed > 0).then(|| {
            let what = format!(
                "Webhook {name} missed {} entries of the audit log",
                count(view.missed.into())
            );
            let next = "They were trimmed before it could be told. Raise [audit] keep, and see that it can be reached:";
            warning(&view, what, next.to_owned())
        })
    };
    hooks.into_iter().filter_map(of).collect()
}

/// Networks that give nothing new until they know what is in use.
fn adoptions(ledger: &Ledger) -> Vec<Warning> {
    let networks = ledger.networks().take(NETWORKS);
    let waiting = networks.filter_map(|network| {
        let holds = ledger.holds(network.id);
        if holds.is_empty() {
            return None;
        }
        let who = holds
            .iter()
            .map(|hold| format!("{} ({})", hold.cluster, hold.system));
        let skip = holds.iter().map(|hold| {
            format!(
                "fipd clusters skip-adoption {} --network {}",
                hold.cluster, network.name
            )
        });
        Some(Warning {
            urgent: true,
            what: format!(
                "Network {} gives no new address until it knows what is in use",
                network.name
            ),
            next: format!(
                "It waits for {}. Bring the cluster back, or if it is gone for good:",
                who.collect::<Vec<_>>().join(", ")
            ),
            commands: skip.take(MOST).collect(),
            link: link(links::CLUSTERS, "Open the clusters"),
            ..Warning::default()
        })
    });
    some(waiting)
}

fn full(pools: &[Figures], row: impl Fn(&Figures) -> PoolRow) -> Vec<Warning> {
    let warning = |one: &Figures| {
        let pool = row(one);
        Warning {
            urgent: true,
            what: match pool.waiting {
                0 => format!("Pool {} is full", pool.name),
                _ => format!(
                    "Pool {} is full and {} wait for an address of it",
                    pool.name,
                    pool.waiters()
                ),
            },
            next: match add_to(&pool) {
                None => "Release leases that nobody needs, or add addresses:".to_owned(),
                Some(object) => format!("Release leases that nobody needs, or {object}"),
            },
            commands: add_command(&pool),
            link: link(&links::pool(pool.id), "Open the pool"),
            ..Warning::default()
        }
    };
    some_pools(pools.iter().filter(|one| one.is_full()), warning)
}

/// Where addresses are added to a pool that fipd does not decide about; `None`: in fipd.
fn add_to(pool: &PoolRow) -> Option<String> {
    let object = Some(&pool.mirrors).filter(|object| !object.is_empty())?;
    Some(format!("add addresses to what the pool follows: {object}."))
}

/// What adds addresses to those that the pool has.
fn add_command(pool: &PoolRow) -> Vec<String> {
    let own = pool.mirrors.is_empty();
    let command = || format!("fipd pool update {} --add-cidr CIDR", pool.name);
    own.then(command).into_iter().collect()
}

fn filling(pools: &[Figures], row: impl Fn(&Figures) -> PoolRow) -> Vec<Warning> {
    let soon = pools.iter().filter(|one| one.fills_within(SOON));
    let mut filling: Vec<_> = soon.collect();
    filling.sort_by_key(|one| one.full_in);
    let warning = |one: &Figures| {
        let pool = row(one);
        Warning {
            what: format!("At its pace pool {} is {}", pool.name, pool.forecast),
            next: match add_to(&pool) {
                None => "Add addresses in time:".to_owned(),
                Some(object) => format!("In time, {object}"),
            },
            commands: add_command(&pool),
            link: link(&links::pool(pool.id), "Open the pool"),
            ..Warning::default()
        }
    };
    some_pools(filling, warning)
}

/// Pools that give nothing of what may be the same address as another network's.
fn doubtful(pools: &[Figures], row: impl Fn(&Figures) -> PoolRow) -> Vec<Warning> {
    let warning = |one: &Figures| {
        let pool = row(one);
        Warning {
            what: format!(
                "{} addresses of pool {} are not given: another network may mean the same ones",
                count(pool.withheld),
                pool.name
            ),
            next: "Say whether they are two networks or one.".into(),
            link: link(&links::pool(pool.id), "Open the pool"),
            ..Warning::default()
        }
    };
    some_pools(pools.iter().filter(|one| one.doubtful), warning)
}

fn contended(ledger: &Ledger) -> Vec<Warning> {
    let warning = |lease: &std::sync::Arc<fipd_core::Lease>| Warning {
        urgent: true,
        what: format!("{} is used by more than one", lease.key.address),
        next: "It stays with its holder. Give the other one another address, or release the lease."
            .into(),
        link: link(
            &links::lease(lease.key.network.0, lease.key.address),
            "See by whom",
        ),
        ..Warning::default()
    };
    let contentions = ledger.contentions().take(NETWORKS + 1);
    some_leases(contentions.map(warning).collect())
}

fn ill(clusters: &[ClusterRow]) -> impl Iterator<Item = Warning> {
    let ill = clusters.iter().filter(|row| row.health == Health::Bad);
    ill.map(|row| Warning {
        urgent: true,
        what: match row.since {
            Some(_) => format!("Cluster {} is {} since", row.name, row.state),
            None => format!("Cluster {} is {}", row.name, row.state),
        },
        at: row.since,
        why: part(&row.last_error),
        next: "Its leases stay as they are. See that its server answers and that its kubeconfig is still good; fipd tries again by itself.".to_owned(),
        commands: vec!["fipd check".to_owned()],
        link: link(&links::cluster(&row.name), "Open the cluster"),
    })
}

fn held_back(clusters: &[ClusterRow]) -> impl Iterator<Item = Warning> {
    let held = clusters.iter().filter(|row| !row.held_back.is_empty());
    held.map(|row| Warning {
        what: format!(
            "The owners of {} of cluster {} seem to be gone",
            row.held_back.join(" and of "),
            row.name
        ),
        next: "They are more than are released without a word. If that is right of all of them:"
            .to_owned(),
        commands: vec![format!("fipd clusters confirm-release {}", row.name)],
        link: link(&links::cluster(&row.name), "Open the cluster"),
        ..Warning::default()
    })
}

fn guests(board: &GuestBoard) -> Vec<Warning> {
    let failed = board.all();
    let failed = failed
        .iter()
        .filter(|view| view.says.phase == Phase::Failed);
    let warning = |view: &crate::guests::GuestView| Warning {
        what: format!("Guest cluster {} has failed", view.display_name),
        why: part(&view.says.message),
        next: "Put that right in Rancher or in the guest cluster; fipd tries again by itself."
            .to_owned(),
        link: link(links::GUESTS, "Open the guest clusters"),
        ..Warning::default()
    };
    failed.map(warning).collect()
}

/// The rules of this host.
fn engine(view: &View) -> Vec<Warning> {
    let open = || link(links::RULES, "Open the rules");
    let state = match &view.state {
        EngineState::Off | EngineState::Active => None,
        EngineState::Starting(why) => Some((
            false,
            "The rules of this host were not brought into the kernel yet",
            why.as_str(),
            "Until then packets go by the main table. If that goes on, the log says more:",
            "journalctl --unit fipd --lines 50",
        )),
        EngineState::Paused => Some((
            true,
            "The rules of this host were removed by an admin",
            "",
            "Packets go by the main table until somebody brings the rules back:",
            "fipd rules resume",
        )),
        EngineState::Degraded(why) => Some((
            true,
            "The rules of this host cannot be kept",
            why.as_str(),
            "Once that is put right they are kept again. What fipd lacks on this host:",
            "fipd check",
        )),
    };
    let state = state.map(|(urgent, what, why, next, command)| Warning {
        urgent,
        what: what.to_owned(),
        why: part(why),
        next: next.to_owned(),
        commands: vec![command.to_owned()],
        link: open(),
        ..Warning::default()
    });
    let mended = view.drift.removed + view.drift.added + view.drift.index;
    let drift = (mended > 0).then(|| Warning {
        what: format!(
            "Something else changed the rules of this host: {} were mended since the start",
            count(mended.into())
        ),
        next: "Find the program that does, such as a network manager that flushes rules."
            .to_owned(),
        link: open(),
        ..Warning::default()
    });
    let notes = view.warnings.iter().map(|note| Warning {
        what: part(&note.text),
        next: "Rules are kept all the same. Put it right on this host or in its configuration."
            .to_owned(),
        link: open(),
        ..Warning::default()
    });
    state.into_iter().chain(drift).chain(some(notes)).collect()
}

fn copies(schedule: &Schedule, standing: &Standing, now: Timestamp) -> Option<Warning> {
    let open = || link(links::BACKUP, "Open the backups");
    if let Some((at, error)) = &standing.failure {
        return Some(Warning {
            what: "The last backup failed at".to_owned(),
            at: Some(views::moment(*at)),
            why: part(error),
            next: "Make room where backups are kept, or let fipd write there. Then make one:"
                .to_owned(),
            commands: vec!["fipd backup now".to_owned()],
            link: open(),
            ..Warning::default()
        });
    }
    let every = schedule.every?;
    let age = standing.last.map(|last| now.0.saturating_sub(last.0));
    let old = age.is_some_and(|age| u128::from(age) > every.as_millis() * 2);
    old.then(|| Warning {
        what: "The newest backup is of".to_owned(),
        at: standing.last.map(views::moment),
        next: "It should have been followed by others. Make one now, and look at the log of fipd for why not.".to_owned(),
        commands: vec!["fipd backup now".to_owned()],
        link: open(),
        ..Warning::default()
    })
}

fn certificate(ends: Option<Timestamp>, now: Timestamp) -> Option<Warning> {
    let ends = ends?;
    let over = ends <= now;
    let near = u128::from(ends.0.saturating_sub(now.0)) < CERTIFICATE.as_millis();
    near.then(|| Warning {
        urgent: over,
        what: format!(
            "The certificate of this page {} at",
            if over { "ended" } else { "ends" }
        ),
        at: Some(views::moment(ends)),
        next: "Put a new one where [api] cert and key point to, then have it read:".to_owned(),
        commands: vec!["sudo systemctl reload fipd".to_owned()],
        link: link(links::SETTINGS, "See where that is"),
        ..Warning::default()
    })
}

#[cfg(test)]
mod tests;
