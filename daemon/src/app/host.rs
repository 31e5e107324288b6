//! Starts what keeps the rules of this host.

use std::{collections::BTreeSet, path::Path};

use fipd_core::{System, Text, host::HostSettings};
use futures::FutureExt as _;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Tasks;
use crate::{
    cni::{self, CniOptions},
    config::{Config, Host, HostRule},
    host,
    ipam::Ipam,
    rules::{NodeFound, RuleBoard, ledger, wisher},
    settings::Settings,
    store::HostId,
    system::{HostMeans, Shared},
};

/// What is remembered of rules over a restart, in the data directory.
const JOURNAL: &str = "rules.redb";

/// Starts the engine, where this host is to have rules, and what the address book wants of it by `[[host.rules]]`, which may be
/// told anew. What it answers is cancelled once the engine has ended.
pub fn start(
    tasks: &mut Tasks,
    config: &Config,
    data_dir: &Path,
    (ipam, board): (&Ipam, &RuleBoard),
    stop: &CancellationToken,
) -> (CancellationToken, watch::Sender<Vec<HostRule>>) {
    let told = config.host.as_ref();
    let rules = watch::Sender::new(told.map(|told| told.rules.clone()).unwrap_or_default());
    let Some(told) = told else {
        let never = CancellationToken::new();
        never.cancel();
        return (never, rules);
    };
    let mut systems = config.clusters.iter().flat_map(|one| &one.systems);
    if told.node.is_none() && systems.any(|system| wishes(config, system).is_some()) {
        let why = "[host] has no node: it is not told which Node this host is, so that no rule of a cluster is wanted here";
        board.found(&"host".into(), NodeFound::Other(why.to_owned()));
    }
    let mut expected = of_clusters(config, told);
    expected.insert(ledger::NAME.into());
    let later = config.discovery.iter().flat_map(|_| config.known.0);
    let options = host::Options {
        found_later: later.filter_map(|one| one.host_wishes).collect(),
        ..options(told, data_dir, expected)
    };
    let wanting = follow(ipam.clone(), board.clone(), rules.subscribe(), stop.clone());
    tasks.spawn(wanting.map(Ok));
    (engine(tasks, options, board, stop), rules)
}

/// Wants what the rules of today say.
async fn follow(
    ipam: Ipam,
    board: RuleBoard,
    mut rules: watch::Receiver<Vec<HostRule>>,
    stop: CancellationToken,
) {
    loop {
        let today = rules.borrow_and_update().clone();
        tokio::select! {
            () = ledger::run(ipam.clone(), board.clone(), today, stop.clone()) => return,
            changed = rules.changed() => if changed.is_err() {
                // Nobody tells any more: the daemon is stopping.
                return stop.cancelled().await;
            },
        }
    }
}

/// Starts the engine. What it answers is cancelled once that has ended.
pub fn engine(
    tasks: &mut Tasks,
    options: host::Options,
    board: &RuleBoard,
    stop: &CancellationToken,
) -> CancellationToken {
    let ended = CancellationToken::new();
    let (guard, board, stop) = (ended.clone().drop_guard(), board.clone(), stop.clone());
    tasks.spawn(async move {
        host::run(options, board, stop).await;
        drop(guard);
        Ok(())
    });
    ended
}

/// What this host is to clusters, where it is told which Node it is.
pub fn means(host: Option<&Host>, stop: &CancellationToken) -> Option<HostMeans> {
    let host = host?;
    Some(HostMeans {
        node: host.node.clone()?,
        agent: host.agent.clone(),
        leaving: host.cleanup_on_stop.then(|| stop.clone()),
    })
}

/// Before the names of clusters, where the system brings their wishes to this host.
fn wishes(config: &Config, system: &System) -> Option<&'static str> {
    config.known.get(system.as_str())?.host_wishes
}

/// The clusters whose objects may want rules of this host.
pub fn of_clusters(config: &Config, host: &Host) -> BTreeSet<Text> {
    let clusters = config.clusters.iter().filter(|_| host.node.is_some());
    let wishing = clusters.flat_map(|one| {
        let systems = one.systems.iter();
        let prefixes = systems.filter_map(|system| wishes(config, system));
        prefixes.map(|prefix| wisher(prefix, &one.name))
    });
    wishing.collect()
}

/// What this host has for CNI plugins; `ipam`: where it decides.
pub fn plugins(settings: &Settings, ipam: Option<&Ipam>, shared: &Shared) -> CniOptions {
    let host = settings.config.host.clone().unwrap_or_default();
    CniOptions {
        ipam: ipam.cloned(),
        sites: shared.get(),
        data_dir: settings.data_dir.clone(),
        host: HostId::of_this_host(),
        spool: cni::SPOOL.into(),
        protocol: host.rule_protocol,
        pods_use_pools: settings.config.cni.pods_use_pools,
        board: shared.get(),
    }
}

/// What the engine is told.
pub fn options(told: &Host, data_dir: &Path, expected: BTreeSet<Text>) -> host::Options {
    host::Options {
        settings: HostSettings {
            protocol: told.rule_protocol,
            band: told.rule_priority_band.clone(),
            indexed_above: told.indexed_above,
            mark_mask: told.mark_mask,
            can_index: true,
        },
        node: told.node.clone(),
        cleanup_on_stop: told.cleanup_on_stop,
        nft: told.nft.clone(),
        journal: data_dir.join(JOURNAL),
        resync: told.resync,
        expected,
        found_later: Vec::new(),
    }
}
