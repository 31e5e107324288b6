//! `/api/v1/leases`.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use axum::{Json, response::Response};
use fipd_core::{
    AddressSpec, Answer, Holder, Identity, Lease, LeaseFilter, LeaseKey, Ledger, Release,
    ReleaseScope, Request, Role, Tenant, Text,
};
use http::StatusCode;
use serde::Deserialize;

use super::{lease_changes, wants::allocation};
use crate::api::{
    access::{Access, auth::Caller, permit::Requester, reach::Reach},
    convert::{self, given},
    etag::{IfMatch, IfNoneMatch, State},
    extract::{Body, LabelledQuery, Path, Query},
    page::Ask,
    problem::{Code, Problem},
    wire::{
        Allocate, Granted, LeasePage, LeaseQuery, LeaseView, ReleaseRequest, Released,
        ReleasedAddress, ReserveRequest,
    },
};
use crate::ipam::{Guard, IpamError};

/// Who may free an address that cools before its time; the table of rights has it.
pub const END_QUARANTINE: Access = Access::Scoped(Role::Admin);
/// How often a release is tried while what it is about goes from network to network.
const MOVES: usize = 9;

/// Leases in order of network and address.
#[utoipa::path(get, path = "/api/v1/leases", tag = "leases", params(LeaseQuery),
    responses((status = 200, body = LeasePage), (status = 404, body = Problem)))]
pub async fn list(
    requester: Requester,
    LabelledQuery(query): LabelledQuery,
) -> Result<Json<LeasePage>, Problem> {
    let ask = Ask::new(query.limit, query.cursor.as_deref())?;
    let filter = requester.read(|reach| filter_of(reach, &query))?;
    let (leases, next) = ask.walk(|after, limit| {
        requester.read(|Reach { ledger, .. }| {
            let page = ledger.leases(&filter, after, limit);
            let view = |lease: &Arc<Lease>| convert::lease_view(ledger, lease);
            (page.leases.iter().map(view).collect(), page.next)
        })
    });
    Ok(Json(LeasePage { leases, next }))
}

/// One lease.
#[utoipa::path(get, path = "/api/v1/leases/{network}/{address}", tag = "leases",
    params(("network" = String, Path), ("address" = String, Path)),
    responses((status = 200, body = LeaseView, headers(("ETag" = String))), (status = 304)))]
pub async fn show(
    requester: Requester,
    Path((network, address)): Path<(String, String)>,
    known: IfNoneMatch,
) -> Result<Response, Problem> {
    requester.read(|reach| {
        let key = reach.key(&network, &address)?;
        let lease = reach.lease(key);
        let lease = lease.ok_or_else(|| Problem::not_found("lease of", key.address))?;
        let view = convert::lease_view(reach.ledger, lease);
        Ok(known.answer(&State::of(&**lease), &view))
    })
}

/// Gives addresses to an owner, all or nothing. Asking again answers the same ones with status 200.
#[utoipa::path(post, path = "/api/v1/leases", tag = "leases", request_body = Allocate,
    responses((status = 201, body = Granted), (status = 200, body = Granted)))]
pub async fn allocate(
    requester: Requester,
    Body(body): Body<Allocate>,
) -> Result<(StatusCode, Json<Granted>), Problem> {
    let request = requester.read(|reach| allocation(reach, body, &requester.caller))?;
    granted(&requester, Request::Allocate(request)).await
}

async fn granted(
    requester: &Requester,
    request: Request,
) -> Result<(StatusCode, Json<Granted>), Problem> {
    let answer = requester.submit(request).await?;
    let Answer::Granted { leases, fresh } = answer else {
        return Err(convert::unexpected(&answer));
    };
    let granted = requester.ipam.read(|ledger| {
        let summary = |lease: &Arc<Lease>| convert::lease_summary(ledger, lease);
        let leases = leases.iter().map(summary).collect();
        Granted { leases }
    });
    let status = match fresh {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    Ok((status, Json(granted)))
}

/// Keeps addresses for an owner that comes later, all or nothing. What the owner has in use already is answered as it is.
/// An address that cools after a release is kept for nobody.
#[utoipa::path(post, path = "/api/v1/leases/reserve", tag = "leases", request_body = ReserveRequest,
    responses((status = 201, body = Granted), (status = 200, body = Granted)))]
