//! What was given and what came free over time, for the chart of the first page.
//!
//! Hours that are over do not change, so what was read of them is kept until the next one is.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{Hour, Timestamp};
use fipd_web_ui::{Bar, Flow, links};
use parking_lot::Mutex;

use super::{fields::with_query, views};
use crate::api::{Api, admin};

/// Of the longest span.
const DAYS: u32 = 30;

type Hours = BTreeMap<Hour, (u64, u64)>;

/// The hours of the last days, as of the one that is over last.
#[derive(Debug, Default)]
pub struct Known(Mutex<Option<(Hour, Arc<Hours>)>>);

/// The chart of the span that the address names; `None` while the store cannot be read.
pub async fn chart(api: &Api, span: &str) -> Option<Flow> {
    let now = api.ipam.now();
    let last = Hour::of(now).before(1);
    let hours = match api.flow.get(last) {
        Some(hours) => hours,
        None => {
            let reader = api.ipam.reader().clone();
            let from = last.before(DAYS * 24);
            let read = admin::blocking(move || reader.flow(from, last))
                .await
                .ok()?;
            let read = read.inspect_err(
                |error| tracing::warn!(%error, "the history of all pools cannot be read"),
            );
            api.flow.put(last, read.ok()?)
        }
    };
    let running = api.ipam.read(fipd_core::Ledger::running_hour);
    Some(of(&hours, running, now, span == "month"))
}

impl Known {
    fn get(&self, last: Hour) -> Option<Arc<Hours>> {
        let known = self.0.lock();
        let (of, hours) = known.as_ref()?;
        (*of == last).then(|| Arc::clone(hours))
    }

    fn put(&self, last: Hour, hours: Hours) -> Arc<Hours> {
        let hours = Arc::new(hours);
        *self.0.lock() = Some((last, Arc::clone(&hours)));
        hours
    }
}

/// The last day by the hour or the last month by the day, up to the running one.
fn of(hours: &Hours, running: (u64, u64), now: Timestamp, month: bool) -> Flow {
    let (step, many, now) = match month {
        true => (24, DAYS, Hour::of(now).day()),
        false => (1, 24, Hour::of(now)),
    };
    let bar = |back: u32| {
        let begin = now.before(back * step);
        let within = hours.range(begin..Hour(begin.0.saturating_add(step)));
        let first = if back == 0 { running } else { (0, 0) };
        let (given, freed) = within.fold(first, |sum, (_, (given, freed))| {
            (sum.0.saturating_add(*given), sum.1.saturating_add(*freed))
        });
        Bar {
            at: views::moment(begin.begin()),
            given,
            freed,
        }
    };
    let bars: Vec<_> = (0..many).rev().map(bar).collect();
    let end = Hour(now.0.saturating_add(step));
    let of_month = with_query(links::HOME, &[("span", "month")]);
    Flow {
        step: if month { "day" } else { "hour" },
        from: views::moment(now.before((many - 1) * step).begin()),
        to: views::moment(end.begin()),
        bars,
        spans: vec![
            (links::HOME.to_owned(), "24 hours", !month),
            (of_month, "30 days", month),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_and_days_end_with_the_running_one() {
        // Hour 1000 is the 17th of its day.
        let hours: Hours = [
            (Hour(999), (2, 1)),
            (Hour(976), (5, 0)),
            (Hour(975), (9, 9)),
        ]
        .into();
        let now = Timestamp(Hour(1000).begin().0 + 7);
        let day = of(&hours, (3, 4), now, false);
        assert_eq!(day.bars.len(), 24);
        let ends = |flow: &Flow, at: usize| (flow.bars[at].given, flow.bars[at].freed);
        assert_eq!(
            (ends(&day, 23), ends(&day, 22), ends(&day, 0)),
            ((3, 4), (2, 1), (0, 0))
        );
        assert_eq!(day.to.0, Hour(1001).begin().0);
        let month = of(&hours, (3, 4), now, true);
        assert_eq!(
            (month.bars.len(), month.from.0),
            (30, Hour(984 - 29 * 24).begin().0)
        );
        assert_eq!((ends(&month, 29), ends(&month, 28)), ((5, 5), (14, 9)));
    }

    #[test]
    fn what_is_known_is_of_the_last_hour_alone() {
        let known = Known::default();
        assert_eq!(known.get(Hour(5)), None);
        known.put(Hour(5), [(Hour(5), (1, 1))].into());
        assert!(known.get(Hour(5)).is_some() && known.get(Hour(6)).is_none());
    }
}
