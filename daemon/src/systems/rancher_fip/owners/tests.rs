use std::net::Ipv4Addr;

use fipd_core::{Identity, Op};

use super::*;
use crate::systems::rancher_fip::sample;

fn lease(number: u32) -> Op {
    let identity = Identity {
        system: System::rancher_fip(),
        cluster: Some(ClusterId("c1".into())),
        kind: "Service".into(),
        namespace: "shop".into(),
        name: format!("n{number}").into(),
        interface: "".into(),
    };
    let holder = Holder {
        identity,
        instance: "".into(),
    };
    let address = Ipv4Addr::from_bits(0x0a00_0000 + number).to_string();
    let lease = sample::lease(sample::place(&address), Some(holder));
    Op::PutLease(Arc::new(lease))
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
