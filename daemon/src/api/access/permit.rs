//! What a caller may ask of the ledger: looked at where requests are decided, so that nothing changes in between.

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use fipd_core::{
    Actor, Allocate, Answer, Choice, Family, Lease, LeaseKey, LeaseState, Ledger, NetworkId,
    PoolId, Refusal, ReleaseScope, Request, Role, Scope, Selection, Tenant, Transfer,
};

use crate::api::{
    access::{auth::Caller, visible::VisibleLedger},
    problem::Problem,
};
use crate::ipam::{Guard, Ipam, IpamError};
use http::request::Parts;

/// A caller, and the ledger as far as the caller sees and may change it.
#[derive(Clone)]
pub struct Requester {
    pub ipam: Ipam,
    pub caller: Caller,
}

impl Requester {
    pub fn actor(&self) -> Actor {
        Arc::clone(&self.caller.actor)
    }

    /// Looks something up in the ledger.
    #[track_caller]
    pub fn read<T>(&self, look: impl FnOnce(VisibleLedger<'_>) -> T) -> T {
        self.ipam.read(|ledger| look(self.caller.within(ledger)))
    }

    /// Asks the ledger within what the caller may.
    pub async fn submit(&self, request: Request) -> Result<Answer, Problem> {
        self.submit_if(request, Box::new(|_, _| Ok(()))).await
    }

    /// The same, if the guard has nothing against it either.
    pub async fn submit_if(&self, request: Request, more: Guard) -> Result<Answer, Problem> {
        let caller = self.caller.clone();
        let guard = move |ledger: &Ledger, request: &Request| {
            permits(ledger, &caller, request)?;
            more(ledger, request)
        };
        let answer = self.ipam.submit_if(request, Box::new(guard)).await;
        answer.map_err(|error| discreet(&self.caller, error).into())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Requester
where
    Ipam: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self {
            ipam: Ipam::from_ref(state),
            caller: Caller::from_request_parts(parts, state).await?,
        })
    }
}

/// Who else holds an address is not for callers with a scope.
fn discreet(caller: &Caller, mut error: IpamError) -> IpamError {
    if let IpamError::Refused(refusal) = &mut error
        && !caller.scope.is_all()
    {
        hide_owners(refusal);
    }
    error
}

fn hide_owners(refusal: &mut Refusal) {
    if let Refusal::PrefixTaken { prefix, held, .. } = refusal {
        *held = *prefix;
    }
    if let Refusal::AddressTaken { owner, .. } | Refusal::PrefixTaken { owner, .. } = refusal {
        *owner = "somebody else".to_owned();
    }
    if let Refusal::NoneGives { reasons, .. } = refusal {
        reasons.iter_mut().for_each(hide_owners);
    }
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
    if let Request::Probed(report) = request {
        return reports(ledger, caller, report.key.canonical());
    }
    if let Request::Release(release) = request {
        return releases(ledger, caller, &release.scope);
    }
    if let Request::Label(ask) = request {
        return in_reach(ledger, caller, ask.key.canonical());
    }
    Err(beyond(caller))
}

fn releases(ledger: &Ledger, caller: &Caller, scope: &ReleaseScope) -> Result<(), IpamError> {
    match scope {
        ReleaseScope::HolderAddresses(_, keys) => keys
            .iter()
            .try_for_each(|key| in_reach(ledger, caller, key.canonical())),
        ReleaseScope::Address(key)
        | ReleaseScope::Quarantine(key)
        | ReleaseScope::Contention { key, .. } => in_reach(ledger, caller, key.canonical()),
        ReleaseScope::Holder(_) => Err(beyond(caller)),
    }
}

