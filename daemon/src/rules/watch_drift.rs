//! Tells the audit log that somebody else changed fipd's rules.

use std::time::Duration;

use fipd_core::Action;
use tokio_util::sync::CancellationToken;

use super::{Drift, RuleBoard};
use crate::ipam::Ipam;

/// One entry for each cause in this time.
pub const PACE: Duration = Duration::from_secs(60);

/// Notes what had to be repaired, until it is told to stop. The first is noted at once, what follows within `pace` is counted.
pub async fn run(ipam: Ipam, board: RuleBoard, pace: Duration, stop: CancellationToken) {
    let mut views = board.views();
    let mut told = board.view().drift;
    loop {
        let next = async {
            views.changed().await.is_ok() && {
                let now = views.borrow_and_update().drift;
                if now != told {
                    note(&ipam, &entries(told, now)).await;
                    told = now;
                    tokio::time::sleep(pace).await;
                    // What came meanwhile is looked at now.
                    views.mark_changed();
                }
                true
            }
        };
        if stop.run_until_cancelled(next).await != Some(true) {
            return;
        }
    }
}

async fn note(ipam: &Ipam, entries: &[String]) {
    for what in entries {
        let noted = ipam.note(Action::RulesChanged, what.as_str(), "fipd");
        if let Err(error) = noted.await {
            tracing::warn!(%error, what, "not in the audit log");
        }
    }
}

/// What is to be said, one sentence for each cause.
fn entries(before: Drift, now: Drift) -> Vec<String> {
    let causes = [
        (
            before.removed,
            now.removed,
            "rules of fipd were removed by another program and are back",
        ),
        (
            before.added,
            now.added,
            "rules with fipd's tag were not fipd's, or there twice, and are gone",
        ),
        (
            before.index,
            now.index,
            "times the table of the packet filter was not as fipd left it, and was made anew",
        ),
        (
            before.overruns,
            now.overruns,
            "times notifications of the kernel were lost, and everything was read anew",
        ),
    ];
    let grown = causes.into_iter().filter(|(before, now, _)| now > before);
    grown
        .map(|(before, now, what)| format!("{} {what}", now - before))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::rules::View;

    fn drifted(removed: u64, added: u64) -> View {
        View {
            drift: Drift {
                removed,
                added,
                ..Drift::default()
            },
            ..View::default()
        }
    }

    fn noted(ipam: &Ipam) -> Vec<String> {
        let page = ipam.reader().audit_page(None, 100).unwrap().into_iter();
        let all = page.rev().map(|(_, entry)| entry);
        all.filter(|entry| entry.action == Action::RulesChanged)
            .map(|entry| entry.detail.to_string())
            .collect()
    }

    #[tokio::test]
    async fn a_burst_is_one_entry_a_minute_for_each_cause() {
        let dir = tempfile::tempdir().unwrap();
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(crate::clock::now)).unwrap();
        let (board, stop) = (RuleBoard::default(), CancellationToken::new());
        let pace = Duration::from_secs(2);
        let watching = run(ipam.clone(), board.clone(), pace, stop.clone());
        let watching = tokio::spawn(watching);
        tokio::task::yield_now().await;
        board.show(drifted(1, 0));
        let noted_after = async |count: usize| {
            let deadline = std::time::Instant::now() + Duration::from_secs(20);
            while noted(&ipam).len() < count {
                assert!(std::time::Instant::now() < deadline, "{:?}", noted(&ipam));
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            noted(&ipam)
        };
        assert!(noted_after(1).await[0].starts_with("1 rules of fipd were removed"));
        for count in 2..100 {
            board.show(drifted(count, 2));
            tokio::task::yield_now().await;
        }
        let said = noted_after(3).await;
        assert!(
            said[1].starts_with("98 rules of fipd were removed"),
            "{said:?}"
        );
        assert!(said[2].starts_with("2 rules with fipd's tag"), "{said:?}");
        stop.cancel();
        watching.await.unwrap();
    }
}
