//! How an object gives addresses up.

use fipd_core::{Holder, LeaseKey, ReleaseScope, Text};
use serde_json::Value;

use super::{AddressHooks, controller::AddressController, settle::AddressAsker};
use crate::controller::{Reconciled, meta::View as _, queue::Next, store::Key};

impl<U: AddressHooks> AddressController<U> {
    /// Releases these addresses of the object, or leaves them to their keeper.
    pub async fn give_up(
        &self,
        key: &Key,
        object: &U::View,
        addresses: &[LeaseKey],
        reason: &str,
    ) -> Reconciled<()> {
        let own = self.context.holder(key, &object.meta().uid);
        let site = &self.context.site;
        for address in addresses {
            let lease = self.context.read(|ledger| ledger.lease(*address).cloned());
            let lease = lease.as_deref();
            // An earlier object of its name may have left it.
            let member = lease.and_then(|lease| lease.member(&own.identity));
            let contends = lease.is_some_and(|lease| lease.contender(&own.identity).is_some());
            let holder = member.map_or(&own, |member| &member.holder).clone();
            let keeper = U::keeper(self, key, object);
            match keeper {
                Some(keeper) if member.is_some() => {
                    site.transfer(holder, keeper, *address, reason).await?;
                    continue;
                }
                Some(keeper) if contends => self.contend(key, object, (keeper, *address)).await?,
                Some(_) | None => {}
            }
            let scope = ReleaseScope::HolderAddresses(holder, vec![*address]);
            site.release(scope, reason).await?;
        }
        Ok(())
    }

    /// The keeper may use an address that another holds, as the object did.
    async fn contend(
        &self,
        key: &Key,
        object: &U::View,
        (keeper, address): (Holder, LeaseKey),
    ) -> Reconciled<()> {
        let site = &self.context.site;
        let asker = AddressAsker {
            holder: keeper,
            created: object.meta().created,
            actor: site.actor(),
        };
        let contend = asker.adopt(address.into(), U::tenant(site, key, object));
        Ok(site.ipam.submit(contend).await.map(drop)?)
    }

    /// Releases what the holder has: another instance of the object keeps its own.
    pub async fn give_back(&self, holder: Holder, reason: &str) -> Reconciled<()> {
        let scope = ReleaseScope::Holder(holder);
        Ok(self.context.site.release(scope, reason).await?)
    }

    /// Releases a lease that was left to an object that was never written, once a second look finds none either.
    pub async fn release_unwritten(&self, key: &Key, reason: &str) -> Reconciled {
        let holder = self.context.holder(key, &Text::from(""));
        let unwritten = self.context.read(|ledger| {
            let leases = ledger.leases_of(&holder.identity);
            let unnamed = |holder: &Holder| holder.instance.is_empty();
            leases
                .iter()
                .any(|lease| lease.owner().is_some_and(unnamed))
        });
        if !unwritten {
            self.missing.forget(key);
            return Ok(Next::Done);
        }
        let target = self.context.kind().target(key);
        let look = async { self.context.remote.get::<Value>(&target).await };
        if let Some(wait) = self.missing.confirm(key, look).await? {
            return Ok(Next::After(wait));
        }
        self.give_back(holder, reason).await?;
        Ok(Next::Done)
    }
}
