//! An address for a Service.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use fipd_core::{Holder, Pool, Request};
use http::StatusCode;
use serde_json::json;

use super::{
    ProjectCall, ProjectTurn,
    decide::{AddressRequest, Decision, Known, No, TAKEN, Undo, decide, denied},
    failed, release,
};
use crate::{
    controller::{
        ReconcileError,
        address_user::{
            request::{NotGranted, ask},
            settle::{AddressAsker, AddressPlan, AddressPolicy, settle},
        },
        client::{CallError, MANAGER},
        store::Key,
    },
    fip_v1::{Denied, Given, Service, Wish},
    ipam::IpamError,
    systems::rancher_fip::{
        floating_ip::{self, ManagedFloatingIps, plan, status},
        kinds::FLOATING_IP,
        names::{FINALIZER, MANAGED_BY},
    },
};

impl ProjectCall {
    pub(super) async fn give(&self, wish: &Wish, turn: &mut ProjectTurn) -> Result<Given, Denied> {
        let none = || format!("floatingippool: there is no FloatingIPPool {:?}", wish.pool);
        let pool = self.data.pool_called(&wish.pool);
        let pool = pool.ok_or_else(|| denied(none()))?;
        let ask = AddressRequest {
            asker: &self.asker,
            service: &wish.service,
            pool: &pool,
            network: self.network(&pool),
            address: wish.address,
            group: wish.group.as_deref(),
        };
        let mut taken = BTreeSet::new();
        for _ in 0..super::TRIES {
            let known = self.known(turn).await?;
            let called = |name: &str| known.what.iter().find(|one| *one.name == *name);
            let (one, before) = match decide(&ask, &known.what, &taken) {
                Decision::Refuse(denied) => {
                    turn.pass_on(known);
                    return Err(denied);
                }
                Decision::Has(name) => (called(&name).cloned(), None),
                Decision::Attach(name) => match called(&name) {
                    Some(one) => {
                        let after = ask.labels(one.labels.clone());
                        let now = self.relabel(one, &after, &one.left).await?;
                        (now, Some(one))
                    }
                    None => (None, None),
                },
                Decision::Create(name) => {
                    let made = self.create(&ask, &name).await?;
                    if made.is_none() {
                        // Of ours it would be found when looking again.
                        taken.insert(name);
                    }
                    (made, None)
                }
            };
            if let Some(one) = one {
                let given = self.answer(&ask, &one, before).await?;
                turn.pass_on(known.with([one]));
                return Ok(given);
            }
        }
        Err(Denied::late())
    }

