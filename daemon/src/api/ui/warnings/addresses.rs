//! Warnings of networks, pools and leases.

use fipd_core::Ledger;
use fipd_web_ui::{PoolRow, Warning, count, links};

use super::{MOST, and_more, link, some};
use crate::api::ui::pools::Figures;

/// A pool that is full within so many hours.
pub(super) const SOON: u32 = 7 * 24;
/// Networks that are looked at, and contended leases that are counted.
pub(super) const NETWORKS: usize = 1_000;

/// Networks that give nothing new until they know what is in use.
pub(super) fn adoptions(ledger: &Ledger) -> Vec<Warning> {
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

pub(super) fn full(pools: &[Figures], row: impl Fn(&Figures) -> PoolRow) -> Vec<Warning> {
    let warning = |one: &Figures| {
        let pool = row(one);
        Warning {
            urgent: true,
            what: match pool.waiting {
                0 => format!("Pool {} is full", pool.name),
                _ => format!(
                    "Pool {} is full and {} wait for {} of it",
                    pool.name,
                    count(pool.waiting),
                    given(one).0
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

pub(super) fn filling(pools: &[Figures], row: impl Fn(&Figures) -> PoolRow) -> Vec<Warning> {
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
pub(super) fn doubtful(pools: &[Figures], row: impl Fn(&Figures) -> PoolRow) -> Vec<Warning> {
    let warning = |one: &Figures| {
        let pool = row(one);
        Warning {
            what: format!(
                "{} {} of pool {} are not given: another network may mean the same ones",
                count(pool.usage.0.withheld),
                given(one).1,
                pool.name
            ),
            next: "Say whether they are two networks or one.".into(),
            link: link(&links::pool(pool.id), "Open the pool"),
            ..Warning::default()
        }
    };
    some_pools(pools.iter().filter(|one| one.doubtful), warning)
}

/// What the pool gives: one of it, and several.
fn given(one: &Figures) -> (&'static str, &'static str) {
    match one.pool.spec.allocation_length {
        Some(_) => ("a prefix", "prefixes"),
        None => ("an address", "addresses"),
    }
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

/// [`some`] of pools, of which there may be very many: those that are not told are only counted.
fn some_pools<'a>(
    pools: impl IntoIterator<Item = &'a Figures>,
    warning: impl Fn(&'a Figures) -> Warning,
) -> Vec<Warning> {
    let mut rest = pools.into_iter();
    let first = rest.by_ref().take(MOST).map(warning).collect();
    and_more(first, rest.count())
}

pub(super) fn contended(ledger: &Ledger) -> Vec<Warning> {
    let warning = |lease: &std::sync::Arc<fipd_core::Lease>| Warning {
        urgent: true,
        what: format!("{} is used by more than one", lease.prefix()),
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

/// Of contended leases too many may be there to count.
pub(super) fn some_leases(mut warnings: Vec<Warning>) -> Vec<Warning> {
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