fn asks(ledger: &Ledger, caller: &Caller, ask: &Allocate) -> Result<(), IpamError> {
    ends_no_quarantine(ledger, &caller.scope, ask)?;
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

/// That it was the tenant that had the address is believed of a token for that tenant, not of who merely says so. A scope
/// must have all pools that give the address: whichever is named, the quarantine of another would end.
fn ends_no_quarantine(ledger: &Ledger, scope: &Scope, ask: &Allocate) -> Result<(), IpamError> {
    let own = |tenant: &Tenant| scope.tenants.contains(tenant);
    let may = ask.by_admin || ask.tenant.as_ref().is_some_and(own);
    if may && scope.is_all() {
        return Ok(());
    }
    let covers = |lease: &Lease| {
        let mut pools = ledger.pools_at(lease.key).into_iter();
        let in_scope = |id| ledger.pool(id).is_none_or(|pool| scope.has_pool(pool));
        scope.has_lease(lease) && pools.all(|(id, _)| in_scope(id))
    };
    for want in &ask.wants {
        let Some(address) = want.address else {
            continue;
        };
        let network = match &want.pool {
            Choice::Pool(id) => ledger.pool(*id).map(|pool| pool.spec.network),
            Choice::Any(any) => any.network,
        };
        let all = ledger.quarantined_at(address);
        let mut cooling = all.filter(|lease| network.is_none_or(|one| one == lease.key.network));
        if let Some(lease) = cooling.find(|lease| !may || !covers(lease)) {
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

fn charges(caller: &Caller, tenant: Option<&Tenant>) -> Result<(), IpamError> {
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

/// A lease out of sight is as if nobody held the address.
fn in_reach(ledger: &Ledger, caller: &Caller, key: LeaseKey) -> Result<(), IpamError> {
    let out = |lease: &&Arc<Lease>| !caller.scope.has_lease(lease);
    match ledger.lease_around(key).filter(out) {
        Some(_) => Err(Refusal::NotHeld(key.address).into()),
        None => Ok(()),
    }
}

/// A report is repeated, too, when the address cools as nobody's because of it: then it changes nothing.
fn reports(ledger: &Ledger, caller: &Caller, key: LeaseKey) -> Result<(), IpamError> {
    let anybody = Scope {
        tenants: Vec::new(),
        ..Scope::clone(&caller.scope)
    };
    let nobodys =
        |lease: &&Arc<Lease>| lease.state == LeaseState::Quarantined && lease.tenant.is_none();
    let cooling = ledger.lease(key).filter(nobodys);
    match cooling.filter(|lease| anybody.has_lease(lease)) {
        Some(_) => Ok(()),
        None => in_reach(ledger, caller, key),
    }
}

fn beyond(caller: &Caller) -> IpamError {
    IpamError::Forbidden(format!("{} has a scope that this is beyond", caller.actor))
}

#[cfg(test)]
mod tests {
    use fipd_core::{Asker, Op, Pool, PoolSpec, Timestamp, testing};

    use super::*;
    use crate::api::access::auth::Via;

    fn caller(pools: &[u32], networks: &[u32]) -> Caller {
        let scope = Scope {
            pools: pools.iter().copied().map(PoolId).collect(),
            networks: networks.iter().copied().map(NetworkId).collect(),
            ..Scope::default()
        };
        Caller {
            actor: "token:t".into(),
            role: Role::Admin,
            via: Via::Socket,
            scope: Arc::new(scope),
        }
    }

    fn ask(pool: Choice, address: Option<&str>) -> Request {
        Request::Allocate(Allocate {
            by_admin: true,
            actor: "token:t".into(),
            ..testing::allocate(
                testing::holder("fipd/Host/lab/a", ""),
                [testing::want(
                    pool,
                    address.map(|text| text.parse().unwrap()),
                )],
            )
        })
    }

    /// Two pools of which both give 10.0.0.1, which cools as one of the first.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::new();
        for id in [1, 2] {
            let spec = PoolSpec::own(format!("p{id}"), vec!["10.0.0.0/24".parse().unwrap()]);
            ledger.apply(&Op::PutPool(Arc::new(Pool {
                id: PoolId(id),
                spec,
                created: Timestamp(0),
                generation: 1,
            })));
        }
        ledger.apply(&Op::PutLease(Arc::new(Lease {
            members: std::iter::empty().collect(),
            state: LeaseState::Quarantined,
            until: Some(Timestamp(9)),
            ..testing::lease(testing::key([10, 0, 0, 1]), Some(PoolId(1)), None)
        })));
        ledger
    }

    #[test]
    fn a_scope_ends_only_quarantines_of_pools_it_has() {
        let ledger = ledger();
        let permitted = |pools: &[u32], address: &str| {
            let request = ask(PoolId(2).into(), Some(address));
            permits(&ledger, &caller(pools, &[]), &request)
        };
        for pools in [&[2][..], &[2, 3]] {
            let error = permitted(pools, "10.0.0.1");
            assert!(
                matches!(error, Err(IpamError::Refused(Refusal::Quarantined { .. }))),
                "{error:?}"
            );
        }
        assert_eq!(permitted(&[1, 2], "10.0.0.1"), Ok(()));
        assert_eq!(permitted(&[], "10.0.0.1"), Ok(()));
        assert_eq!(permitted(&[2], "10.0.0.2"), Ok(()));
    }

    #[test]
    fn a_scope_selects_only_where_it_has_every_pool() {
        let ledger = ledger();
        let permitted = |pools: &[u32], networks: &[u32], network: Option<u32>| {
            let any = Selection {
                length: None,
                network: network.map(NetworkId),
                family: Family::V4,
                asker: Asker::default(),
            };
            permits(&ledger, &caller(pools, networks), &ask(any.into(), None)).is_ok()
        };
        assert!(permitted(&[], &[], None));
        assert!(permitted(&[], &[0], Some(0)));
        assert!(!permitted(&[], &[0], None), "it may lead elsewhere");
        assert!(!permitted(&[], &[0], Some(1)));
        assert!(!permitted(&[1, 2], &[], Some(0)), "another pool may give");
    }
}
