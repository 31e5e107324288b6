//! One series with its values, and how it is written.

use std::fmt;

use fipd_core::Text;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
};

pub type Labels<'a> = Vec<(&'a str, String)>;

/// Values by their labels.
pub type Values<'a> = Vec<(Labels<'a>, f64)>;

/// A gauge with its values; `untyped` makes it a series without a type.
pub struct Series<'a> {
    name: &'a str,
    help: &'a str,
    pub values: Values<'a>,
    kind: MetricType,
}

impl<'a> Series<'a> {
    pub fn new(name: &'a str, help: &'a str, values: Values<'a>) -> Self {
        let kind = MetricType::Gauge;
        Self {
            name,
            help,
            values,
            kind,
        }
    }

    /// Without a type, for what counts under a name that OpenMetrics allows no counter: those end in `_total`.
    pub fn untyped(self) -> Self {
        let kind = MetricType::Unknown;
        Self { kind, ..self }
    }

    /// One value without labels.
    pub fn single(name: &'a str, help: &'a str, value: f64) -> Self {
        Self::new(name, help, vec![(Vec::new(), value)])
    }

    pub fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut metric = encoder.encode_descriptor(self.name, self.help, None, self.kind)?;
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

/// These labels, and `more` behind them.
pub fn with<'a, const N: usize>(more: &Labels<'a>, labels: [(&'a str, &str); N]) -> Labels<'a> {
    let own = labels.map(|(name, value)| (name, value.to_owned()));
    own.into_iter().chain(more.iter().cloned()).collect()
}

/// Lets `add` put the values of each connection into its series, and writes them. Several connections are told apart by the
/// label `cluster`: they may call their objects alike.
pub fn encode_connected<D, F: Default, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    connected: &[(Text, D)],
    add: impl Fn(&mut F, &D, &Labels<'static>),
    series: impl Fn(F) -> [Series<'static>; N],
) -> fmt::Result {
    let several = connected.len() > 1;
    let mut figures = F::default();
    for (name, data) in connected {
        let more = several.then(|| ("cluster", name.to_string()));
        add(&mut figures, data, &more.into_iter().collect());
    }
    for series in series(figures) {
        series.encode(encoder)?;
    }
    Ok(())
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
