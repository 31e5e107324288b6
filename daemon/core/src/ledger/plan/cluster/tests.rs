use super::*;
use crate::{Expectation, NetworkId, Planned, Request, Timestamp};

fn marker(cluster: &str, skipped: bool) -> Adoption {
    Adoption {
        network: NetworkId::DEFAULT,
        cluster: cluster.into(),
        system: System::rancher_fip(),
        at: Timestamp(1),
        skipped,
    }
}

/// A ledger that waits for `one`, which is the cluster `c1`.
fn ledger(markers: &[Adoption]) -> Ledger {
    let mut ledger = Ledger::new();
    ledger.apply(&Op::PutCluster(ClusterRecord {
        id: ClusterId("c1".into()),
        names: vec!["one".into()],
        discovered: false,
        first_seen: Timestamp(1),
        proof: None,
    }));
    for marker in markers {
        ledger.apply(&Op::PutAdoption(marker.clone()));
    }
    ledger
}

fn wait_for_one(ledger: &mut Ledger) {
    ledger.set_expectations(vec![Expectation {
        network: NetworkId::DEFAULT,
        cluster: "one".into(),
        system: System::rancher_fip(),
    }]);
}

fn ask(ledger: &mut Ledger, request: Request) {
    let planned = ledger.plan(&request, Timestamp(2));
    let Planned::Tentative { ticket, .. } = planned else {
        panic!("{planned:?}");
    };
    ledger.confirm(ticket);
}

fn mark(ledger: &mut Ledger, skipped: bool) {
    let marker = marker("c1", skipped);
    let actor = "test".into();
    ask(ledger, Request::MarkAdopted { marker, actor });
}

fn markers(ledger: &Ledger) -> Vec<Text> {
    let cluster = |op| {
        let Op::PutAdoption(marker) = op else {
            return None;
        };
        Some(marker.cluster)
    };
    ledger.dump().filter_map(cluster).collect()
}

#[test]
fn a_skip_opens_the_gate_but_is_no_adoption() {
    let (id, system) = (ClusterId("c1".into()), System::rancher_fip());
    let mut ledger = ledger(&[]);
    wait_for_one(&mut ledger);
    mark(&mut ledger, true);
    assert!(ledger.holds(NetworkId::DEFAULT).is_empty());
    assert!(ledger.adopted(NetworkId::DEFAULT, &id, &system));
    assert!(!ledger.truly_adopted(NetworkId::DEFAULT, &id, &system));
    mark(&mut ledger, false);
    assert!(ledger.truly_adopted(NetworkId::DEFAULT, &id, &system));
}

#[test]
fn a_true_adoption_ends_the_skip_by_name_and_a_skip_does_not() {
    let mut ledger = ledger(&[marker("name:one", true), marker("name:other", true)]);
    mark(&mut ledger, true);
    assert_eq!(
        markers(&ledger),
        ["c1", "name:one", "name:other"].map(Text::from)
    );
    mark(&mut ledger, false);
    assert_eq!(markers(&ledger), ["c1", "name:other"].map(Text::from));
}

#[test]
fn a_forgotten_cluster_takes_the_skips_of_its_names_along() {
    let mut ledger = ledger(&[marker("name:one", true), marker("name:other", true)]);
    let forget = Request::Forget {
        cluster: ClusterId("c1".into()),
        most: 10,
        actor: "test".into(),
    };
    ask(&mut ledger, forget);
    assert_eq!(markers(&ledger), ["name:other"].map(Text::from));
    wait_for_one(&mut ledger);
    assert!(
        !ledger.holds(NetworkId::DEFAULT).is_empty(),
        "whoever comes under the name next is waited for"
    );
}
