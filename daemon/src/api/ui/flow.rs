//! What was given and what came free over time, for the chart of the first page.
//!
//! Hours that are over do not change, so what was read of them is kept until another one is noted: the end of an hour and
//! its row in the file are two times, and what lies between them counts as of the running hour.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{Hour, Ledger, Timestamp};
use fipd_web_ui::{Bar, Flow, Input, InputKind};

use super::{list::Listing, views};
use crate::api::rest::admin;
use crate::ipam::Ipam;

/// Of the longest span.
const DAYS: u32 = 30;
/// As the address says which span is shown.
const SPAN: &str = "span";
/// The longest one, as the address says it.
const MONTH: &str = "month";

type Hours = BTreeMap<Hour, (u64, u64)>;
/// The last hour that was noted, and of how many pools.
type Noted = Option<(Hour, usize)>;

/// The hours of the last days, as of what was noted last. Whoever needs them waits for the one who reads them.
#[derive(Debug, Default)]
pub struct KnownFlow(tokio::sync::Mutex<Option<(Noted, Arc<Hours>)>>);

/// What keeps the span while the list of its page is put in another order.
pub fn input() -> Input {
    Input::new(SPAN, "").kind(InputKind::Hidden)
}

/// The chart of the span that the list's address names; `None` while the store cannot be read.
pub async fn chart(ipam: &Ipam, flow: &KnownFlow, list: &Listing<'_>) -> Option<Flow> {
    let now = ipam.now();
    // At one time: what was counted leaves the running hour with the row that has it.
    let at_once = |ledger: &Ledger| (ledger.rolled_up(), ledger.running_hour());
    let (noted, running) = ipam.read(at_once);
    let read = async || {
        let reader = ipam.reader().clone();
        let last = Hour::of(now);
        let from = last.before(1 + DAYS * 24);
        let hours = admin::blocking(move || reader.flow(from, last)).await;
        let unreadable =
            |error: &_| tracing::warn!(%error, "the history of all pools cannot be read");
        hours.ok()?.inspect_err(unreadable).ok()
    };
    let hours = flow.of(noted, read).await?;
    Some(of(&hours, running, now, list))
}

impl KnownFlow {
    /// What is known as of then, else what `read` finds; one reads at a time.
    async fn of(
        &self,
        noted: Noted,
        read: impl AsyncFnOnce() -> Option<Hours>,
    ) -> Option<Arc<Hours>> {
        let mut known = self.0.lock().await;
        if let Some((of, hours)) = known.as_ref()
            && *of == noted
        {
            return Some(Arc::clone(hours));
        }
        let hours = Arc::new(read().await?);
        *known = Some((noted, Arc::clone(&hours)));
        Some(hours)
    }
}

/// The last day by the hour or the last month by the day, up to the running one.
fn of(hours: &Hours, running: (u64, u64), now: Timestamp, list: &Listing<'_>) -> Flow {
    let month = list.filter(SPAN) == MONTH;
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
    let spans = [("", "24 hours", !month), (MONTH, "30 days", month)];
    Flow {
        step: if month { "day" } else { "hour" },
        from: views::moment(now.before((many - 1) * step).begin()),
        to: views::moment(end.begin()),
        bars,
        spans: spans
            .map(|(span, label, current)| (list.link(&[(SPAN, span)]), label, current))
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use fipd_core::{Adopt, Request, testing};
    use fipd_web_ui::links;

    use super::*;
    use crate::api::ui::{fields::Fields, list::Order};

    fn listing(query: &str) -> Listing<'static> {
        const ORDERS: &[Order] = &[Order::up("outlook", ""), Order::up("name", "")];
        let query = Fields::parse(query.as_bytes());
        Listing::new(links::HOME, vec![input()], ORDERS, &query)
    }

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
        let day = of(&hours, (3, 4), now, &listing("sort=name"));
        assert_eq!(day.bars.len(), 24);
        let ends = |flow: &Flow, at: usize| (flow.bars[at].given, flow.bars[at].freed);
        assert_eq!(
            (ends(&day, 23), ends(&day, 22), ends(&day, 0)),
            ((3, 4), (2, 1), (0, 0))
        );
        assert_eq!(day.to.0, Hour(1001).begin().0);
        assert_eq!(
            day.spans,
            [
                ("/ui/?sort=name".to_owned(), "24 hours", true),
                ("/ui/?sort=name&span=month".to_owned(), "30 days", false),
            ]
        );
        let month = of(&hours, (3, 4), now, &listing("span=month"));
        assert_eq!(month.spans[0], ("/ui/".to_owned(), "24 hours", false));
        assert_eq!(
            (month.bars.len(), month.from.0),
            (30, Hour(984 - 29 * 24).begin().0)
        );
        assert_eq!((ends(&month, 29), ends(&month, 28)), ((5, 5), (14, 9)));
    }

    #[tokio::test]
    async fn what_is_known_is_read_once_for_all_who_ask_until_another_hour_is_noted() {
        let (known, reads) = (KnownFlow::default(), AtomicUsize::new(0));
        let ask = |noted| {
            let (known, reads) = (&known, &reads);
            async move {
                let read = async || {
                    tokio::task::yield_now().await;
                    let read = reads.fetch_add(1, Ordering::Relaxed);
                    Some(Hours::from([(Hour(5), (read as u64, 0))]))
                };
                known.of(noted, read).await.unwrap()[&Hour(5)].0
            }
        };
        let first = Some((Hour(5), 1));
        let asked = futures::future::join_all((0..8).map(|_| ask(first)));
        assert_eq!(asked.await, [0; 8]);
        assert_eq!(ask(Some((Hour(5), 2))).await, 1, "of another pool");
        assert_eq!(ask(Some((Hour(6), 1))).await, 2);
        assert_eq!(reads.into_inner(), 3);
    }

    #[tokio::test]
    async fn an_hour_that_is_over_is_in_the_chart_before_and_after_it_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(AtomicU64::new(Hour(1_000).begin().0));
        let wall = Arc::clone(&clock);
        let told = Arc::new(move || Timestamp(wall.load(Ordering::Relaxed)));
        let (ipam, writer) = Ipam::start(dir.path(), told).unwrap();
        let spec = testing::pool_spec("p", &["10.0.0.0/24"]);
        let create = testing::create_pool(spec);
        ipam.submit(create).await.unwrap();
        crate::rollup::roll_up(&ipam).await.unwrap();
        let key = testing::key([10, 0, 0, 9]);
        let adopt = Adopt {
            length: None,
            key,
            holder: testing::holder("fipd/host/lab/a", ""),
            tenant: None,
            since: Timestamp(1),
            actor: "test".into(),
        };
        ipam.submit(Request::Adopt(adopt)).await.unwrap();
        let known = KnownFlow::default();
        let given = async || {
            let flow = chart(&ipam, &known, &listing("")).await.unwrap();
            flow.bars.iter().map(|bar| bar.given).sum::<u64>()
        };
        assert_eq!(given().await, 1);
        clock.store(Hour(1_001).begin().0, Ordering::Relaxed);
        assert_eq!(given().await, 1, "over and not noted");
        crate::rollup::roll_up(&ipam).await.unwrap();
        assert_eq!(given().await, 1, "noted");
        ipam.shutdown().await;
        writer.join();
    }
}
