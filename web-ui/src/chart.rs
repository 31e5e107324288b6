//! How full a pool was, as a drawing and in words.

use std::fmt::{self, Write as _};

use askama::filters::HtmlSafe;

use crate::{Moment, count};

/// How a pool was from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub at: Moment,
    pub used: u128,
    pub size: u128,
}

/// Points in the order of time; each lasts until the next, the last until `to`. Displayed as the drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    pub from: Moment,
    pub to: Moment,
    pub points: Vec<Point>,
}

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 160.0;

impl Chart {
    /// The chart in words.
    pub fn sentence(&self) -> String {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else {
            return "Nothing is known yet.".to_owned();
        };
        format!(
            "{} used at the beginning, {} at the end, {} at the most; the pool has {}.",
            count(first.used),
            count(last.used),
            count(self.most()),
            count(last.size)
        )
    }

    /// How many addresses the upper edge stands for.
    pub(crate) fn top(&self) -> String {
        count(self.scale())
    }

    fn most(&self) -> u128 {
        let used = self.points.iter().map(|point| point.used);
        used.max().unwrap_or(0)
    }

    /// The whole pool, unless what is used could hardly be seen then.
    fn scale(&self) -> u128 {
        let size = self.points.iter().map(|point| point.size).max();
        let most = self.most();
        match size.unwrap_or(0) {
            size if size <= most.saturating_mul(20) || size <= 20 => size.max(most).max(1),
            _ => most.saturating_mul(2).max(10),
        }
    }

    fn x(&self, at: Moment) -> f64 {
        let long = self.to.0.saturating_sub(self.from.0).max(1) as f64;
        let since = at.0.saturating_sub(self.from.0) as f64;
        (since / long).min(1.0) * WIDTH
    }

    /// A line in steps: along until the next point, then up or down to it.
    fn steps(&self, of: impl Fn(&Point) -> u128) -> String {
        let scale = self.scale() as f64;
        let mut path = String::new();
        for point in &self.points {
            let y = HEIGHT - (of(point) as f64 / scale).min(1.0) * HEIGHT;
            let x = self.x(point.at);
            // Writing to a String cannot fail.
            let _ = match path.is_empty() {
                true => write!(path, "M{x:.1} {y:.1}"),
                false => write!(path, "H{x:.1}V{y:.1}"),
            };
        }
        path + &format!("H{WIDTH:.1}")
    }
}

impl fmt::Display for Chart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.points.first() else {
            return Ok(());
        };
        let used = self.steps(|point| point.used);
        let begin = self.x(first.at);
        write!(
            f,
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">\
             <path class=\"chart-area\" d=\"{used}V{HEIGHT}H{begin:.1}Z\"/>\
             <path class=\"chart-line\" d=\"{used}\"/>",
            self.sentence()
        )?;
        if self.points.iter().any(|point| point.size <= self.scale()) {
            let size = self.steps(|point| point.size);
            write!(f, "<path class=\"chart-size\" d=\"{size}\"/>")?;
        }
        f.write_str("</svg>")
    }
}

/// Numbers and fixed words only.
impl HtmlSafe for Chart {}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: &[(u64, u128, u128)]) -> Chart {
        let points = points.iter().map(|(at, used, size)| Point {
            at: Moment(*at),
            used: *used,
            size: *size,
        });
        Chart {
            from: Moment(0),
            to: Moment(100),
            points: points.collect(),
        }
    }

    #[test]
    fn a_step_lasts_until_the_next_point() {
        let svg = chart(&[(0, 0, 10), (50, 5, 10)]).to_string();
        assert!(
            svg.contains("class=\"chart-line\" d=\"M0.0 160.0H500.0V80.0H1000.0\""),
            "{svg}"
        );
        assert!(svg.contains("d=\"M0.0 0.0H500.0V0.0H1000.0\""), "{svg}");
        assert!(
            svg.contains("0 used at the beginning, 5 at the end, 5 at the most; the pool has 10.")
        );
    }

    #[test]
    fn a_vast_pool_is_drawn_by_what_is_used_of_it() {
        let vast = chart(&[(0, 30, 1 << 64), (40, 60, 1 << 64)]);
        assert_eq!(vast.top(), "120");
        let svg = vast.to_string();
        assert!(
            !svg.contains("chart-size") && svg.contains("V80.0"),
            "{svg}"
        );
        for odd in [
            chart(&[]),
            chart(&[(0, 0, 0)]),
            chart(&[(500, u128::MAX, 1)]),
        ] {
            let svg = odd.to_string();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
