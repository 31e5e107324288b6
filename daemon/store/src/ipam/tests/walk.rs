//! Readers that look at many rows.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fipd_core::{Ledger, NetworkId};
use futures::future::join_all;

use super::{make_pool, start, stop};

#[tokio::test]
async fn all_pools_are_read_in_steps_and_debug_builds_refuse_them_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, writer) = start(dir.path());
    let number = Ledger::SCAN + 2;
    let made = (0..number).map(|at| {
        let addresses = format!("10.{}.{}.0/29", at / 256, at % 256);
        let ipam = &ipam;
        async move { make_pool(ipam, &format!("p{at}"), &addresses).await }
    });
    let mut made = join_all(made).await;
    made.sort_unstable();
    let mut seen = Vec::new();
    ipam.for_each_pool(|_, pool| seen.push(pool.id));
    assert_eq!(seen, made);
    assert_eq!(ipam.pools().len(), number);
    assert_eq!(ipam.read(|ledger| ledger.pools().len()), number);
    let some = |most| ipam.read(|ledger| ledger.pools().take(most).count());
    assert_eq!(some(Ledger::SCAN + 1), Ledger::SCAN + 1);
    let all = catch_unwind(AssertUnwindSafe(|| some(usize::MAX)));
    assert_eq!(all.is_err(), cfg!(debug_assertions));
    let default = ipam.find_network(|ledger, id| ledger.network(id).map(|_| id));
    assert_eq!(default, Some(NetworkId::DEFAULT));
    assert_eq!(ipam.find_network(|_, _| None::<()>), None);
    stop(&ipam, writer).await;
}
