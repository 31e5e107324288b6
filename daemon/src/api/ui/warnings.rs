//! What needs somebody: one list for the first page, each entry with what to do and where.
//!
//! Urgent is what does not work; the rest will not, unless somebody does something.

use std::time::Duration;

use fipd_core::{Ledger, Timestamp};
use fipd_web_ui::{ClusterRow, Health, PoolRow, Warning, count, links};

use super::{dashboard::size, views};
use crate::{
    api::Api,
    backups::{Schedule, Standing},
    clusters::Clusters,
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
/// Networks that are looked at.
const NETWORKS: usize = 1_000;

/// All there is, what is urgent first.
pub fn all(api: &Api, pools: &[PoolRow], clusters: &[ClusterRow]) -> Vec<Warning> {
    let now = api.ipam.now();
    let mut all: Vec<_> = store(&api.ipam).into_iter().collect();
    all.extend(disk(api.ipam.reader().disk().ok()));
    all.extend(api.ipam.read(restore_hold));
    all.extend(configuration(&api.reload.standing()));
    all.extend(discovery(&api.clusters));
    all.extend(some(silent(api.webhooks.views(&api.ipam))));
    all.extend(api.ipam.read(adoptions));
    all.extend(some(full(pools)));
    all.extend(some(ill(clusters)));
    all.extend(some(held_back(clusters)));
    all.extend(some(guests(&api.guests)));
    all.extend(engine(&api.rules.view()));
    all.extend(api.ipam.read(contended));
    all.extend(some(filling(pools)));
    all.extend(some(doubtful(pools)));
    all.extend(copies(
        &api.backups.schedule(),
        &api.backups.standing(),
        now,
    ));
    all.extend(certificate(*api.certificate.borrow(), now));
    all.sort_by_key(|warning| !warning.urgent);
    all
}

/// The first of a kind; the last one says how many more there are.
fn some(warnings: impl IntoIterator<Item = Warning>) -> Vec<Warning> {
    let mut all: Vec<_> = warnings.into_iter().collect();
    let more = all.len().saturating_sub(MOST);
    all.truncate(MOST);
    if let Some(last) = all.last_mut().filter(|_| more > 0) {
        last.next = format!("{} {} more like it.", last.next, count(more as u128));
    }
    all
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
        what: "A backup was brought back: free addresses are given to nobody new".into(),
        next: format!(
            "That ends by itself at about {}. If nothing of the time after the backup can be in use:",
            views::moment(hold.until).human()
        ),
        commands: vec!["fipd hold lift --reason TEXT".into()],
        link: link(links::BACKUP, "End it here"),
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

fn discovery(clusters: &Clusters) -> Option<Warning> {
    let discovery = clusters.discovery()?;
    let error = discovery.last_error?;
    Some(Warning {
        urgent: true,
        what: format!(
            "Clusters cannot be discovered through {}",
            discovery.cluster
        ),
        next: format!("{error}."),
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
        })
    });
    some(waiting)
}

fn full(pools: &[PoolRow]) -> impl Iterator<Item = Warning> {
    let full = pools
        .iter()
        .filter(|pool| !pool.closed && pool.usage.size > 0 && pool.usage.free == 0);
    full.map(|pool| Warning {
        urgent: true,
        what: match pool.waiting {
            0 => format!("Pool {} is full", pool.name),
            waiting => format!(
                "Pool {} is full and {waiting} wait for an address of it",
                pool.name
            ),
        },
        next: "Release leases that nobody needs, or add addresses:".into(),
        commands: vec![format!("fipd pool update {} --cidr CIDR", pool.name)],
        link: link(&links::pool(pool.id), "Open the pool"),
    })
}

fn filling(pools: &[PoolRow]) -> Vec<Warning> {
    let soon = |pool: &&PoolRow| {
        let hours = pool.full_in.filter(|hours| (1..=SOON).contains(hours));
        !pool.closed && pool.usage.free > 0 && hours.is_some()
    };
    let mut filling: Vec<_> = pools.iter().filter(soon).collect();
    filling.sort_by_key(|pool| pool.full_in);
    let warning = |pool: &PoolRow| Warning {
        what: format!("At its pace pool {} is {}", pool.name, pool.forecast),
        next: "Add addresses in time:".into(),
        commands: vec![format!("fipd pool update {} --cidr CIDR", pool.name)],
        link: link(&links::pool(pool.id), "Open the pool"),
        ..Warning::default()
    };
    filling.into_iter().map(warning).collect()
}

