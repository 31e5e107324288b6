//! How long objects wait for their addresses: one at a time, and many at once.

use std::time::Duration;

use anyhow::Result;

use super::figure::{Figure, median, millis};
use super::subject::{Subject, WriteFloor};

pub const WARM_UP: usize = 5;
pub const ONE_BY_ONE: usize = 50;
/// Bursts, each after its floor.
const ROUNDS: usize = 3;
/// What fipd may add to the writes on the way to an address, in milliseconds.
const OWN: f64 = 3.0;

/// Medians of objects that are alone, in milliseconds.
pub struct OneByOne {
    p50: f64,
    /// Of the same writes by the bench.
    writes: f64,
}

/// Medians of bursts, in seconds.
pub struct Bursts {
    /// Until as many objects were created that fipd leaves alone.
    floor: f64,
    /// Until all were created.
    creating: f64,
    /// Until all had their addresses.
    all: f64,
}

impl Subject {
    /// The median of objects that are created one after the other. `end` removes each, or waits until nothing is done for it.
    pub async fn p50(
        &self,
        prefix: &str,
        mut end: impl AsyncFnMut(&str) -> Result<()>,
    ) -> Result<Duration> {
        let mut samples = Vec::new();
        for number in 0..WARM_UP + ONE_BY_ONE {
            let name = format!("{prefix}-{number}");
            samples.push(self.one(&name).await?);
            end(&name).await?;
        }
        median(&samples.split_off(WARM_UP))
    }

    /// The same in turns with such writes to objects of `foreign`, which fipd leaves alone: a busy machine disturbs both alike.
    pub async fn one_by_one(
        &self,
        foreign: &Self,
        prefix: &str,
        remove: impl AsyncFn(&str) -> Result<()>,
    ) -> Result<OneByOne> {
        let mut floor = WriteFloor::default();
        let end = async |name: &str| {
            remove(name).await?;
            floor.sample(foreign, &format!("foreign-{name}")).await
        };
        Ok(OneByOne {
            p50: millis(self.p50(prefix, end).await?),
            writes: floor.p50(WARM_UP)?,
        })
    }

    /// So many at once, each time after as many of `foreign`. `clear` takes how many of them have
    /// addresses, and removes all.
    pub async fn bursts(
        &self,
        foreign: &Self,
        count: usize,
        clear: impl AsyncFn(usize) -> Result<()>,
    ) -> Result<Bursts> {
        let (mut floor, mut creating, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            floor.push(foreign.create("foreign", count).await?);
            clear(0).await?;
            let bulk = self.at_once("burst", count).await?;
            creating.push(bulk.creating);
            all.push(bulk.all);
            clear(count).await?;
        }
        let seconds = |times: &[Duration]| median(times).map(|time| time.as_secs_f64());
        Ok(Bursts {
            floor: seconds(&floor)?,
            creating: seconds(&creating)?,
            all: seconds(&all)?,
        })
    }
}

impl OneByOne {
    /// By itself, beside `peer`, and beside its writes.
    pub fn figures(&self, name: &str, peer: &str) -> [Figure; 2] {
        let floor = format!("its writes {:.2} ms", self.writes);
        let beside = format!("{name} beside its writes");
        [
            Figure::at_most(name, "ms", self.p50, peer, 10.0),
            Figure::at_most(&beside, "ms", self.p50, &floor, self.writes + OWN),
        ]
    }
}

impl Bursts {
    /// Beside the floor, and beside their own creation.
    pub fn figures(&self, name: &str) -> [Figure; 2] {
        let beside = format!("{name} beside their creation");
        [
            Figure::cost_ratio(name, "s", self.all, self.floor, 1.3),
            Figure::cost_ratio(&beside, "s", self.all, self.creating, 1.3),
        ]
    }

    /// Until all had their addresses, in seconds.
    pub fn all(&self) -> f64 {
        self.all
    }
}