    /// Makes the object; `None`: there is one of its name.
    async fn create(&self, ask: &AddressRequest<'_>, name: &str) -> Result<Option<Known>, Denied> {
        let mut labels = ask.labels(BTreeMap::new());
        labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
        let mut spec = json!({ "floatingIPPool": ask.pool });
        let mut finalizers = vec![FINALIZER];
        if let Some(address) = ask.address {
            spec["ipAddr"] = json!(address.to_string());
            // With both, the object would say that it has the address.
            finalizers.clear();
        }
        let object = json!({
            "apiVersion": FLOATING_IP.api_version(), "kind": FLOATING_IP.kind,
            "metadata": {
                "name": name, "namespace": self.asker.namespace, "labels": labels, "finalizers": finalizers,
            },
            "spec": spec,
        });
        match (self.data.remote.create_seen(&self.target(name), &object)).await {
            Ok(object) => Ok(Some(self.look(object))),
            Err(CallError::Conflict(..)) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Asks the address book for what the object has. `before`: what it was until it was given to the Service.
    async fn answer(
        &self,
        ask: &AddressRequest<'_>,
        one: &Known,
        before: Option<&Known>,
    ) -> Result<Given, Denied> {
        let address = match self.address(ask, one).await {
            Ok(address) => address,
            Err(No { said, certain }) => {
                let undo = ask.undo(one, before.is_some(), certain);
                self.undo(ask, one, before, undo).await;
                return Err(said);
            }
        };
        let pool = self.data.pools.get(&Key::new("", &one.fip.pool));
        let subnet = pool.and_then(|pool| Some(pool.spec.ip_config.as_ref()?.subnet.clone()));
        let subnet = subnet.ok_or_else(no_subnet)?;
        let assigned = status::assigned(&one.fip).unwrap_or_default();
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        Ok(Given {
            address,
            subnet,
            group: some(assigned.floating_ip_group),
            shared_key: some(assigned.shared_key),
        })
    }

    /// Takes an object back that was made in vain, or from the Service to which it was given in vain.
    pub(super) async fn undo(
        &self,
        ask: &AddressRequest<'_>,
        one: &Known,
        before: Option<&Known>,
        undo: Undo,
    ) {
        let done = match (undo, before) {
            (Undo::Delete, _) => {
                let (remote, target) = (&self.data.remote, self.target(&one.name));
                let deleted = remote.delete(&target, &one.fip.meta.uid).await;
                deleted.map_err(|error| failed(&error))
            }
            (Undo::Restore, Some(before)) => self.restore(ask.service, one, before).await,
            (Undo::Nothing, _) | (Undo::Restore, None) => Ok(()),
        };
        if let Err(error) = done {
            tracing::warn!(%error, name = &*one.name, "a FloatingIP that was refused an address stays as it is and waits");
        }
    }

    /// Makes the object what it was `before`; where somebody changed it since, takes this Service off alone.
    async fn restore(&self, service: &Service, one: &Known, before: &Known) -> Result<(), Denied> {
        let restored = self.relabel(one, &before.labels, &before.left);
        if restored.await?.is_some() {
            return Ok(());
        }
        for _ in 0..super::TRIES {
            let known = self.read().await?;
            let still = known.iter().find(|known| {
                known.fip.meta.uid == one.fip.meta.uid
                    && known.is_of(&self.asker.cluster)
                    && known.names(service)
            });
            let Some(still) = still else {
                return Ok(());
            };
            let after = release::without(still.labels.clone(), service);
            let now = self.relabel(still, &after, &still.left);
            if now.await?.is_some() {
                return Ok(());
            }
        }
        Err(Denied::late())
    }

    async fn address(&self, ask: &AddressRequest<'_>, one: &Known) -> Result<IpAddr, No> {
        let Self { all, data, asker } = self;
        if !data.leads() {
            return Err(Denied::elsewhere().into());
        }
        if one.fip.holder.is_some() {
            // It shows the lease of a Service that fipd itself serves.
            return Ok(one.address.ok_or_else(Denied::late)?);
        }
        plan::asks_for(&one.fip).map_err(|problem| denied(problem.message))?;
        let rancher = all.ranchers.get(&asker.management);
        let others = rancher.others(one.fip.cluster.as_deref());
        let (holder, created) = (&self.holder(one), one.fip.meta.created);
        let policy = AddressPolicy::of::<ManagedFloatingIps>();
        let asker = AddressAsker {
            holder: holder.clone(),
            created,
            actor: self.actor(),
        };
        let planned = all.ipam.read(|ledger| {
            let wish = plan::wish(ledger, &data.cluster, &one.fip);
            let pool = Arc::clone(&wish.as_ref().ok()?.pool);
            let is_for = |user: &_| floating_ip::is_for(&one.fip, user, &others);
            let yields = plan::yields(ledger, holder, &one.fip, &is_for);
            let plan = (!yields).then(|| settle(ledger, policy, &asker, &wish));
            Some((plan, pool))
        });
        let (plan, pool) = planned.ok_or_else(no_subnet)?;
        match plan {
            // A Service that fipd itself serves takes it over.
            None => Ok(one.address.ok_or_else(Denied::late)?),
            // Whom it is charged to is the object's own business.
            Some(
                AddressPlan::Show(shown)
                | AddressPlan::Charge(shown, _)
                | AddressPlan::Move(shown, _),
            ) => Ok(shown.address()),
            Some(AddressPlan::Unserved(_) | AddressPlan::Probe(_)) => {
                Err(Denied::new(StatusCode::CONFLICT, TAKEN).into())
            }
            Some(AddressPlan::Ask(request)) => {
                let request = no_place(*request, ask.made(one));
                self.submit(request, holder, &pool).await
            }
        }
    }

    async fn submit(&self, request: Request, holder: &Holder, pool: &Pool) -> Result<IpAddr, No> {
        match ask(&self.all.ipam, request, holder, pool.spec.network, false).await {
            Ok(Ok(lease)) => Ok(lease.key.address),
            Ok(Err(NotGranted::Contended(_) | NotGranted::Whole(_))) => {
                Err(Denied::new(StatusCode::CONFLICT, TAKEN).into())
            }
            Ok(Err(NotGranted::Refused(refusal))) => Err(No::from(&IpamError::Refused(refusal))),
            Err(ReconcileError::Ledger(error)) => Err(No::from(&error)),
            Err(error) => {
                tracing::error!(%error, "no address for a FloatingIP");
                Err(Denied::late().into())
            }
        }
    }
}

/// An object that goes when it is refused must not keep a place in the queue.
fn no_place(mut request: Request, goes: bool) -> Request {
    if let Request::Allocate(allocate) = &mut request
        && goes
    {
        allocate.waiting_since = None;
    }
    request
}

fn no_subnet() -> Denied {
    let message = "failed to get floatingippool subnet";
    Denied::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}
