//! How much of a pool is in use, as numbers and as a bar.

use std::fmt;

use askama::filters::HtmlSafe;
use fipd_core::PoolUsage;

use crate::{count, percent};

/// The figures of one pool. Displayed as the bar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage(pub PoolUsage);

impl Usage {
    /// `12 of 254 used (4.7 %), 242 free`; `2 of them in quarantine` where some are.
    pub fn sentence(&self) -> String {
        let (used, size, free) = (count(self.0.used), count(self.0.size), count(self.0.free));
        let cooling = match self.0.quarantined {
            0 => String::new(),
            some => format!(", {} of them in quarantine", count(some)),
        };
        format!(
            "{used} of {size} used ({}){cooling}, {free} free",
            percent(self.0.used, self.0.size)
        )
    }

    /// Excluded, reserved ends and gateway.
    pub fn excluded(&self) -> u128 {
        self.0.excluded.saturating_add(self.0.reserved)
    }

    /// The share in use.
    pub fn percent(&self) -> String {
        percent(self.0.used, self.0.size)
    }

    /// Class of the bar: it turns at 80 % and when nothing is left.
    pub fn level(&self) -> &'static str {
        if self.0.free == 0 && self.0.size > 0 {
            "full"
        } else if self.permille() >= 800 {
            "high"
        } else {
            "fine"
        }
    }

    /// What the level means in a word; empty while there is room.
    pub fn remark(&self) -> &'static str {
        match self.level() {
            "full" => "full",
            "high" => "nearly full",
            _ => "",
        }
    }

    /// What lists by use are ordered by.
    pub fn permille(&self) -> u32 {
        self.share(self.0.used)
    }

    fn share(&self, part: u128) -> u32 {
        if self.0.size == 0 {
            return 0;
        }
        let share = (part as f64 / self.0.size as f64 * 1000.0) as u32;
        share.clamp(u32::from(part > 0) * 15, 1000)
    }
}

/// An inline drawing, since widths in style attributes are against the content security policy.
impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.0.used.saturating_sub(self.0.quarantined);
        let used = self.share(held);
        let other = self.0.size.saturating_sub(held).saturating_sub(self.0.free);
        let other = self.share(other).min(1000_u32.saturating_sub(used));
        write!(
            f,
            "<svg class=\"bar {}\" viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">\
             <rect class=\"bar-used\" width=\"{used}\" height=\"10\"/>\
             <rect class=\"bar-other\" x=\"{used}\" width=\"{other}\" height=\"10\"/></svg>",
            self.level(),
            self.sentence()
        )
    }
}

/// Numbers and fixed words only.
impl HtmlSafe for Usage {}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(size: u128, used: u128, free: u128) -> Usage {
        Usage(PoolUsage {
            size,
            used,
            free,
            ..PoolUsage::default()
        })
    }

    #[test]
    fn the_bar_shows_used_and_neither_used_nor_free() {
        let bar = usage(200, 50, 130).to_string();
        assert!(
            bar.contains("width=\"250\"") && bar.contains("x=\"250\" width=\"100\""),
            "{bar}"
        );
        assert!(bar.contains("50 of 200 used (25 %), 130 free"), "{bar}");
    }

    #[test]
    fn what_cools_has_its_own_part_of_the_bar() {
        let quarantined = 20;
        let cooling = Usage(PoolUsage {
            quarantined,
            ..usage(200, 70, 130).0
        });
        let bar = cooling.to_string();
        assert!(
            bar.contains("width=\"250\"") && bar.contains("x=\"250\" width=\"100\""),
            "{bar}"
        );
        assert!(
            bar.contains("70 of 200 used (35 %), 20 of them in quarantine, 130 free"),
            "{bar}"
        );
    }

    #[test]
    fn one_of_very_many_is_still_seen() {
        assert_eq!(usage(1 << 64, 1, (1 << 64) - 1).permille(), 15);
        assert_eq!(usage(0, 0, 0).permille(), 0);
        assert_eq!(usage(u128::MAX, u128::MAX, 0).permille(), 1000);
    }

    #[test]
    fn levels_turn_at_eighty_percent_and_at_the_end() {
        assert_eq!(usage(100, 79, 21).level(), "fine");
        assert_eq!(usage(100, 80, 20).level(), "high");
        assert_eq!(usage(100, 100, 0).level(), "full");
        assert_eq!(usage(0, 0, 0).level(), "fine");
    }
}
