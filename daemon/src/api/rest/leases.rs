//! `/api/v1/leases`.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    sync::Arc,
};

use axum::{Json, response::Response};
use fipd_core::{
    Answer, Holder, Identity, Lease, LeaseFilter, LeaseKey, LeasePrefix, Ledger, NetworkId, PoolId,
    Release, ReleaseScope, Request, Role, Scope, Span, Tenant, Text,
};
use http::StatusCode;
use serde::Deserialize;

use super::{lease_changes, wants::allocation};
use crate::api::{
    access::{Access, permit::Requester, visible::VisibleLedger},
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
use crate::ipam::{Guard, Ipam, IpamError};

/// Who may free an address that cools before its time; the table of rights has it.
pub const END_QUARANTINE: Access = Access::Scoped(Role::Admin);
/// How often a release reads anew what it is about, because that goes from network to network.
const MOVES: usize = 8;

/// Leases in order of network and address.
#[utoipa::path(get, path = "/api/v1/leases", tag = "leases", params(LeaseQuery),
    responses((status = 200, body = LeasePage), (status = 404, body = Problem)))]
pub async fn list(
    requester: Requester,
    LabelledQuery(query): LabelledQuery,
) -> Result<Json<LeasePage>, Problem> {
    let ask = Ask::new(query.limit, query.cursor.as_deref())?;
    let filter = requester.read(|visible| filter_of(visible, &query))?;
    let (leases, next) = ask.walk(|after, limit| {
        requester.read(|VisibleLedger { ledger, .. }| {
            let page = ledger.leases(&filter, after, limit);
            let view = |lease: &Arc<Lease>| convert::lease_view(ledger, lease);
            (page.leases.iter().map(view).collect(), page.next)
        })
    });
    Ok(Json(LeasePage { leases, next }))
}

/// The lease that has an address, or a whole prefix (with its slash as `%2F`).
#[utoipa::path(get, path = "/api/v1/leases/{network}/{address}", tag = "leases",
    params(("network" = String, Path), ("address" = String, Path)),
    responses((status = 200, body = LeaseView, headers(("ETag" = String))), (status = 304)))]
