//! Which objects of a cluster own leases, as the ledger knows it.

use std::{collections::BTreeSet, sync::Arc};

use fipd_core::{ClusterId, Holder, Lease, LeaseKey, Ledger, System};

use super::{site::Site, store::Key};

impl Site {
    /// The keys of this cluster's objects of a kind that own a lease; only holders for which `which` holds.
    pub async fn owners(&self, kind: &str, which: impl Fn(&Holder) -> bool) -> BTreeSet<Key> {
        let mut keys = BTreeSet::new();
        let mut after = None;
        loop {
            let leases = self
                .ipam
                .read(|ledger| page(ledger, &self.id, &self.system, after));
            let Some(last) = leases.last() else {
                return keys;
            };
            after = Some(last.key);
            let owners = leases.iter().filter_map(|lease| lease.owner());
            let ours = owners.filter(|holder| &*holder.identity.kind == kind && which(holder));
            keys.extend(ours.map(|holder| Key::of_identity(&holder.identity)));
            tokio::task::yield_now().await;
        }
    }
}

/// As many leases as one look at the ledger may take.
fn page(
    ledger: &Ledger,
    cluster: &ClusterId,
    system: &System,
    after: Option<LeaseKey>,
) -> Vec<Arc<Lease>> {
    ledger.cluster_leases(cluster, Some(system), after, Ledger::SCAN)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use fipd_core::{Identity, Op, testing};

    use super::*;

    fn lease(number: u32) -> Op {
        let mut holder = testing::holder(format!("fipd/vm/shop/n{number}"), "");
        holder.identity = Identity {
            cluster: Some(ClusterId("c1".into())),
            ..holder.identity
        };
        let key = testing::key(Ipv4Addr::from_bits(0x0a00_0000 + number));
        Op::PutLease(Arc::new(testing::lease(key, None, [holder])))
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
            let leases = page(&ledger, &cluster, &System::own(), after);
            sizes.push(leases.len());
            let Some(last) = leases.last() else { break };
            after = Some(last.key);
        }
        assert_eq!(sizes, [1_000, 1_000, 500, 0]);
    }
}