/// Pools that give nothing of what may be the same address as another network's.
fn doubtful(pools: &[PoolRow]) -> impl Iterator<Item = Warning> {
    let doubtful = pools.iter().filter(|pool| pool.withheld > 0);
    doubtful.map(|pool| Warning {
        what: format!(
            "{} addresses of pool {} are not given: another network may mean the same ones",
            count(pool.withheld),
            pool.name
        ),
        next: "Say whether they are two networks or one.".into(),
        link: link(&links::pool(pool.id), "Open the pool"),
        ..Warning::default()
    })
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
    some(ledger.contentions().take(NETWORKS).map(warning))
}

fn ill(clusters: &[ClusterRow]) -> impl Iterator<Item = Warning> {
    let ill = clusters.iter().filter(|row| row.health == Health::Bad);
    ill.map(|row| Warning {
        urgent: true,
        what: match row.since {
            Some(since) => format!(
                "Cluster {} is {} since {}",
                row.name,
                row.state,
                since.human()
            ),
            None => format!("Cluster {} is {}", row.name, row.state),
        },
        next: match row.last_error.as_str() {
            "" => "Its leases stay as they are.".to_owned(),
            error => format!("{error}. Its leases stay as they are."),
        },
        link: link(&links::cluster(&row.name), "Open the cluster"),
        ..Warning::default()
    })
}

fn held_back(clusters: &[ClusterRow]) -> impl Iterator<Item = Warning> {
    let held = clusters.iter().filter(|row| !row.held_back.is_empty());
    held.map(|row| Warning {
        what: format!(
            "The owners of {} of cluster {} seem to be gone",
            row.held_back, row.name
        ),
        next: "They are more than are released without a word. If that is right:".to_owned(),
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
        next: format!("{}.", view.says.message.trim_end_matches('.')),
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
            format!("{why}."),
        )),
        EngineState::Paused => Some((
            true,
            "The rules of this host were removed by an admin",
            "Packets go by the main table until somebody brings the rules back.".to_owned(),
        )),
        EngineState::Degraded(why) => Some((
            true,
            "The rules of this host cannot be kept",
            format!("{why}."),
        )),
    };
    let state = state.map(|(urgent, what, next)| Warning {
        urgent,
        what: what.to_owned(),
        next,
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
        what: note.text.trim_end_matches('.').to_owned(),
        next: "Rules are kept all the same.".to_owned(),
        link: open(),
        ..Warning::default()
    });
    state.into_iter().chain(drift).chain(some(notes)).collect()
}

fn copies(schedule: &Schedule, standing: &Standing, now: Timestamp) -> Option<Warning> {
    let open = || link(links::BACKUP, "Open the backups");
    if let Some((at, error)) = &standing.failure {
        return Some(Warning {
            what: format!("The last backup failed at {}", views::moment(*at).human()),
            next: format!("{}.", error.trim_end_matches('.')),
            link: open(),
            ..Warning::default()
        });
    }
    let every = schedule.every?;
    let age = standing.last.map(|last| now.0.saturating_sub(last.0));
    let old = age.is_some_and(|age| u128::from(age) > every.as_millis() * 2);
    old.then(|| Warning {
        what: format!(
            "The newest backup is of {}",
            standing
                .last
                .map_or_else(String::new, |at| views::moment(at).human())
        ),
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
            "The certificate of this page {} at {}",
            if over { "ended" } else { "ends" },
            views::moment(ends).human()
        ),
        next: "Put a new one where [api] cert and key point to, then have it read:".to_owned(),
        commands: vec!["sudo systemctl reload fipd".to_owned()],
        link: link(links::SETTINGS, "See where that is"),
    })
}

#[cfg(test)]
mod tests {
    use fipd_web_ui::Usage;

    use super::*;

    fn pool(name: &str, free: u128, full_in: Option<u32>) -> PoolRow {
        PoolRow {
            id: 1,
            name: name.to_owned(),
            network: "default".to_owned(),
            family: "IPv4",
            usage: Usage {
                size: 10,
                used: 10 - free,
                free,
                ..Usage::default()
            },
            closed: false,
            full_in,
            forecast: "full in about 2 days".to_owned(),
            waiting: 0,
            withheld: 0,
        }
    }

    fn whats(warnings: impl IntoIterator<Item = Warning>) -> Vec<String> {
        let all = warnings.into_iter();
        all.map(|warning| {
            assert!(!warning.next.is_empty(), "{warning:?} names no next step");
            assert!(warning.link.is_some(), "{warning:?} leads nowhere");
            warning.what
        })
        .collect()
    }