pub async fn show(
    requester: Requester,
    Path((network, address)): Path<(String, String)>,
    known: IfNoneMatch,
) -> Result<Response, Problem> {
    requester.read(|visible| {
        let (key, length) = visible.key_and_length(&network, &address)?;
        let lease = visible.lease_around(key);
        let lease = lease.filter(|lease| length.is_none_or(|length| lease.length <= length));
        let lease = lease.ok_or_else(|| Problem::not_found("lease of", &address))?;
        let view = convert::lease_view(visible.ledger, lease);
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
    let request = requester.read(|visible| allocation(visible, body, &requester.caller))?;
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
    let summary = |ledger: &Ledger, lease: &Arc<Lease>| convert::lease_summary(ledger, lease);
    let granted = Granted {
        leases: requester.ipam.map_in_steps(&leases, summary),
    };
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
    let ask = requester.read(|visible| allocation(visible, allocate, &requester.caller))?;
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
    let key = requester.read(|visible| visible.key(&network, &address))?;
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
    let ipam = &requester.ipam;
    let reason = convert::text("reason", &body.reason)?;
    let wanted = Arc::new(requester.read(|visible| ReleaseFilter::of(visible, &body))?);
    let (mut released, mut moves, mut again) = (Vec::new(), 0, 0);
    let mut left = wanted.to_release(ipam);
    while let Some((holder, keys)) = left.pop_front() {
        let guard = wanted.still_held(&holder, &keys);
        let request = Request::Release(Release {
            scope: ReleaseScope::HolderAddresses(holder, keys),
            actor: requester.actor(),
            reason: Text::clone(&reason),
        });
        match requester.submit_if(request, guard).await {
            Ok(Answer::Released { leases }) => {
                released.extend(leases);
                moves = 0;
                // What the owner got meanwhile goes as well, and what a pool took behind the place of the reader.
                if left.is_empty() && again < MOVES {
                    again += 1;
                    left = wanted.to_release(ipam);
                }
            }
            Ok(other) => return Err(convert::unexpected(&other)),
            // A pool may go to another network between reading and deciding, and its addresses have other keys there.
            Err(problem) if problem.code == Code::Stale && moves < MOVES => {
                moves += 1;
                left = wanted.to_release(ipam);
            }
            Err(problem) => return Err(problem),
        }
    }
    let view = |ledger: &Ledger, gone: &LeasePrefix| ReleasedAddress {
        network: convert::network_name(ledger, gone.key.network),
        address: gone.key.address,
        length: gone.explicit_length(),
    };
    Ok(Json(Released {
        released: ipam.map_in_steps(&released, view),
    }))
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

fn filter_of(visible: VisibleLedger<'_>, query: &LeaseQuery) -> Result<LeaseFilter, Problem> {
    // Where there is one pool only, no other's leases are walked.
    let only = match visible.scope.pools.as_slice() {
        [only] => Some(*only),
        _ => None,
    };
    let cluster = query.cluster.as_deref();
    let span = |field: &'static str| move |text: &str| convert::span(field, text);
    let wanted = given(&query.address, |text| convert::prefix("address", text))?;
    let prefix = |(address, length): (IpAddr, Option<u8>)| Some(Span::of_prefix(address, length?));
    let named = wanted.and_then(prefix);
    let containing = given(&query.containing, span("containing"))?;
    if let (Some(text), true) = (&query.containing, named.is_some()) {
        let allowed = "nothing beside a prefix as `address`";
        return Err(Problem::invalid("containing", text, allowed));
    }
    Ok(LeaseFilter {
        network: given(&query.network, |name| Ok(visible.network(name)?.id))?,
        pool: given(&query.pool, |name| visible.pool_id(name))?.or(only),
        state: given(&query.state, |state| convert::parse("state", state))?,
        system: given(&query.system, convert::system)?,
        cluster: cluster.map(|text| convert::cluster_id(visible.ledger, text)),
        owner: given(&query.owner, |text| convert::owner(visible.ledger, text))?,
        address: wanted.map(|(address, _)| address),
        containing: containing.or(named),
        within: given(&query.within, span("within"))?,
        tenant: query.tenant.as_deref().map(|name| Tenant(name.into())),
        labels: lease_changes::wanted_labels(&query.label)?,
        scope: visible.scope.clone(),
        ..LeaseFilter::default()
    })
}

/// Which leases of an owner go.
struct ReleaseFilter {
    owner: Identity,
    /// As the leases have it; `None`: any.
    instance: Option<String>,
    network: Option<NetworkId>,
    pool: Option<PoolId>,
    /// Any where there are none.
    addresses: Vec<(IpAddr, Option<u8>)>,
    scope: Scope,
}

impl ReleaseFilter {
    fn of(visible: VisibleLedger<'_>, body: &ReleaseRequest) -> Result<Self, Problem> {
        let address = |text: &String| convert::prefix("addresses", text);
        Ok(Self {
            owner: convert::owner(visible.ledger, &body.owner)?,
            instance: body.instance.clone(),
            network: given(&body.network, |name| Ok(visible.network(name)?.id))?,
            pool: given(&body.pool, |name| visible.pool_id(name))?,
            addresses: body
                .addresses
                .iter()
                .map(address)
                .collect::<Result<_, _>>()?,
            scope: visible.scope.clone(),
        })
    }

    /// Whether one of the addresses is the lease's first, and no other length stands with it.
    fn names(&self, lease: &Lease) -> bool {
        self.addresses.iter().any(|(address, length)| {
            *address == lease.key.address && length.is_none_or(|length| length == lease.length)
        })
    }

    /// Who is to leave the lease; `None`: it stays.
    fn leaver<'a>(&self, lease: &'a Lease) -> Option<&'a Holder> {
        let goes = self.scope.has_lease(lease)
            && self
                .network
                .is_none_or(|network| lease.key.network == network)
            && self.pool.is_none_or(|pool| lease.pool == Some(pool))
            && (self.addresses.is_empty() || self.names(lease));
        let asked = |one: &str| self.instance.as_deref().is_none_or(|asked| asked == one);
        let mut holders = lease.members.iter().map(|member| &member.holder);
        let holder = holders.find(|holder| holder.identity == self.owner);
        holder.filter(|holder| goes && asked(&holder.instance))
    }

    /// What goes, by holder: as much at once as a decision may look at.
    fn to_release(&self, ipam: &Ipam) -> VecDeque<(Holder, Vec<LeaseKey>)> {
        let mut by_holder: BTreeMap<Holder, Vec<LeaseKey>> = BTreeMap::new();
        ipam.for_each_lease_with(&self.owner, |lease| {
            if let Some(holder) = self.leaver(lease) {
                let keys = by_holder.entry(holder.clone()).or_default();
                keys.push(lease.key);
            }
        });
        let parts = by_holder.iter().flat_map(|(holder, keys)| {
            let parts = keys.chunks(Ledger::SCAN);
            parts.map(|keys| (holder.clone(), keys.to_vec()))
        });
        parts.collect()
    }

    /// The holder has what was read.
    fn still_held(self: &Arc<Self>, holder: &Holder, keys: &[LeaseKey]) -> Guard {
        let (wanted, holder, keys) = (Arc::clone(self), holder.clone(), keys.to_vec());
        Box::new(move |ledger, _| {
            let leaver = |key: &LeaseKey| wanted.leaver(ledger.lease(*key)?);
            if keys.iter().all(|key| leaver(key) == Some(&holder)) {
                return Ok(());
            }
            Err(IpamError::Stale(format!("what {} has", holder.identity)))
        })
    }
}
