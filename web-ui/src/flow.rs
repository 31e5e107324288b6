//! How many addresses were given and how many came free over time, as a drawing, in a sentence and as a table.

use std::fmt;

use askama::filters::HtmlSafe;

use crate::{Moment, count};

/// What happened from a moment on, for one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    pub at: Moment,
    pub given: u64,
    pub freed: u64,
}

/// Bars in the order of time, one a step. Displayed as the drawing: what was given stands above the line, what came
/// free hangs below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// One word, such as `hour`.
    pub step: &'static str,
    pub from: Moment,
    pub to: Moment,
    pub bars: Vec<Bar>,
    /// Other spans: address, label, and whether it is the one that is shown.
    pub spans: Vec<(String, &'static str, bool)>,
}

const WIDTH: f64 = 1000.0;
const HALF: f64 = 70.0;

impl Flow {
    pub(crate) fn given(&self) -> u64 {
        let all = self.bars.iter().map(|bar| bar.given);
        all.fold(0, u64::saturating_add)
    }

    pub(crate) fn freed(&self) -> u64 {
        let all = self.bars.iter().map(|bar| bar.freed);
        all.fold(0, u64::saturating_add)
    }

    /// The drawing in words.
    pub fn sentence(&self) -> String {
        let (given, freed) = (count(self.given()), count(self.freed()));
        match self.busiest() {
            None => "Nothing was allocated and nothing was released.".to_owned(),
            Some(most) => format!(
                "{given} allocated and {freed} released; the most in one {} were {} allocated and {} released.",
                self.step,
                count(most.0),
                count(most.1)
            ),
        }
    }

    /// How many addresses the upper and the lower edge stand for.
    pub(crate) fn top(&self) -> String {
        count(self.scale())
    }

    /// The steps in which something happened, the latest first.
    pub(crate) fn table(&self) -> impl Iterator<Item = &Bar> {
        let busy = |bar: &&Bar| bar.given > 0 || bar.freed > 0;
        self.bars.iter().rev().filter(busy)
    }

    /// The highest of each; `None` where nothing happened.
    fn busiest(&self) -> Option<(u64, u64)> {
        let given = self.bars.iter().map(|bar| bar.given).max().unwrap_or(0);
        let freed = self.bars.iter().map(|bar| bar.freed).max().unwrap_or(0);
        (given > 0 || freed > 0).then_some((given, freed))
    }

    fn scale(&self) -> u64 {
        let (given, freed) = self.busiest().unwrap_or_default();
        given.max(freed).max(1)
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "<svg class=\"chart flow\" viewBox=\"0 0 {WIDTH} {}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
            2.0 * HALF,
            self.sentence()
        )?;
        let scale = self.scale() as f64;
        let step = WIDTH / self.bars.len().max(1) as f64;
        // What happened is seen, however little it was.
        let high = |many: u64| match many {
            0 => 0.0,
            many => (many as f64 / scale * (HALF - 2.0)).max(2.0),
        };
        for (index, bar) in self.bars.iter().enumerate() {
            let (x, width) = (index as f64 * step + step * 0.1, step * 0.8);
            for (class, many, up) in [("given", bar.given, true), ("freed", bar.freed, false)] {
                let height = high(many);
                if many > 0 {
                    let y = if up { HALF - height } else { HALF };
                    write!(
                        f,
                        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
                    )?;
                }
            }
        }
        write!(f, "<path class=\"axis\" d=\"M0 {HALF}H{WIDTH}\"/></svg>")
    }
}

/// Numbers and fixed words only.
impl HtmlSafe for Flow {}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(bars: &[(u64, u64)]) -> Flow {
        let bar = |(index, (given, freed)): (usize, &(u64, u64))| Bar {
            at: Moment(index as u64 * 3_600_000),
            given: *given,
            freed: *freed,
        };
        Flow {
            step: "hour",
            from: Moment(0),
            to: Moment(bars.len() as u64 * 3_600_000),
            bars: bars.iter().enumerate().map(bar).collect(),
            spans: vec![],
        }
    }

    #[test]
    fn what_is_given_stands_above_the_line_and_what_comes_free_below_it() {
        let svg = flow(&[(4, 0), (0, 1)]).to_string();
        assert!(
            svg.contains("class=\"given\" x=\"50.0\" y=\"2.0\" width=\"400.0\" height=\"68.0\""),
            "{svg}"
        );
        assert!(
            svg.contains("class=\"freed\" x=\"550.0\" y=\"70.0\" width=\"400.0\" height=\"17.0\""),
            "{svg}"
        );
        assert!(
            svg.contains(
                "4 allocated and 1 released; the most in one hour were 4 allocated and 1 released."
            ),
            "{svg}"
        );
    }

    #[test]
    fn one_of_very_many_is_still_seen_and_nothing_is_no_bar() {
        let svg = flow(&[(1_000_000, 0), (1, 0)]).to_string();
        assert!(svg.contains("height=\"2.0\""), "{svg}");
        for quiet in [flow(&[]), flow(&[(0, 0)])] {
            let svg = quiet.to_string();
            assert!(
                svg.contains("Nothing was allocated") && !svg.contains("<rect"),
                "{svg}"
            );
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        let most = flow(&[(u64::MAX, u64::MAX), (1, 1)]);
        assert_eq!(most.given(), u64::MAX);
    }

    #[test]
    fn the_table_has_the_busy_steps_the_latest_first() {
        let flow = flow(&[(4, 0), (0, 0), (0, 1)]);
        let hours: Vec<_> = flow.table().map(|bar| bar.at.0 / 3_600_000).collect();
        assert_eq!(hours, [2, 0]);
    }
}
