//! How numbers, shares and points in time are written.

use std::fmt;

use askama::filters::HtmlSafe;
use jiff::Timestamp;

/// A point in time: milliseconds since the Unix epoch. Written as a `time` element, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

/// A whole number as `65,536`; from 10^15 on `1.84 × 10¹⁹`.
pub fn count(number: impl fmt::Display) -> String {
    let digits = number.to_string();
    if digits.len() > 15 {
        let exponent = digits.len().saturating_sub(1);
        let (whole, rest) = digits.split_at(1);
        let raised: String = exponent.to_string().chars().filter_map(raised).collect();
        return format!("{whole}.{} × 10{raised}", rest.get(..2).unwrap_or("00"));
    }
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn raised(digit: char) -> Option<char> {
    let digits = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let value = usize::try_from(digit.to_digit(10)?).ok()?;
    digits.get(value).copied()
}

/// The share of `part` in `whole`. Says `100 %` only of all, and `0 %` only of nothing.
pub fn percent(part: u128, whole: u128) -> String {
    if part == 0 || whole == 0 {
        return "0 %".to_owned();
    }
    if part >= whole {
        return "100 %".to_owned();
    }
    let share = part as f64 / whole as f64 * 100.0;
    if share < 0.1 {
        "< 0.1 %".to_owned()
    } else if share < 10.0 {
        format!("{share:.1} %")
    } else if share > 99.0 {
        "> 99 %".to_owned()
    } else {
        format!("{share:.0} %")
    }
}

/// At most `most` characters; what was cut is shown by an ellipsis.
pub fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars()
        .take(most.saturating_sub(1))
        .chain(['…'])
        .collect()
}

impl Moment {
    /// `2026-11-21T05:57:20Z`.
    pub fn iso(self) -> String {
        self.utc("%Y-%m-%dT%H:%M:%SZ")
    }

    /// `2026-11-21 05:57:20 UTC`.
    pub fn human(self) -> String {
        self.utc("%Y-%m-%d %H:%M:%S UTC")
    }

    fn utc(self, format: &str) -> String {
        let at = i64::try_from(self.0).unwrap_or(i64::MAX);
        let at = Timestamp::from_millisecond(at).unwrap_or(Timestamp::MAX);
        at.strftime(format).to_string()
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "<time datetime=\"{}\">{}</time>",
            self.iso(),
            self.human()
        )
    }
}

/// Digits and punctuation only.
impl HtmlSafe for Moment {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_and_huge_ones_rounded() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (16_777_216, "16,777,216"),
            (999_999_999_999_999, "999,999,999,999,999"),
            (1 << 64, "1.84 × 10¹⁹"),
            (u128::MAX, "3.40 × 10³⁸"),
        ] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn shares_never_round_to_all_or_nothing() {
        for (part, whole, text) in [
            (0, 0, "0 %"),
            (0, 5, "0 %"),
            (5, 0, "0 %"),
            (1, u128::MAX, "< 0.1 %"),
            (1, 100, "1.0 %"),
            (127, 254, "50 %"),
            (253, 254, "> 99 %"),
            (254, 254, "100 %"),
        ] {
            assert_eq!(percent(part, whole), text, "{part} of {whole}");
        }
    }

    #[test]
    fn moments_follow_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59Z"),
            (1_795_240_640_000, "2026-11-21T05:57:20Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Moment(ms).iso(), text);
        }
        assert_eq!(
            Moment(0).to_string(),
            "<time datetime=\"1970-01-01T00:00:00Z\">1970-01-01 00:00:00 UTC</time>"
        );
    }

    #[test]
    fn long_text_is_cut_at_characters() {
        assert_eq!(shorten("short", 5), "short");
        assert_eq!(shorten("ärger", 4), "ärg…");
    }
}
