//! The clocks of the host, read in one place.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fipd_core::Timestamp;

mod host;

pub use host::{Clock, ClockTrust, HostClock, KernelClock, Synchronised, WallClock};

/// The wall clock's time; 0 where it stands before 1970.
pub fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// RFC 3339 in UTC with milliseconds, such as `2026-03-01T12:00:00.000Z`.
pub fn rfc3339(at: Timestamp) -> String {
    let millis = i64::try_from(at.0).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_millisecond(millis) {
        Ok(at) => format!("{at:.3}"),
        Err(_) => "never".to_owned(),
    }
}

/// Reads RFC 3339; `None` for anything else and for times before 1970.
pub fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok().map(Timestamp)
}

/// Reads what people type into a form: RFC 3339, or a day with or without a time, in UTC. `None` for anything else
/// and for times before 1970.
pub fn parse_typed(text: &str) -> Option<Timestamp> {
    parse_rfc3339(text).or_else(|| {
        let typed: jiff::civil::DateTime = text.parse().ok()?;
        let at = typed.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
        let millis = at.timestamp().as_millisecond();
        u64::try_from(millis).ok().map(Timestamp)
    })
}

/// Reads a number and its unit, such as `90d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let allowed = || "a number and s, m, h or d is allowed, such as 90d".to_owned();
    let unit = text.chars().next_back().ok_or_else(allowed)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(allowed()),
    };
    let number = text
        .strip_suffix(unit)
        .and_then(|number| number.parse::<u64>().ok());
    let number = number.filter(|number| *number > 0).ok_or_else(allowed)?;
    number
        .checked_mul(seconds)
        .map(Duration::from_secs)
        .ok_or_else(allowed)
}

/// The same in seconds, up to 136 years.
pub fn seconds(text: &str) -> Result<u32, String> {
    let seconds = duration(text)?.as_secs();
    u32::try_from(seconds).map_err(|_| "at most 49000d is allowed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_times_are_in_utc() {
        let noon = parse_rfc3339("2026-03-01T12:00:00Z");
        assert!(noon.is_some());
        for text in [
            "2026-03-01T12:00",
            "2026-03-01 12:00:00",
            "2026-03-01T13:00:00+01:00",
        ] {
            assert_eq!(parse_typed(text), noon, "{text}");
        }
        assert_eq!(
            parse_typed("2026-03-01"),
            parse_rfc3339("2026-03-01T00:00:00Z")
        );
        for text in ["", "tomorrow", "2026-13-01", "12:00", "1969-01-01"] {
            assert_eq!(parse_typed(text), None, "{text}");
        }
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("90d"), Ok(Duration::from_secs(90 * 86_400)));
        for bad in ["", "90", "d", "-1h", "0m", "1€", "99999999999999999999d"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_survive_their_text() {
        let at = Timestamp(1_767_225_600_123);
        assert_eq!(rfc3339(at), "2026-01-01T00:00:00.123Z");
        assert_eq!(parse_rfc3339(&rfc3339(at)), Some(at));
        assert_eq!(parse_rfc3339("yesterday"), None);
        assert!(!rfc3339(Timestamp(u64::MAX)).is_empty());
    }
}
