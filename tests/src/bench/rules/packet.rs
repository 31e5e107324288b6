//! What the rules of ten thousand sources cost each packet.

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fipd_core::host::Mode;

use super::engine::Engine;
use super::{COUNT, many, micros_each};
use crate::bench::Figure;
use crate::bench::figure::median;
use crate::namespace::in_namespace;

const PACKETS: u32 = 5_000;
const RUNS: usize = 5;
/// The first of the sources that have a rule, and one that has none.
const SOURCES: [&str; 2] = ["10.96.0.0", "10.200.0.1"];
/// A host of the other end of a cable, where nobody is.
const NEIGHBOUR: &str = "198.51.100.2";

/// Microseconds of each packet, from a source with a rule and from one without.
type Cost = [f64; 2];

pub fn figures() -> Result<Vec<Figure>> {
    let none = cost(None)?;
    let more = |with: Cost| [with[0] - none[0], with[1] - none[1]];
    let flat = more(cost(Some(Mode::Flat))?);
    let indexed = more(cost(Some(Mode::Indexed))?);
    let names = ["packet-10k-indexed", "packet-10k-indexed-others"];
    let all = names.iter().zip(indexed.iter().zip(flat));
    let figures = all.map(|(name, (ours, flat))| {
        Figure::at_most(name, "us more", *ours, &format!("flat {flat:.0} us"), 10.0)
    });
    Ok(figures.collect())
}

/// A lookup and the packet filter for each: the socket is not connected, so that nothing is remembered.
fn cost(mode: Option<Mode>) -> Result<Cost> {
    in_namespace(2, async || {
        let hosts = SOURCES.map(|source| format!("addr add {source}/32 dev lo"));
        let cable = [
            "link add up0 type veth peer name up1",
            "addr add 198.51.100.1/24 dev up0",
            "link set up0 up",
            "link set up1 up",
            "neigh add 198.51.100.2 lladdr 02:00:00:00:00:02 dev up0",
        ];
        for command in hosts.iter().map(String::as_str).chain(cable) {
            ip(command)?;
        }
        let engine = Engine::start().await?;
        if let Some(mode) = mode {
            engine.applies(vec![many(COUNT, mode)], COUNT).await?;
        }
        let costs = SOURCES.map(send);
        engine.stop().await;
        let [with, without] = costs;
        Ok([with?, without?])
    })
}

fn send(source: &str) -> Result<f64> {
    let socket = UdpSocket::bind((source, 0)).with_context(|| format!("from {source}"))?;
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let start = Instant::now();
        for _ in 0..PACKETS {
            socket.send_to(&[0], (NEIGHBOUR, 9))?;
        }
        times.push(start.elapsed());
    }
    let median: Duration = median(&times)?;
    Ok(micros_each(median, PACKETS))
}

fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output()?;
    if !output.status.success() {
        bail!(
            "ip {arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
