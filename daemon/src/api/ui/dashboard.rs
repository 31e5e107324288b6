//! The first page.

use std::sync::Arc;

use axum::extract::State;
use fipd_core::{Ledger, Pool};
use fipd_web_ui::{
    ClusterRow, Dashboard, Health, HeldNetwork, Nav, PoolRow, StoreCard, Warning, count, links,
};

use super::{
    clusters as cluster_page,
    list::all,
    page::{Answered, page},
    pools::fill,
    views,
    visit::Visitor,
};
use crate::{
    api::{Api, page::Ask},
    clusters::Clusters,
    ipam::Ipam,
    reload::Standing,
    store::{Condition, StoreStats},
    webhooks::HookView,
};

/// Pools and clusters that are shown; the others are on their own pages.
const SHOWN: usize = 10;
/// Warnings of one kind.
const WARNINGS: usize = 5;
/// Rows read before other readers and the writer get their turn.
const STEP: usize = 1_000;

pub async fn show(State(api): State<Arc<Api>>, visitor: Visitor) -> Answered {
    let mut pools = pools_by_use(&api.ipam);
    let mut clusters = cluster_page::rows(&api);
    let mut warnings: Vec<_> = store_warning(&api.ipam).into_iter().collect();
    warnings.extend(api.ipam.read(restore_hold));
    warnings.extend(config_warnings(&api.reload.standing(), &api.clusters));
    warnings.extend(silent_webhooks(&api));
    warnings.extend(full_pools(&pools));
    warnings.extend(api.ipam.read(contended));
    warnings.extend(ill_clusters(&clusters));
    let (pools_total, clusters_total) = (pools.len(), clusters.len());
    let clusters_well = clusters
        .iter()
        .filter(|row| row.health == Health::Good)
        .count();
    clusters.sort_by_key(|row| row.health == Health::Good);
    pools.truncate(SHOWN);
    clusters.truncate(SHOWN);
    let store = store_card(&api.ipam);
    let board = api.ipam.read(|ledger| Dashboard {
        shell: visitor.shell(Nav::Dashboard),
        warnings,
        held: held_networks(ledger),
        pools,
        pools_total,
        leases: ledger.lease_count() as u128,
        contended: ledger.contentions().take(STEP).count() as u128,
        networks: ledger.networks().count(),
        clusters,
        clusters_total,
        clusters_well,
        store,
    });
    Ok(page(&board))
}

/// All pools with their figures, read step by step.
pub fn rows(ipam: &Ipam) -> Vec<PoolRow> {
    let now = ipam.now();
    all(ipam, |ledger, after| {
        let row = |pool: &&Arc<Pool>| Some(views::pool_row(ledger, pool, now));
        Ask::step().of(ledger.pools_after(after), |pool| pool.id, row)
    })
}

fn pools_by_use(ipam: &Ipam) -> Vec<PoolRow> {
    let mut pools = rows(ipam);
    pools.sort_by(|left, right| {
        let order = runs_out(left).cmp(&runs_out(right));
        let order = order.then_with(|| fill(right).cmp(&fill(left)));
        order.then_with(|| left.name.cmp(&right.name))
    });
    pools
}

/// The sooner a pool is full the less; what gives nothing comes last.
fn runs_out(row: &PoolRow) -> (bool, u32) {
    let open = !row.closed && row.usage.size > 0;
    (!open, row.full_in.unwrap_or(u32::MAX))
}

fn held_networks(ledger: &Ledger) -> Vec<HeldNetwork> {
    let networks = ledger.networks().take(STEP);
    networks
        .map(|network| HeldNetwork {
            name: network.name.to_string(),
            waiting_for: ledger
                .holds(network.id)
                .iter()
                .map(|hold| (hold.cluster.to_string(), hold.system.to_string()))
                .collect(),
        })
        .filter(|network| !network.waiting_for.is_empty())
        .collect()
}

fn full_pools(pools: &[PoolRow]) -> impl Iterator<Item = Warning> {
    let full = pools
        .iter()
        .filter(|pool| !pool.closed && pool.usage.size > 0 && pool.usage.free == 0);
    full.take(WARNINGS).map(|pool| Warning {
        what: match pool.waiting {
            0 => format!("Pool {} is full", pool.name),
            waiting => format!(
                "Pool {} is full and {waiting} wait for an address of it",
                pool.name
            ),
        },
        next: "Release leases that nobody needs, or add addresses:".into(),
        command: format!("fipd pool update {} --cidr CIDR", pool.name),
        link: Some((links::pool(pool.id), "Open the pool".into())),
    })
}

fn contended(ledger: &Ledger) -> Vec<Warning> {
    let leases = ledger.contentions().take(WARNINGS);
    leases
        .map(|lease| Warning {
            what: format!("{} is used by more than one", lease.key.address),
            next: "It stays with its holder. Give the other one another address, or release the lease.".into(),
            command: String::new(),
            link: Some((links::lease(lease.key.network.0, lease.key.address), "See by whom".into())),
        })
        .collect()
}

fn ill_clusters(clusters: &[ClusterRow]) -> impl Iterator<Item = Warning> {
    let ill = clusters
        .iter()
        .filter(|row| row.health == Health::Bad || !row.held_back.is_empty());
    ill.take(WARNINGS).map(|row| Warning {
        what: if row.held_back.is_empty() {
            format!("Cluster {} is {}", row.name, row.state)
        } else {
            format!("Releases of cluster {} wait for a word", row.name)
        },
        next: row.last_error.clone(),
        command: String::new(),
        link: Some((links::CLUSTERS.to_owned(), "Open the clusters".into())),
    })
}

