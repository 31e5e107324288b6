//! Policy rules of a host: fipd's engine, the same rules by messages written by hand, and the Go library that others use, each in
//! a network namespace of its own.

mod chain;
mod engine;
mod packet;

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fipd::metrics::rules as figures;
use fipd_core::host::Mode;

use self::engine::{Engine, set};
use super::Figure;
use super::figure::{median, millis};
use crate::namespace::in_namespace;
use crate::netlink::{Netlink, RawRule, elsewhere};
use crate::testbed::fipd_binary;
use crate::toolchain::{self, Component, debian};

const COUNT: u32 = 10_000;
const MANY: u32 = 100_000;
const TABLE: u32 = 100;
const PRIORITY: u32 = 10_000;
const TAG: u8 = 200;
/// Runs of each, of which the median counts; they take turns.
const ROUNDS: usize = 5;
/// Rules deleted by another, one after the other.
const DELETED: u32 = 20;

pub async fn run() -> Result<Vec<Figure>> {
    // From outside of any namespace.
    let peer = tokio::task::spawn_blocking(|| {
        debian::ensure(&["iproute2", "nftables"])?;
        toolchain::prepare()?;
        Component::NetlinkPeer.path()
    });
    let peer = peer.await??;
    fipd_binary().await?;
    let measured = tokio::task::spawn_blocking(move || {
        let mut figures = added(&peer)?;
        figures.extend(idle()?);
        figures.push(mended()?);
        figures.extend(large()?);
        figures.extend(packet::figures()?);
        figures.push(chain::figure()?);
        anyhow::Ok(figures)
    });
    measured.await?
}

/// The source of this number.
fn source(number: u32) -> IpAddr {
    let [_, high, middle, low] = number.to_be_bytes();
    IpAddr::from([10, 96 + high, middle, low])
}

/// All distinct priorities, or one for all.
fn raw(distinct: bool) -> Vec<RawRule> {
    let rule = |number| {
        let priority = PRIORITY + if distinct { number } else { 0 };
        RawRule::new(source(number), TABLE, priority, TAG)
    };
    (0..COUNT).map(rule).collect()
}

fn micros_each(time: Duration, count: u32) -> f64 {
    time.as_secs_f64() * 1e6 / f64::from(count)
}

/// Ten thousand rules onto an empty kernel.
fn added(peer: &Path) -> Result<Vec<Figure>> {
    let mut all = Vec::new();
    for (distinct, name) in [(true, "distinct"), (false, "same")] {
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            floor.push(by_hand(distinct)?);
            ours.push(by_engine(distinct)?);
        }
        let each = |time| micros_each(time, COUNT);
        let (adding, whole): (Vec<_>, Vec<_>) = ours.into_iter().unzip();
        let (adding, whole, floor) = (median(&adding)?, median(&whole)?, median(&floor)?);
        all.push(Figure::cost_ratio(
            &format!("rules-10k-{name}-priority"),
            "us each",
            each(adding),
            each(floor),
            2.0,
        ));
        // Decided, journaled twice, added, and read back.
        all.push(Figure::at_most(
            &format!("rules-10k-{name}-priority, whole"),
            "s",
            whole.as_secs_f64(),
            "-",
            1.0,
        ));
        if distinct {
            let theirs = by_peer(peer)?;
            all.push(Figure::rate_ratio(
                "rules-10k-against-go-netlink",
                "rules/s",
                1e6 / each(adding),
                1e6 / each(theirs),
                15.0,
            ));
        }
    }
    Ok(all)
}

/// Descending, so that the kernel finds the place of each at once.
fn by_hand(distinct: bool) -> Result<Duration> {
    let mut kernel = elsewhere()?;
    let mut rules = raw(distinct);
    rules.reverse();
    let start = Instant::now();
    kernel.add(&rules)?;
    Ok(start.elapsed())
}