pub async fn reserve(
    requester: Requester,
    Body(body): Body<ReserveRequest>,
) -> Result<(StatusCode, Json<Granted>), Problem> {
    let now = requester.ipam.now();
    let until = convert::end("until", body.until.as_deref(), body.lasts, now)?;
    let allocate = Allocate {
        owner: body.owner,
        instance: String::new(),
        tenant: body.tenant,
        wants: body.wants,
        share: None,
        probe: false,
    };
    let ask = requester.read(|reach| allocation(reach, allocate, &requester.caller))?;
    let request = Request::Reserve(fipd_core::Reserve { ask, until });
    granted(&requester, request).await
}

/// How and why, the latter for the audit log.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    #[serde(default)]
    pub reason: String,
    /// The address cools and shall be free before its time.
    #[serde(default)]
    pub end_quarantine: bool,
}

/// Takes an address back, whoever holds it. An address without a lease, or that cools already, is answered the same. With
/// `end_quarantine` an admin frees one that cools.
#[utoipa::path(delete, path = "/api/v1/leases/{network}/{address}", tag = "leases",
    params(("network" = String, Path), ("address" = String, Path), ("reason" = Option<String>, Query),
        ("end_quarantine" = Option<bool>, Query), ("If-Match" = Option<String>, Header)), responses((status = 204)))]
pub async fn release_address(
    requester: Requester,
    Path((network, address)): Path<(String, String)>,
    Query(query): Query<Reason>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    if query.end_quarantine {
        requester.caller.may(END_QUARANTINE)?;
    }
    let key = requester.read(|reach| reach.key(&network, &address))?;
    let scope = match query.end_quarantine {
        true => ReleaseScope::Quarantine(key),
        false => ReleaseScope::Address(key),
    };
    let release = Release {
        scope,
        actor: requester.actor(),
        reason: convert::text("reason", &query.reason)?,
    };
    let guard = if_match.guard(lease_text(key), move |ledger| state_of(ledger, key));
    let request = Request::Release(release);
    requester.submit_if(request, guard).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Takes back what an owner holds. An owner that holds nothing is answered with an empty list.
#[utoipa::path(post, path = "/api/v1/leases/release", tag = "leases", request_body = ReleaseRequest,
    responses((status = 200, body = Released)))]
pub async fn release(
    requester: Requester,
    Body(body): Body<ReleaseRequest>,
) -> Result<Json<Released>, Problem> {
    let (requester, body) = (&requester, &body);
    let reason = convert::text("reason", &body.reason)?;
    let by_holder = requester.read(|reach| to_release(reach, body))?;
    let mut released = Vec::new();
    for (holder, mut keys) in by_holder {
        // A pool may go to another network between reading and deciding, and its addresses have other keys there.
        for last in (0..MOVES).rev() {
            let request = Request::Release(Release {
                scope: ReleaseScope::HolderAddresses(holder.clone(), keys.clone()),
                actor: requester.actor(),
                reason: Text::clone(&reason),
            });
            let guard = still_held(&requester.caller, body, (&holder, &keys));
            match requester.submit_if(request, guard).await {
                Ok(Answer::Released { leases }) => {
                    released.extend(leases);
                    break;
                }
                Ok(other) => return Err(convert::unexpected(&other)),
                Err(problem) if problem.code == Code::Stale && last > 0 => {
                    let now = requester.read(|reach| to_release(reach, body))?;
                    keys = now.get(&holder).cloned().unwrap_or_default();
                }
                Err(problem) => return Err(problem),
            }
        }
    }
    let released = requester.ipam.read(|ledger| {
        let view = |key: LeaseKey| ReleasedAddress {
            network: convert::network_name(ledger, key.network),
            address: key.address,
        };
        released.into_iter().map(view).collect()
    });
    Ok(Json(Released { released }))
}