/// That a backup was brought back and free addresses are held.
fn restore_hold(ledger: &Ledger) -> Option<Warning> {
    let hold = ledger.restore_hold()?;
    Some(Warning {
        what: "A backup was brought back: free addresses are given to nobody new".into(),
        next: format!(
            "That ends by itself at about {}. If nothing of the time after the backup can be in use:",
            views::moment(hold.until).human()
        ),
        command: "fipd hold lift --reason TEXT".into(),
        link: Some((links::BACKUP.to_owned(), "End it here".into())),
    })
}

/// Receivers of events that take none, and what they will never hear.
fn silent_webhooks(api: &Api) -> Vec<Warning> {
    let views = api.webhooks.views(&api.ipam).into_iter();
    let warning = |what: String, next: String, name: &str| Warning {
        what,
        next,
        command: format!("fipd webhooks test {name}"),
        link: None,
    };
    let of = |view: HookView| {
        let name = &view.name;
        if let Some((why, ..)) = &view.failing {
            let what = format!("Webhook {name} takes no events: {why}");
            let next = format!(
                "{} entries wait. They are sent again by themselves; to try at once:",
                count(view.pending.into())
            );
            return Some(warning(what, next, name));
        }
        (view.missed > 0).then(|| {
            let what = format!(
                "Webhook {name} missed {} entries of the audit log",
                count(view.missed.into())
            );
            let next = "They were trimmed before it could be told. Raise [audit] keep, and see that it can be reached:";
            warning(what, next.to_owned(), name)
        })
    };
    views.filter_map(of).take(WARNINGS).collect()
}

/// What keeps the daemon from being as the configuration says.
fn config_warnings(standing: &Standing, clusters: &Clusters) -> Vec<Warning> {
    let warning = |what: String, next: &str| Warning {
        what,
        next: next.to_owned(),
        command: String::new(),
        link: None,
    };
    let config = standing.failed.as_ref().map(|error| {
        let next = "The last good configuration stays in force until the file is right.";
        warning(
            format!("The configuration file was changed and cannot be used: {error}"),
            next,
        )
    });
    let discovery = clusters.discovery().and_then(|discovery| {
        let what = format!(
            "Clusters cannot be discovered through {}",
            discovery.cluster
        );
        discovery.last_error.map(|error| warning(what, &error))
    });
    let restart = (!standing.needs_restart.is_empty()).then(|| Warning {
        what: format!(
            "Changes of the configuration wait for a restart: {}",
            standing.needs_restart.join(", ")
        ),
        next: "Until then fipd runs with what they were.".to_owned(),
        command: "systemctl restart fipd".to_owned(),
        link: None,
    });
    config.into_iter().chain(restart).chain(discovery).collect()
}

fn store_warning(ipam: &Ipam) -> Option<Warning> {
    let (what, next) = match ipam.reader().stats().condition {
        Condition::Serving => return None,
        Condition::Full { free, needed } => (
            format!("The disk of the store is full: {} bytes free, {} needed", free, needed),
            "Nothing new is decided; what is shown is right. Free some space in the data directory.".to_owned(),
        ),
        Condition::Reopening { error, attempts } => (
            format!("The store failed ({error}) and is being reopened, attempt {attempts}"),
            "Nothing new is decided meanwhile. Look at the disk if it goes on.".to_owned(),
        ),
        Condition::Stopped { reason } => (
            format!("The store has stopped: {reason}"),
            "Nothing is decided any more. Put it right and start fipd again:".to_owned(),
        ),
    };
    Some(Warning {
        what,
        next,
        command: String::new(),
        link: None,
    })
}

fn store_card(ipam: &Ipam) -> StoreCard {
    let StoreStats {
        condition,
        commits,
        decisions,
        commit_nanos,
        failed_commits,
        audit_first,
        audit_next,
    } = ipam.reader().stats();
    let (healthy, state) = match condition {
        Condition::Serving => (true, "serving"),
        Condition::Full { .. } => (false, "disk full"),
        Condition::Reopening { .. } => (false, "reopening"),
        Condition::Stopped { .. } => (false, "stopped"),
    };
    let each = commit_nanos.checked_div(commits).unwrap_or_default() / 1_000;
    let mut facts = vec![
        (
            "Revision".to_owned(),
            count(ipam.read(Ledger::revision).into()),
        ),
        ("Decisions since start".to_owned(), count(decisions.into())),
        (
            "Commits since start".to_owned(),
            format!("{}, {} µs each", count(commits.into()), count(each.into())),
        ),
        ("Failed commits".to_owned(), count(failed_commits.into())),
        (
            "Audit rows".to_owned(),
            count(audit_next.saturating_sub(audit_first).into()),
        ),
    ];
    if let Ok((used, free)) = ipam.reader().disk() {
        facts.push((
            "On disk".to_owned(),
            format!("{}, {} free", size(used), size(free)),
        ));
    }
    StoreCard {
        healthy,
        state: state.to_owned(),
        facts,
    }
}

/// `12.3 MiB`.
pub fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 {
        format!("{mib:.1} MiB")
    } else {
        format!("{:.1} GiB", mib / 1024.0)
    }
}