/// What the peers do, which is to add rules, and all that the engine does about it.
fn by_engine(distinct: bool) -> Result<(Duration, Duration)> {
    in_namespace(2, async || {
        let engine = Engine::start().await?;
        let sets = match distinct {
            true => {
                let one = |number| set(&[source(number)], Some(PRIORITY + number), Mode::Flat);
                (0..COUNT).map(one).collect()
            }
            false => vec![many(COUNT, Mode::Flat)],
        };
        let (start, before) = (Instant::now(), figures::adding());
        engine.applies(sets, COUNT).await?;
        let whole = start.elapsed();
        let adding = Duration::from_secs_f64(figures::adding() - before);
        let there = Netlink::open()?.dump().await?;
        let own = there.iter().filter(|rule| rule.protocol() == TAG).count();
        if own != COUNT as usize {
            bail!("{own} of {COUNT} rules are in the kernel");
        }
        engine.stop().await;
        Ok((adding, whole))
    })
}

fn many(count: u32, mode: Mode) -> fipd_core::host::RuleSet {
    let sources = (0..count).map(source).collect::<Vec<_>>();
    set(&sources, None, mode)
}

fn by_peer(peer: &Path) -> Result<Duration> {
    let count = COUNT.to_string();
    let output = in_namespace(1, async || {
        let mut command = Command::new(peer);
        command.args(["add", &count, "distinct"]);
        // From this thread, so in its namespace.
        Ok(command.output()?)
    })?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    let micros = String::from_utf8(output.stdout)?.trim().parse()?;
    Ok(Duration::from_micros(micros))
}

/// One look at ten thousand rules that are as they should be: another changed a rule of its own.
fn idle() -> Result<Vec<Figure>> {
    in_namespace(2, async || {
        let engine = Engine::start().await?;
        engine.applies(vec![many(COUNT, Mode::Flat)], COUNT).await?;
        let mut kernel = Netlink::open()?;
        let foreign = [RawRule::new([192, 0, 2, 1].into(), TABLE, 500, 4)];
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for round in 0..4 * ROUNDS {
            let start = Instant::now();
            kernel.skim()?;
            floor.push(start.elapsed());
            let change = || match round % 2 {
                0 => kernel.add(&foreign),
                _ => kernel.delete(&foreign),
            };
            ours.push(engine.pass(change).await?);
        }
        engine.stop().await;
        let (ours, floor) = (median(&ours)?, median(&floor)?);
        let each = |time| micros_each(time, COUNT);
        Ok(vec![
            Figure::cost_ratio(
                "rules-10k-nothing-to-do",
                "us each",
                each(ours),
                each(floor),
                2.0,
            ),
            Figure::at_most("rules-10k-look", "ms", millis(ours), "-", 50.0),
        ])
    })
}

/// A rule that another deleted.
fn mended() -> Result<Figure> {
    let times = in_namespace(2, async || {
        let engine = Engine::start().await?;
        engine
            .applies(vec![many(DELETED, Mode::Flat)], DELETED)
            .await?;
        let mut kernel = Netlink::open()?;
        let mut times = Vec::new();
        for number in 0..DELETED {
            let rule = RawRule::new(source(number), TABLE, PRIORITY, TAG);
            let start = Instant::now();
            kernel.delete(std::slice::from_ref(&rule))?;
            let is_back = async |kernel: &Netlink| -> Result<bool> {
                let all = kernel.dump().await?;
                Ok(all.iter().any(|told| told.rule() == rule))
            };
            while !is_back(&kernel).await? {
                if start.elapsed() > Duration::from_secs(10) {
                    bail!("{rule:?} is not back");
                }
                tokio::time::sleep(Duration::from_micros(500)).await;
            }
            times.push(start.elapsed());
        }
        engine.stop().await;
        Ok(times)
    })?;
    let p50 = millis(median(&times)?);
    Ok(Figure::at_most(
        "rule-deleted-to-back",
        "ms",
        p50,
        "ip-rule-operator 5500",
        50.0,
    ))
}

/// A hundred thousand sources in the packet filter.
fn large() -> Result<Vec<Figure>> {
    let taken = in_namespace(2, async || {
        let engine = Engine::start().await?;
        let start = Instant::now();
        engine
            .applies(vec![many(MANY, Mode::Indexed)], MANY)
            .await?;
        let taken = start.elapsed();
        engine.stop().await;
        Ok(taken)
    })?;
    Ok(vec![Figure::at_most(
        "rules-100k-indexed",
        "s",
        taken.as_secs_f64(),
        "-",
        2.0,
    )])
}
