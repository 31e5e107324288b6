//! One gauge with its values, and how it is written.

use std::fmt;

use prometheus_client::{
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
    /// One value without labels.
    pub fn single(name: &'a str, help: &'a str, value: f64) -> Self {
        let values = vec![(Vec::new(), value)];
        Self { name, help, values }
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
