//! One measured figure and its budget.

use std::time::Duration;

use anyhow::{Context, Result};

/// One line of `cargo bench-peers`.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    name: String,
    ours: String,
    floor: String,
    ratio: Option<f64>,
    budget: String,
    ok: bool,
}

impl Figure {
    /// Ours and the floor are costs in the same unit; ours may be at most `budget` times the floor.
    pub fn cost_ratio(name: &str, unit: &str, ours: f64, floor: f64, budget: f64) -> Self {
        let ratio = ours / floor;
        Self {
            name: name.to_string(),
            ours: with_unit(ours, unit),
            floor: with_unit(floor, unit),
            ratio: Some(ratio),
            budget: format!("<= {budget} x"),
            ok: ratio <= budget,
        }
    }

    /// Ours and the floor are rates in the same unit; ours must be at least `budget` times the floor.
    pub fn rate_ratio(name: &str, unit: &str, ours: f64, floor: f64, budget: f64) -> Self {
        let ratio = ours / floor;
        Self {
            budget: format!(">= {budget} x"),
            ok: ratio >= budget,
            ..Self::cost_ratio(name, unit, ours, floor, 0.0)
        }
    }

    /// A cost with a limit of its own; `peer` is what stands for others, in words.
    pub fn at_most(name: &str, unit: &str, ours: f64, peer: &str, limit: f64) -> Self {
        Self {
            name: name.to_string(),
            ours: with_unit(ours, unit),
            floor: peer.to_string(),
            ratio: None,
            budget: format!("<= {}", with_unit(limit, unit)),
            ok: ours <= limit,
        }
    }

    /// A rate with a limit of its own.
    pub fn at_least(name: &str, unit: &str, ours: f64, peer: &str, limit: f64) -> Self {
        let figure = Self::at_most(name, unit, ours, peer, limit);
        Self {
            budget: format!(">= {}", with_unit(limit, unit)),
            ok: ours >= limit,
            ..figure
        }
    }

    /// Whether the budget holds.
    pub fn is_ok(&self) -> bool {
        self.ok
    }

    /// name, ours, peer or floor, ratio, budget, verdict.
    pub fn line(&self) -> String {
        let ratio = self
            .ratio
            .map_or_else(|| "-".to_string(), |ratio| format!("{ratio:.2} x"));
        let verdict = if self.ok { "ok" } else { "short" };
        let Self {
            name,
            ours,
            floor,
            budget,
            ..
        } = self;
        format!("{name:<44} {ours:>14} {floor:>22} {ratio:>9} {budget:>14} {verdict}")
    }
}

/// The value below which `part` (0 to 1) of the samples lie. `None` without samples.
pub fn percentile(samples: &[Duration], part: f64) -> Option<Duration> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().checked_sub(1)?;
    let index = (last as f64 * part.clamp(0.0, 1.0)).round() as usize;
    sorted.get(index).copied()
}

fn with_unit(value: f64, unit: &str) -> String {
    let digits = if value.abs() >= 100.0 || value.fract() == 0.0 {
        0
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}

/// The median.
///
/// # Errors
/// There is no sample.
pub fn median(samples: &[Duration]) -> Result<Duration> {
    percentile(samples, 0.5).context("no sample")
}

pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_the_budget() {
        assert!(Figure::cost_ratio("durable", "us", 1.2, 1.0, 1.3).is_ok());
        assert!(!Figure::cost_ratio("durable", "us", 1.4, 1.0, 1.3).is_ok());
        assert!(Figure::rate_ratio("batch", "1/s", 75.0, 100.0, 0.7).is_ok());
        assert!(!Figure::rate_ratio("batch", "1/s", 60.0, 100.0, 0.7).is_ok());
        assert!(Figure::at_most("start", "ms", 900.0, "-", 1_000.0).is_ok());
        assert!(!Figure::at_least("batch", "1/s", 19_999.0, "-", 20_000.0).is_ok());
    }

    #[test]
    fn a_line_has_all_six_columns() {
        let line = Figure::cost_ratio("durable-allocation", "us", 150.0, 100.0, 1.3).line();
        let columns = line
            .split("  ")
            .filter(|column| !column.trim().is_empty())
            .count();
        assert!(columns >= 5 && line.ends_with("<= 1.3 x short"), "{line}");
        assert!(
            line.contains("150 us") && line.contains("100 us") && line.contains("1.50 x"),
            "{line}"
        );
    }

    #[test]
    fn percentiles_of_unsorted_samples() {
        let samples = [30, 10, 20, 50, 40].map(Duration::from_millis);
        assert_eq!(percentile(&samples, 0.5), Some(Duration::from_millis(30)));
        assert_eq!(percentile(&samples, 1.0), Some(Duration::from_millis(50)));
        assert_eq!(percentile(&[], 0.5), None);
    }
}
