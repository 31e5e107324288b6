//! fipd's series of the system: the originals have none.

use std::{collections::BTreeMap, sync::Arc};

use prometheus_client::registry::Registry;

use super::{
    names::{ACTIVE, FAILED, PENDING},
    pod::PodController,
};
use crate::{
    connected::Connected,
    metrics::series::{Labels, Series, Values, encode_connected, live, with},
};

/// Adds them.
pub fn register_own(registry: &mut Registry, sites: Connected<PodController>) {
    let own = registry.sub_registry_with_prefix("flat_network");
    own.register_collector(live(move |encoder| {
        encode_connected(encoder, &sites.all(), FlatFigures::add, FlatFigures::series)
    }));
}

#[derive(Default)]
struct FlatFigures {
    subnets: Values<'static>,
    pods: Values<'static>,
    free: Values<'static>,
}

impl FlatFigures {
    fn add(&mut self, pods: &Arc<PodController>, more: &Labels<'static>) {
        let mut by_phase: BTreeMap<String, u64> = BTreeMap::new();
        for (key, subnet) in pods.subnets.all() {
            *by_phase.entry(phase(&subnet.status.phase)).or_default() += 1;
            let free = pods.context.read(|ledger| {
                let pool = pods.context.site.mirror_in(ledger, &key.to_string())?;
                let usage = ledger.usage(pool.id)?;
                let all = usage.used.saturating_add(usage.free);
                (all > 0).then(|| usage.free as f64 / all as f64)
            });
            if let Some(free) = free {
                self.free.push((with(more, [("subnet", &*key.name)]), free));
            }
        }
        push(&mut self.subnets, by_phase, more);
        let mut by_phase: BTreeMap<String, u64> = BTreeMap::new();
        for ip in pods.ips.context.objects.values() {
            *by_phase.entry(phase(&ip.status.phase)).or_default() += 1;
        }
        let refused = pods.refused().len() as u64;
        if refused > 0 {
            *by_phase.entry(FAILED.to_owned()).or_default() += refused;
        }
        push(&mut self.pods, by_phase, more);
    }

    fn series(self) -> [Series<'static>; 3] {
        [
            Series::new("subnets", "FlatNetworkSubnets, by phase", self.subnets),
            Series::new("pods", "Addresses of pods, by phase", self.pods),
            Series::new(
                "subnet_free_ratio",
                "How much of a subnet is free, from 0 to 1",
                self.free,
            ),
        ]
    }
}

/// One that is known: whoever may write a status may write any text.
fn phase(text: &str) -> String {
    match text {
        "" => "New",
        ACTIVE => ACTIVE,
        PENDING => PENDING,
        FAILED => FAILED,
        _ => "Unknown",
    }
    .to_owned()
}

fn push(values: &mut Values<'static>, by_phase: BTreeMap<String, u64>, more: &Labels<'static>) {
    for (phase, count) in by_phase {
        values.push((with(more, [("phase", &phase)]), count as f64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_that_nobody_knows_makes_no_series_of_its_own() {
        for (text, shown) in [("", "New"), ("Active", "Active"), ("x", "Unknown")] {
            assert_eq!(phase(text), shown);
        }
    }
}
