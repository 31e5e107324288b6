//! How full a pool was in the last 30 days, and when it will be full.

use fipd_core::{Forecast, Hour, PoolId, Rollup, Timestamp};
use fipd_web_ui::{Chart, Point};

use super::views;
use crate::api::{rest::admin, wire::ForecastView};
use crate::{ipam::Ipam, store::HistoryAsk};

const DAYS: u32 = 30;

/// `None` before the first hour is over, or while the store cannot be read: the rest of the page does without.
pub async fn chart(ipam: &Ipam, pool: PoolId, now: Timestamp) -> Option<Chart> {
    let last = Hour::of(now).before(1);
    let from = last.before(DAYS * 24 - 1);
    let ask = HistoryAsk {
        pool,
        from,
        to: last,
        daily: false,
        limit: (DAYS * 24) as usize,
    };
    let reader = ipam.reader().clone();
    let read = move || Ok((reader.row_before(pool, from)?, reader.history(ask)?.0));
    let read: Result<_, crate::store::ReadError> = admin::blocking(read).await.ok()?;
    let (before, rows) = read
        .inspect_err(|error| tracing::warn!(%error, "the history of a pool cannot be read"))
        .ok()?;
    of(before, &rows, last)
}

/// Each row is drawn when its hour begins.
fn of(before: Option<Rollup>, rows: &[Rollup], last: Hour) -> Option<Chart> {
    let first = last.before(DAYS * 24 - 1);
    let begun = before.map(|row| Rollup { hour: first, ..row });
    let begun = begun.filter(|_| rows.first().is_none_or(|row| row.hour > first));
    let points: Vec<_> = begun.iter().chain(rows).map(point).collect();
    let from = points.first()?.at;
    Some(Chart {
        from,
        to: views::moment(last.end()),
        points,
    })
}

fn point(row: &Rollup) -> Point {
    Point {
        at: views::moment(row.hour.begin()),
        used: row.used.into(),
        size: row.size,
    }
}

pub fn sentence(forecast: Forecast) -> String {
    match forecast {
        Forecast::TooLittle => {
            "For a forecast there is too little history: it takes a day.".to_owned()
        }
        Forecast::NotAtThisPace => {
            "At the pace of the last seven days it does not run out.".to_owned()
        }
        Forecast::FullIn { hours: 0 } => String::new(),
        Forecast::FullIn { .. } => format!(
            "At the pace of the last seven days it is {}.",
            ForecastView::from(forecast)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(hour: u32, used: u64) -> Rollup {
        Rollup {
            pool: PoolId(1),
            hour: Hour(hour),
            size: 256,
            used,
            quarantined: 0,
            highest: used,
            given: 0,
            released: 0,
            refused: 0,
        }
    }

    #[test]
    fn what_was_before_the_chart_is_drawn_from_its_beginning_on() {
        let last = Hour(10_000);
        let first = last.before(719);
        let drawn = |before, rows: &[Rollup]| {
            of(before, rows, last).map(|chart| {
                let used: Vec<_> = chart.points.iter().map(|point| point.used).collect();
                (chart.from.0, used)
            })
        };
        assert_eq!(drawn(None, &[]), None);
        let begin = first.begin().0;
        assert_eq!(drawn(Some(row(3, 7)), &[]), Some((begin, vec![7])));
        let later = [row(9_999, 9)];
        assert_eq!(drawn(Some(row(3, 7)), &later), Some((begin, vec![7, 9])));
        assert_eq!(drawn(None, &later), Some((Hour(9_999).begin().0, vec![9])));
        assert_eq!(
            drawn(Some(row(3, 7)), &[row(first.0, 8)]),
            Some((begin, vec![8]))
        );
    }
}
