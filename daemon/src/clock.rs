//! The wall clock, read in one place.

use std::time::{SystemTime, UNIX_EPOCH};

use fipd_core::Timestamp;

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
    fn times_survive_their_text() {
        let at = Timestamp(1_767_225_600_123);
        assert_eq!(rfc3339(at), "2026-01-01T00:00:00.123Z");
        assert_eq!(parse_rfc3339(&rfc3339(at)), Some(at));
        assert_eq!(parse_rfc3339("yesterday"), None);
        assert!(!rfc3339(Timestamp(u64::MAX)).is_empty());
    }
}
