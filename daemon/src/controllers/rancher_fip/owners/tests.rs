use std::net::Ipv4Addr;

use fipd_core::{Identity, LeaseState, Member, NetworkId, Op, Timestamp};

use super::*;

fn lease(number: u32) -> Op {
    let identity = Identity {
        system: System::rancher_fip(),
        cluster: Some(ClusterId("c1".into())),
        kind: "Service".into(),
        namespace: "shop".into(),
        name: format!("n{number}").into(),
        interface: "".into(),
    };
    let member = Member {
        holder: Holder {
            identity,
            instance: "".into(),
        },
        ports: Vec::new(),
    };
    let key = LeaseKey {
        network: NetworkId::DEFAULT,
        address: Ipv4Addr::from_bits(0x0a00_0000 + number).into(),
    };
    Op::PutLease(Arc::new(Lease {
        key,
        pool: None,
        state: LeaseState::Allocated,
        members: [member].into_iter().collect(),
        contenders: Vec::new(),
        tenant: None,
        group: None,
        since: Timestamp(1),
        until: None,
    }))
}

#[test]
fn a_look_at_the_ledger_takes_a_thousand_rows_at_most() {
    let mut ledger = Ledger::new();
    for number in 0..2_500 {
        ledger.apply(&lease(number));
    }
    let cluster = ClusterId("c1".into());
    let (mut sizes, mut after) = (Vec::new(), None);
    loop {
        let leases = page(&ledger, &cluster, &System::rancher_fip(), after);
        sizes.push(leases.len());
        let Some(last) = leases.last() else { break };
        after = Some(last.key);
    }
    assert_eq!(sizes, [1_000, 1_000, 500, 0]);
}
