//! What a caller may ask of the ledger: looked at where requests are decided, so that nothing changes in between.

use std::sync::Arc;

use fipd_core::{
    Allocate, Answer, Choice, Family, LeaseKey, LeaseState, Ledger, NetworkId, PoolId, Refusal,
    ReleaseScope, Request, Role, Selection, Transfer,
};

use crate::{
    api::{Api, auth::Caller, problem::Problem},
    ipam::{Guard, IpamError},
};

impl Api {
    /// Asks the ledger on behalf of a caller, within what the caller may.
    pub async fn submit(&self, caller: &Caller, request: Request) -> Result<Answer, Problem> {
        self.submit_if(caller, request, Box::new(|_, _| Ok(())))
            .await
    }

    /// The same, if the guard has nothing against it either.
    pub async fn submit_if(
        &self,
        caller: &Caller,
        request: Request,
        more: Guard,
    ) -> Result<Answer, Problem> {
        let asker = caller.clone();
        let guard = move |ledger: &Ledger, request: &Request| {
            permits(ledger, &asker, request)?;
            more(ledger, request)
        };
        let answer = self.ipam.submit_if(request, Box::new(guard)).await;
        answer.map_err(|error| discreet(caller, error).into())
    }

    /// Asks the ledger for a signed-in user, who has no scope.
    pub async fn submit_for_user(&self, request: Request) -> Result<Answer, IpamError> {
        let guard = |ledger: &Ledger, request: &Request| {
            if let Request::Allocate(ask) = request {
                return ends_no_quarantine(ledger, &[], ask);
            }
            if let Request::Reserve(reserve) = request {
                return ends_no_quarantine(ledger, &[], &reserve.ask);
            }
            Ok(())
        };
        self.ipam.submit_if(request, Box::new(guard)).await
    }
}

/// Who else holds an address is not for callers with a scope.
fn discreet(caller: &Caller, mut error: IpamError) -> IpamError {
    if let IpamError::Refused(Refusal::AddressTaken { owner, .. }) = &mut error
        && !caller.scope.is_all()
    {
        *owner = "somebody else".to_owned();
    }
    error
}

/// Whether the caller may ask for this.
pub fn permits(ledger: &Ledger, caller: &Caller, request: &Request) -> Result<(), IpamError> {
    if let Request::Allocate(ask) = request {
        return asks(ledger, caller, ask);
    }
    if let Request::Reserve(reserve) = request {
        return asks(ledger, caller, &reserve.ask);
    }
    if let Request::Transfer(ask) = request {
        return transfers(ledger, caller, ask);
    }
    if let Request::SetQuota { quota, .. } = request {
        return limits(ledger, caller, quota.pool);
    }
    if let Request::DeleteQuota { pool, .. } = request {
        return limits(ledger, caller, *pool);
    }
    if caller.scope.is_all() {
        return Ok(());
    }
    if let Request::Release(release) = request {
        return releases(ledger, caller, &release.scope);
    }
    Err(beyond(caller))
}

fn releases(ledger: &Ledger, caller: &Caller, scope: &ReleaseScope) -> Result<(), IpamError> {
    match scope {
        ReleaseScope::HolderAddresses(_, keys) => keys
            .iter()
            .try_for_each(|key| in_reach(ledger, caller, key.canonical())),
        ReleaseScope::Address(key) | ReleaseScope::Quarantine(key) => {
            in_reach(ledger, caller, key.canonical())
        }
        ReleaseScope::Holder(_) => Err(beyond(caller)),
    }
}

fn asks(ledger: &Ledger, caller: &Caller, ask: &Allocate) -> Result<(), IpamError> {
    ends_no_quarantine(ledger, &caller.scope.tenants, ask)?;
    let scope = &caller.scope;
    if scope.is_all() {
        return Ok(());
    }
    for want in &ask.wants {
        match &want.pool {
            Choice::Pool(id) => pool_in_reach(ledger, caller, *id)?,
            Choice::Any(any) => any_in_reach(caller, any)?,
        }
    }
    charges(caller, ask.tenant.as_ref())?;
    // What the owner has already is its answer.
    let answers = |key: LeaseKey| {
        let family = Family::of(key.address);
        ask.wants.iter().any(|want| match &want.pool {
            Choice::Pool(id) => ledger.pool(*id).is_some_and(|pool| {
                pool.spec.network == key.network && pool.spec.family() == Some(family)
            }),
            Choice::Any(any) => any.family == family,
        })
    };
    let has = ledger.leases_of(&ask.holder.identity);
    let mut answers = has.iter().filter(|lease| answers(lease.key));
    if answers.all(|lease| scope.has_lease(lease)) {
        return Ok(());
    }
    let said = format!(
        "{} has addresses that {} is not for; choose another owner",
        ask.holder.identity, caller.actor
    );
    Err(IpamError::Forbidden(said))
}

