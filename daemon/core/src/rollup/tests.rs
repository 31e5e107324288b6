use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn growing(hours: u32, an_hour: u64) -> impl Iterator<Item = (Hour, u64)> {
    (0..hours).map(move |hour| (Hour(1_000 + hour), 10 + u64::from(hour) * an_hour))
}

#[test]
fn a_steady_pace_is_followed_to_the_end() {
    let full = |hours, free| Forecast::new(growing(hours, 2), Hour(999 + hours), free);
    assert_eq!(full(168, 100), Forecast::FullIn { hours: 50 });
    assert_eq!(full(24, 101), Forecast::FullIn { hours: 51 });
    assert_eq!(full(23, 100), Forecast::TooLittle);
    assert_eq!(full(0, 100), Forecast::TooLittle);
    assert_eq!(full(0, 0), Forecast::FullIn { hours: 0 });
    assert_eq!(full(168, u128::MAX), Forecast::NotAtThisPace);
}

#[test]
fn what_does_not_grow_is_never_full() {
    let same = (0..30).map(|hour| (Hour(hour), 7));
    assert_eq!(Forecast::new(same, Hour(30), 1), Forecast::NotAtThisPace);
    let shrinking = (0..30).map(|hour| (Hour(hour), u64::from(99 - hour)));
    assert_eq!(
        Forecast::new(shrinking, Hour(30), 1),
        Forecast::NotAtThisPace
    );
}

#[test]
fn an_hour_without_a_row_was_as_the_one_before() {
    let rows = [(Hour(0), 0), (Hour(84), 10)];
    let each = (0..168).map(|hour| (Hour(hour), if hour < 84 { 0 } else { 10 }));
    let sparse = Forecast::new(rows, Hour(167), 10);
    assert_eq!(sparse, Forecast::new(each, Hour(167), 10));
    assert!(
        sparse
            .hours()
            .is_some_and(|hours| (80..160).contains(&hours)),
        "{sparse:?}"
    );
    // A week later nothing has grown for a week.
    assert_eq!(
        Forecast::new(rows, Hour(84 + 168), 10),
        Forecast::NotAtThisPace
    );
}

#[test]
fn the_pace_of_a_huge_pool_is_not_lost_in_its_size() {
    let huge = growing(168, 1).map(|(hour, used)| (hour, used + (1 << 60)));
    assert_eq!(
        Forecast::new(huge, Hour(1_167), 100),
        Forecast::FullIn { hours: 100 }
    );
}

/// As it is defined: least squares over a point for each hour.
fn hour_by_hour(rows: &BTreeMap<Hour, u64>, last: Hour, free: u64) -> Forecast {
    let first = last.before(Forecast::WINDOW - 1);
    let point = |hour| {
        let (_, used) = rows.range(..=Hour(hour)).next_back()?;
        Some((i128::from(hour - first.0), i128::from(*used)))
    };
    let points: Vec<(i128, i128)> = (first.0..=last.0).filter_map(point).collect();
    let sum = |of: fn(&(i128, i128)) -> i128| points.iter().map(of).sum::<i128>();
    let count = sum(|_| 1);
    let along = count * sum(|(x, y)| x * y) - sum(|(x, _)| *x) * sum(|(_, y)| *y);
    let spread = count * sum(|(x, _)| x * x) - sum(|(x, _)| *x).pow(2);
    if free == 0 {
        return Forecast::FullIn { hours: 0 };
    }
    if count < i128::from(Forecast::LEAST) {
        return Forecast::TooLittle;
    }
    if along <= 0 {
        return Forecast::NotAtThisPace;
    }
    match (i128::from(free) * spread + along - 1) / along {
        hours @ ..=87_600 => Forecast::FullIn {
            hours: hours as u32,
        },
        _ => Forecast::NotAtThisPace,
    }
}

#[test]
fn old_days_keep_their_last_row() {
    let rows = [50, 49, 47, 24, 23, 0].map(Hour);
    assert_eq!(Retention::thinned(rows), [49, 24, 0].map(Hour));
    let keep = Retention {
        hourly: 2,
        daily: 10,
    };
    assert_eq!(keep.thin_before(Hour(24 * 20 + 5)), Hour(24 * 18));
    assert_eq!(keep.drop_before(Hour(24 * 20 + 5)), Hour(24 * 10));
    assert_eq!(keep.drop_before(Hour(3)), Hour(0));
    let longer = Retention {
        hourly: 9,
        daily: 1,
    };
    assert!(longer.drop_before(Hour(999)) <= longer.thin_before(Hour(999)));
}

#[test]
fn hours_have_a_begin_and_an_end() {
    let hour = Hour::of(Timestamp(3_600_000 * 7 + 5));
    assert_eq!(
        (hour, hour.begin(), hour.end()),
        (Hour(7), Timestamp(25_200_000), Timestamp(28_800_000))
    );
    assert_eq!(Hour::of(hour.end()), Hour(8));
    assert_eq!(Hour::of(Timestamp(u64::MAX)), Hour(u32::MAX));
    assert!(Hour(u32::MAX).end() > Hour(u32::MAX).begin());
}

proptest! {
    #[test]
    fn a_forecast_is_a_number_or_says_why_not(
        rows in prop::collection::btree_map(any::<u32>().prop_map(|hour| Hour(hour % 400)), any::<u64>(), 0..200),
        last in 0..500_u32,
        free in any::<u128>(),
    ) {
        let forecast = Forecast::new(rows.clone(), Hour(last), free);
        if let Forecast::FullIn { hours } = forecast {
            prop_assert!(hours <= 10 * 365 * 24);
            prop_assert_eq!(hours == 0, free == 0);
        }
        // The more is free, the later.
        let later = Forecast::new(rows, Hour(last), free.saturating_mul(2)).hours().unwrap_or(u32::MAX);
        prop_assert!(later >= forecast.hours().unwrap_or(0));
    }

    #[test]
    fn from_row_to_row_is_as_from_hour_to_hour(
        rows in prop::collection::btree_map((0..400_u32).prop_map(Hour), prop_oneof![3 => 0..300_u64, 1 => any::<u64>()], 0..40),
        last in 0..500_u32,
        free in prop_oneof![3 => 0..3_000_u64, 1 => any::<u64>()],
    ) {
        let plain = hour_by_hour(&rows, Hour(last), free);
        prop_assert_eq!(Forecast::new(rows, Hour(last), free.into()), plain);
    }

    #[test]
    fn thinning_leaves_the_last_of_each_day_and_is_done_once(rows in prop::collection::btree_set(0..400_u32, 0..200)) {
        let latest_first = || rows.iter().rev().copied().map(Hour);
        let gone = Retention::thinned(latest_first());
        let kept: Vec<_> = latest_first().filter(|hour| !gone.contains(hour)).collect();
        let days: BTreeMap<_, _> = rows.iter().map(|hour| (hour / 24, *hour)).collect();
        prop_assert_eq!(&kept, &days.into_values().rev().map(Hour).collect::<Vec<_>>());
        prop_assert!(Retention::thinned(kept).is_empty());
    }
}