/// The holder has what was read.
fn still_held(
    caller: &Caller,
    body: &ReleaseRequest,
    (holder, keys): (&Holder, &[LeaseKey]),
) -> Guard {
    let (caller, body) = (caller.clone(), body.clone());
    let (holder, keys) = (holder.clone(), keys.to_vec());
    Box::new(move |ledger, _| {
        let now = to_release(caller.within(ledger), &body).unwrap_or_default();
        if now.get(&holder).map_or(&[][..], Vec::as_slice) == keys {
            return Ok(());
        }
        Err(IpamError::Stale(format!("what {} has", holder.identity)))
    })
}

/// What `If-Match` compares.
pub(in crate::api) fn state_of(ledger: &Ledger, key: LeaseKey) -> Option<State> {
    let lease = ledger.lease(key.canonical());
    lease.map(|lease| State::of(&**lease))
}

/// The lease as a sentence names it.
pub(in crate::api) fn lease_text(key: LeaseKey) -> String {
    format!("the lease of {}", key.address)
}

fn filter_of(reach: Reach<'_>, query: &LeaseQuery) -> Result<LeaseFilter, Problem> {
    // Where there is one pool only, no other's leases are walked.
    let only = match reach.scope.pools.as_slice() {
        [only] => Some(*only),
        _ => None,
    };
    let cluster = query.cluster.as_deref();
    let within = |text: &str| Ok(convert::parse::<AddressSpec>("within", text)?.span());
    Ok(LeaseFilter {
        network: given(&query.network, |name| Ok(reach.network(name)?.id))?,
        pool: given(&query.pool, |name| reach.pool_id(name))?.or(only),
        state: given(&query.state, |state| convert::parse("state", state))?,
        system: given(&query.system, convert::system)?,
        cluster: cluster.map(|text| convert::cluster_id(reach.ledger, text)),
        owner: given(&query.owner, |text| convert::owner(reach.ledger, text))?,
        address: given(&query.address, |text| convert::address("address", text))?,
        within: given(&query.within, within)?,
        tenant: query.tenant.as_deref().map(|name| Tenant(name.into())),
        labels: lease_changes::wanted_labels(&query.label)?,
        scope: reach.scope.clone(),
        ..LeaseFilter::default()
    })
}

/// What of the owner's leases goes, by holder: each instance must be named as the lease has it.
fn to_release(
    reach: Reach<'_>,
    body: &ReleaseRequest,
) -> Result<BTreeMap<Holder, Vec<LeaseKey>>, Problem> {
    let identity: Identity = convert::owner(reach.ledger, &body.owner)?;
    let network = given(&body.network, |name| reach.network(name))?;
    let pool = given(&body.pool, |name| reach.pool_id(name))?;
    let address = |text: &String| convert::address("addresses", text);
    let addresses: Vec<IpAddr> = body
        .addresses
        .iter()
        .map(address)
        .collect::<Result<_, _>>()?;
    let mut by_holder: BTreeMap<Holder, Vec<LeaseKey>> = BTreeMap::new();
    for lease in reach.ledger.leases_of(&identity) {
        let wanted = reach.scope.has_lease(&lease)
            && network.is_none_or(|network| lease.key.network == network.id)
            && pool.is_none_or(|pool| lease.pool == Some(pool))
            && (addresses.is_empty() || addresses.contains(&lease.key.address));
        let mut holders = lease.members.iter().map(|member| &member.holder);
        let holder = holders.find(|holder| holder.identity == identity);
        let Some(holder) = holder.filter(|_| wanted) else {
            continue;
        };
        let asked = body.instance.as_deref();
        if asked.is_none_or(|asked| asked == &*holder.instance) {
            let keys = by_holder.entry(holder.clone()).or_default();
            keys.push(lease.key);
        }
    }
    Ok(by_holder)
}