/// Which pool gives is not for the caller to say then, so that all that may give must be in its scope.
fn any_in_reach(caller: &Caller, any: &Selection) -> Result<(), IpamError> {
    let scope = &caller.scope;
    let network = |id: NetworkId| scope.networks.contains(&id);
    if scope.pools.is_empty() && (scope.networks.is_empty() || any.network.is_some_and(network)) {
        return Ok(());
    }
    let said = format!(
        "{} is not for every pool; name one of its pools",
        caller.actor
    );
    Err(IpamError::Forbidden(said))
}

/// That it was the tenant that had the address is believed of a token for that tenant, not of who merely says so.
fn ends_no_quarantine(
    ledger: &Ledger,
    tenants: &[fipd_core::Tenant],
    ask: &Allocate,
) -> Result<(), IpamError> {
    let own = |tenant: &fipd_core::Tenant| tenants.contains(tenant);
    if ask.by_admin || ask.tenant.as_ref().is_some_and(own) {
        return Ok(());
    }
    for want in &ask.wants {
        let Some(address) = want.address else {
            continue;
        };
        let network = match &want.pool {
            Choice::Pool(id) => ledger.pool(*id).map(|pool| pool.spec.network),
            Choice::Any(any) => any.network,
        };
        let mut networks = ledger.networks().map(|one| one.id);
        let lease = networks.find_map(|one| {
            let wanted = network.is_none_or(|network| network == one);
            let key = LeaseKey {
                network: one,
                address,
            };
            let lease = ledger.lease(key.canonical()).filter(|_| wanted);
            lease.filter(|lease| lease.state == LeaseState::Quarantined)
        });
        if let Some(lease) = lease {
            return Err(Refusal::cools(lease, false).into());
        }
    }
    Ok(())
}

fn transfers(ledger: &Ledger, caller: &Caller, ask: &Transfer) -> Result<(), IpamError> {
    if ask.force && caller.role < Role::Admin {
        let said = "only an admin may give a tenant more than its quota".to_owned();
        return Err(IpamError::Forbidden(said));
    }
    in_reach(ledger, caller, ask.key.canonical())?;
    match &ask.tenant {
        Some(tenant) => charges(caller, Some(tenant)),
        None => Ok(()),
    }
}

/// Who raises its own limit has none: quotas are not for who is for some tenants only.
fn limits(ledger: &Ledger, caller: &Caller, pool: PoolId) -> Result<(), IpamError> {
    if caller.role < Role::Admin {
        let said = "only an admin may set quotas".to_owned();
        return Err(IpamError::Forbidden(said));
    }
    if caller.scope.tenants.is_empty() {
        pool_in_reach(ledger, caller, pool)
    } else {
        Err(beyond(caller))
    }
}

fn charges(caller: &Caller, tenant: Option<&fipd_core::Tenant>) -> Result<(), IpamError> {
    if caller.scope.has_tenant(tenant) {
        return Ok(());
    }
    let mine: Vec<&str> = caller.scope.tenants.iter().map(|one| &*one.0).collect();
    let said = format!(
        "{} may charge only {}; say which as the tenant",
        caller.actor,
        mine.join(", ")
    );
    Err(IpamError::Forbidden(said))
}

fn pool_in_reach(ledger: &Ledger, caller: &Caller, id: PoolId) -> Result<(), IpamError> {
    let pool = ledger.pool(id);
    if pool.is_some_and(|pool| caller.scope.has_pool(pool)) {
        Ok(())
    } else {
        Err(Refusal::UnknownPool(id).into())
    }
}

/// A lease out of reach is as if nobody held the address.
fn in_reach(ledger: &Ledger, caller: &Caller, key: LeaseKey) -> Result<(), IpamError> {
    let out = |lease: &&Arc<fipd_core::Lease>| !caller.scope.has_lease(lease);
    match ledger.lease(key).filter(out) {
        Some(lease) => Err(Refusal::NotHeld(lease.key.address).into()),
        None => Ok(()),
    }
}

fn beyond(caller: &Caller) -> IpamError {
    IpamError::Forbidden(format!("{} has a scope that this is beyond", caller.actor))
}
