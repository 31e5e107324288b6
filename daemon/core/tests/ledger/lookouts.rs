//! A pool that is new to a cluster in which others use addresses gives nothing before that was looked at.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;

use fipd_core::{
    ClusterId, Ledger, Lookout, NetworkId, Planned, PoolEdit, PoolId, PoolSpec, Refusal, Request,
    System, Timestamp, testing,
};

struct Book(Ledger);

impl Book {
    fn ask(&mut self, request: &Request) -> Result<(), Refusal> {
        match self.0.plan(request, Timestamp(100)) {
            Planned::Tentative { ticket, .. } => {
                self.0.confirm(ticket);
                Ok(())
            }
            Planned::Answer(_) => Ok(()),
            Planned::Refused(refusal) => Err(refusal),
            other => panic!("{request:?}: {other:?}"),
        }
    }

    fn create(&mut self, name: &str, cidr: &str) {
        let spec = testing::pool_spec(name, &[cidr]);
        self.ask(&testing::create_pool(spec)).expect("a pool");
    }

    fn allocate(&mut self, pool: u32, owner: u32) -> Result<(), Refusal> {
        self.ask(&Request::Allocate(testing::allocate(
            testing::holder(format!("fipd/Host/lab/h{owner}"), "1"),
            [testing::want(PoolId(pool), None)],
        )))
    }

    fn look_out(&mut self, cluster: &str, network: NetworkId, seen: u64) {
        let lookout = Lookout {
            name: cluster.into(),
            networks: BTreeSet::from([network]),
            seen,
        };
        self.0
            .look_out(&ClusterId(cluster.into()), &System::foreign(), lookout);
    }
}

fn waits(result: Result<(), Refusal>) -> bool {
    match result {
        Ok(()) => false,
        Err(Refusal::PoolHeld { .. }) => true,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_new_pool_waits_for_the_clusters_of_its_network_that_are_looked_at() {
    let mut book = Book(Ledger::new());
    book.create("old", "10.60.0.0/24");
    let began = book.0.revision();
    book.look_out("a", NetworkId::DEFAULT, began);
    book.look_out("elsewhere", NetworkId(7), began);
    assert!(!waits(book.allocate(1, 1)));
    assert!(book.0.latest_growth() <= began);
    book.create("new", "10.61.0.0/24");
    assert!(book.0.latest_growth() > began);
    assert!(waits(book.allocate(2, 2)));
    assert!(!waits(book.allocate(1, 3)), "the others go on");
    // A list that began before it does not know it.
    book.look_out("a", NetworkId::DEFAULT, began);
    assert!(waits(book.allocate(2, 2)));
    let now = book.0.revision();
    book.look_out("a", NetworkId::DEFAULT, now);
    assert!(!waits(book.allocate(2, 2)));
}

#[test]
fn a_cluster_that_is_not_looked_at_any_more_holds_nothing_back() {
    let mut book = Book(Ledger::new());
    book.look_out("a", NetworkId::DEFAULT, 0);
    book.create("new", "10.61.0.0/24");
    assert!(waits(book.allocate(1, 1)));
    let id = ClusterId("a".into());
    book.0.end_look_out(&id, &System::cluster_api());
    assert!(waits(book.allocate(1, 1)), "another system looked");
    book.0.end_look_out(&id, &System::foreign());
    assert!(!waits(book.allocate(1, 1)));
    // What was new before a cluster was first looked at is in its first list.
    let now = book.0.revision();
    book.look_out("b", NetworkId::DEFAULT, now);
    assert!(!waits(book.allocate(1, 2)));
}

#[test]
fn only_other_addresses_make_a_pool_new() {
    let mut book = Book(Ledger::new());
    book.create("net", "10.60.0.0/30");
    let now = book.0.revision();
    book.look_out("a", NetworkId::DEFAULT, now);
    let edit = |change: fn(&mut PoolSpec), book: &mut Book| {
        let pool = book.0.pool(PoolId(1)).expect("a pool");
        let mut spec = pool.spec.clone();
        change(&mut spec);
        let edit = PoolEdit {
            pool: PoolId(1),
            spec,
            if_generation: None,
            force: false,
            actor: "test".into(),
            reason: "".into(),
        };
        book.ask(&Request::UpdatePool(edit)).expect("an edit");
    };
    edit(|spec| spec.quarantine = 5, &mut book);
    assert!(!waits(book.allocate(1, 1)));
    let more = |spec: &mut PoolSpec| spec.addresses.push("10.62.0.0/24".parse().expect("a CIDR"));
    edit(more, &mut book);
    assert!(waits(book.allocate(1, 2)));
}
