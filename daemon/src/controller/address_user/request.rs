//! What comes of a request for an address.

use std::sync::Arc;

use fipd_core::{Answer, Holder, Lease, LeaseState, NetworkId, Refusal, Request};

use crate::{
    controller::{ReconcileError, Reconciled},
    ipam::{Ipam, IpamError},
};

/// Why a request got no address.
#[derive(Debug)]
pub enum NotGranted {
    /// Another holds it; the asker waits for it.
    Contended(Arc<Lease>),
    /// The asker holds the whole prefix around it, because somebody gave it that.
    Whole(Arc<Lease>),
    Refused(Refusal),
}

/// Asks for an address of the network for the holder, who keeps the one that it has where another is refused. `prefixes`: it
/// may also be a prefix.
pub async fn ask(
    ipam: &Ipam,
    request: Request,
    holder: &Holder,
    network: NetworkId,
    prefixes: bool,
) -> Reconciled<Result<Arc<Lease>, NotGranted>> {
    let asked = ask_new(ipam, request, prefixes).await?;
    let Err(NotGranted::Refused(refusal)) = asked else {
        return Ok(asked);
    };
    let held = ipam.read(|ledger| match prefixes {
        true => ledger.leases_of(&holder.identity),
        false => ledger.addresses_of(&holder.identity),
    });
    // What is reserved for it is not its own yet: nobody has checked it, and the reservation may end. Nor is what an earlier
    // object of its name left: it asks for something else.
    let is_own =
        |lease: &Arc<Lease>| lease.state != LeaseState::Reserved && lease.has_member(holder);
    let mut here = held
        .into_iter()
        .filter(|lease| lease.key.network == network && is_own(lease));
    Ok(here.next().ok_or(NotGranted::Refused(refusal)))
}

/// Asks for an address, whatever the holder has.
pub async fn ask_new(
    ipam: &Ipam,
    request: Request,
    prefixes: bool,
) -> Reconciled<Result<Arc<Lease>, NotGranted>> {
    let lease = match ipam.submit(request).await {
        Ok(Answer::Granted { leases, .. }) => leases.into_iter().next(),
        Ok(Answer::Adopted { lease }) => Some(lease),
        Ok(Answer::HandedOver { leases }) => {
            ipam.read(|ledger| ledger.lease(*leases.first()?).cloned())
        }
        Ok(Answer::Contended { lease }) => return Ok(Err(NotGranted::Contended(lease))),
        Ok(other) => return Err(ReconcileError::unexpected(&other)),
        Err(IpamError::Refused(refusal)) => return Ok(Err(NotGranted::Refused(refusal))),
        Err(error) => return Err(error.into()),
    };
    let whole = |lease: &&Arc<Lease>| !prefixes && !lease.prefix().is_address();
    if let Some(lease) = lease.as_ref().filter(whole) {
        return Ok(Err(NotGranted::Whole(Arc::clone(lease))));
    }
    lease.map(Ok).ok_or(ReconcileError::ChangedHands)
}

#[cfg(test)]
mod tests {
    use fipd_core::{PoolId, testing};

    use super::*;
    use crate::clock;

    async fn pool(ipam: &Ipam, name: &str, address: &str) -> PoolId {
        let create = testing::create_pool(testing::pool_spec(name, &[address]));
        match ipam.submit(create).await {
            Ok(Answer::Pool(pool)) => pool.id,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn who_is_refused_keeps_its_own_and_not_what_an_earlier_object_of_the_name_left() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let near = pool(&ipam, "near", "10.0.0.5").await;
        let far = pool(&ipam, "far", "10.0.1.5").await;
        let one = |instance: &str| testing::holder("fipd/vm/lab/one", instance);
        let other = testing::holder("fipd/vm/lab/other", "1");
        let asked = async |holder: &Holder, pool: PoolId| {
            let wants = [testing::want(pool, None)];
            let request = Request::Allocate(testing::allocate(holder.clone(), wants));
            let asked = ask(&ipam, request, holder, NetworkId::DEFAULT, false).await;
            asked.expect("an answer").map(|lease| lease.key)
        };
        let (here, there) = (testing::key([10, 0, 0, 5]), testing::key([10, 0, 1, 5]));
        assert_eq!(asked(&one("earlier"), near).await.expect("one"), here);
        assert_eq!(asked(&other, far).await.expect("one"), there);
        assert_eq!(asked(&one("earlier"), far).await.expect("its own"), here);
        let refused = asked(&one("now"), far).await;
        assert!(
            matches!(refused, Err(NotGranted::Refused(_))),
            "{refused:?}"
        );
    }
}