    #[test]
    fn pools_that_are_full_or_soon_will_be_are_told_once() {
        let closed = PoolRow {
            closed: true,
            ..pool("closed", 0, Some(0))
        };
        let pools = [
            pool("full", 0, Some(0)),
            pool("later", 5, Some(SOON)),
            pool("soon", 5, Some(3)),
            pool("never", 5, None),
            pool("next year", 5, Some(SOON + 1)),
            closed,
        ];
        assert_eq!(whats(full(&pools)), ["Pool full is full"]);
        assert_eq!(
            whats(filling(&pools)),
            ["soon", "later"]
                .map(|name| format!("At its pace pool {name} is full in about 2 days"))
        );
        let doubt = PoolRow {
            withheld: 1_200,
            ..pool("dmz", 5, None)
        };
        assert!(whats(doubtful(&[doubt]))[0].starts_with("1,200 addresses of pool dmz"));
    }

    #[test]
    fn of_many_the_first_are_told_and_how_many_more_there_are() {
        let pools: Vec<_> = (0..9).map(|n| pool(&format!("p{n}"), 0, None)).collect();
        let told = some(full(&pools));
        assert_eq!(told.len(), MOST);
        assert!(told[MOST - 1].next.ends_with(" 4 more like it."));
        assert_eq!(some(full(&pools[..5]))[4].next, told[0].next);
    }

    #[test]
    fn a_configuration_that_is_not_in_force_is_told() {
        assert_eq!(configuration(&Reloading::default()), []);
        let standing = Reloading {
            failed: Some("line 3".into()),
            needs_restart: vec!["helm", "host"],
        };
        let told = configuration(&standing);
        assert!(told[0].urgent && !told[1].urgent);
        assert!(whats(told)[1].ends_with("wait for a restart: helm, host"));
    }

    #[test]
    fn a_disk_is_low_before_the_store_stops() {
        assert_eq!(disk(None), None);
        assert_eq!(disk(Some((1 << 20, DISK))), None);
        assert_eq!(whats(disk(Some((1 << 20, DISK - 1)))).len(), 1);
        assert_eq!(whats(disk(Some((2 * DISK, DISK)))).len(), 1);
    }

    #[test]
    fn a_copy_is_too_old_after_two_that_did_not_come() {
        let schedule = |every| Schedule {
            directory: "/b".into(),
            every,
            keep: 7,
        };
        let day = Duration::from_secs(24 * 3600);
        let millis = 24 * 3_600_000;
        let standing = |last: Option<u64>| Standing {
            last: last.map(Timestamp),
            failure: None,
        };
        let now = Timestamp(10 * millis);
        let told = |every, last| copies(&schedule(every), &standing(last), now).is_some();
        assert!(!told(Some(day), None), "the first one is still to come");
        assert!(!told(Some(day), Some(8 * millis)));
        assert!(told(Some(day), Some(8 * millis - 1)));
        assert!(!told(None, Some(1)), "nobody wants any");
        let failed = Standing {
            last: Some(now),
            failure: Some((now, "no room".to_owned())),
        };
        let told = copies(&schedule(None), &failed, now);
        assert!(whats(told)[0].starts_with("The last backup failed"));
    }

    #[test]
    fn a_certificate_is_told_a_month_before_its_end() {
        let now = Timestamp(1_795_240_640_000);
        let month = u64::try_from(CERTIFICATE.as_millis()).unwrap();
        assert_eq!(certificate(None, now), None);
        assert_eq!(certificate(Some(Timestamp(now.0 + month)), now), None);
        let near = certificate(Some(Timestamp(now.0 + month - 1)), now).unwrap();
        assert!(!near.urgent && near.what.contains("ends at"));
        let over = certificate(Some(now), now).unwrap();
        assert!(over.urgent && over.what.contains("ended at"));
    }

    #[test]
    fn rules_are_told_where_they_are_not_kept_or_had_to_be_mended() {
        assert_eq!(engine(&View::default()), []);
        let mut view = View {
            state: EngineState::Degraded("no CAP_NET_ADMIN".to_owned()),
            ..View::default()
        };
        view.drift.removed = 2;
        view.warnings.push(crate::rules::Warning {
            code: "table-empty",
            text: "table 100 has no route".to_owned(),
        });
        let told = engine(&view);
        assert_eq!(whats(told.clone()).len(), 3);
        assert!(told[0].urgent && told[0].next.contains("CAP_NET_ADMIN"));
        assert!(told[1].what.contains("2 were mended"));
    }
}
