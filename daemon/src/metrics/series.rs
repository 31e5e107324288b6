//! One gauge with its values, and how it is written.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
};

pub type Labels<'a> = Vec<(&'a str, String)>;

/// One gauge or counter with its values.
pub struct Series<'a> {
    pub name: &'a str,
    pub help: &'a str,
    pub values: Vec<(Labels<'a>, f64)>,
}

impl<'a> Series<'a> {
    pub fn new(name: &'a str, help: &'a str, values: Vec<(Labels<'a>, f64)>) -> Self {
        Self { name, help, values }
    }

    /// One value without labels.
    pub fn single(name: &'a str, help: &'a str, value: f64) -> Self {
        Self::new(name, help, vec![(Vec::new(), value)])
    }

    pub fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut metric =
            encoder.encode_descriptor(self.name, self.help, None, MetricType::Gauge)?;
        for (labels, value) in &self.values {
            let gauge = ConstGauge::new(*value);
            if labels.is_empty() {
                gauge.encode(metric)?;
                return Ok(());
            }
            gauge.encode(metric.encode_family(labels)?)?;
        }
        Ok(())
    }
}

/// Reads series at the moment they are asked for.
pub fn live(
    read: impl Fn(&mut DescriptorEncoder<'_>) -> fmt::Result + Send + Sync + 'static,
) -> Box<dyn Collector> {
    Box::new(Live(read))
}

struct Live<F>(F);

impl<F> fmt::Debug for Live<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

impl<F> Collector for Live<F>
where
    F: Fn(&mut DescriptorEncoder<'_>) -> fmt::Result + Send + Sync + 'static,
{
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.0)(&mut encoder)
    }
}
