//! `/api/v1/export`: everything of a kind, page by page as the reader takes it.
//!
//! A page holds the ledger for at most 1,000 rows and is forgotten once it is written. Rows come in the order of their
//! keys, so whatever is there from the first page to the last comes exactly once, as it is when its page is read. What
//! comes, goes or changes meanwhile is in the export or not. The audit log comes newest first, as it was at the start.

pub(super) mod rows;

use std::{io, sync::Arc};

use axum::{
    body::{Body, Bytes},
    extract::State,
    response::{IntoResponse as _, Response},
};
use fipd_core::{
    LeaseFilter, LeaseKey, Ledger, NetworkId, Pool, PoolId, QuotaUsage, Role, Separation, Tenant,
};
use futures::{StreamExt as _, stream};
use http::header;

use super::{audit, quotas};
use crate::api::{
    access::{Access, permit::Requester, visible::VisibleLedger},
    convert,
    extract::Query,
    problem::{Code, Problem},
    wire::{ExportQuery, PoolView, SeparationView},
};
use crate::store::AuditFilter;
use rows::{Format, Rows};
use tokio_util::sync::CancellationToken;

/// What is for fewer than the rest, as their own lists are; the table of rights has it.
pub const CLOSER: [(&str, Access); 2] = [
    ("audit", Access::Pooled(Role::Viewer)),
    ("quotas", Access::Scoped(Role::Operator)),
];
/// Pools have lists of their own.
const POOLS: usize = 200;
/// A page of pools ends with the one that brings as many entries of such lists.
const ENTRIES: usize = 10_000;

/// Where the next page begins.
#[derive(Clone, Debug)]
enum ExportPosition {
    Leases(Option<LeaseKey>),
    Pools(Option<PoolId>),
    Networks(Option<NetworkId>),
    Separations(Option<Separation>),
    Quotas(Option<(PoolId, Tenant)>),
    Audit(Box<AuditFilter>, Option<u64>),
}

/// An export on its way.
pub(in crate::api) struct Export {
    requester: Requester,
    stop: CancellationToken,
    format: Format,
    /// `None` at the end.
    next: Option<ExportPosition>,
}

/// All leases, pools, networks, separations of networks or quotas, or the audit log, as JSON Lines or CSV, for as long as the reader reads.
#[utoipa::path(get, path = "/api/v1/export", tag = "admin", params(ExportQuery),
    responses((status = 200, content((String = "application/jsonl"), (String = "text/csv")))))]
pub async fn export(
    State(stop): State<CancellationToken>,
    requester: Requester,
    Query(query): Query<ExportQuery>,
) -> Result<Response, Problem> {
    let format = Format::parse(query.format.as_deref())?;
    let what = query.what.as_deref();
    let next = Some(ExportPosition::parse(what)?);
    if let Some((_, access)) = CLOSER.iter().find(|(of, _)| what == Some(*of)) {
        requester.caller.may(*access)?;
    }
    let export = Export {
        requester,
        stop,
        format,
        next,
    };
    let kind = [(header::CONTENT_TYPE, format.media_type())];
    Ok((kind, export.body().await?).into_response())
}

impl ExportPosition {
    fn parse(what: Option<&str>) -> Result<Self, Problem> {
        match what {
            None | Some("leases") => Ok(Self::Leases(None)),
            Some("pools") => Ok(Self::Pools(None)),
            Some("networks") => Ok(Self::Networks(None)),
            Some("separations") => Ok(Self::Separations(None)),
            Some("quotas") => Ok(Self::Quotas(None)),
            Some("audit") => Ok(Self::Audit(Box::default(), None)),
            Some(other) => {
                let allowed = "leases, pools, networks, separations, quotas or audit";
                Err(Problem::invalid("what", other, allowed))
            }
        }
    }
}

impl Export {
    /// The wanted entries of the audit log, as CSV for a browser.
    pub fn of_log(requester: Requester, stop: CancellationToken, filter: AuditFilter) -> Self {
        Self {
            requester,
            stop,
            format: Format::BrowserCsv,
            next: Some(ExportPosition::Audit(Box::new(filter), None)),
        }
    }

    /// All of it. What fails at once is a problem and not half an answer.
    pub async fn body(mut self) -> Result<Body, Problem> {
        let first = self.page(true).await?;
        let rest = stream::try_unfold(self, |mut export| async move {
            let page = export.page(false).await;
            let page = page.map_err(|problem| io::Error::other(problem.detail.into_string()))?;
            Ok::<_, io::Error>(page.map(|bytes| (bytes, export)))
        });
        Ok(Body::from_stream(stream::iter(first.map(Ok)).chain(rest)))
    }

    /// The next rows as text; `None` at the end.
    async fn page(&mut self, first: bool) -> Result<Option<Bytes>, Problem> {
        let Some(place) = self.next.take() else {
            return Ok(None);
        };
        if self.stop.is_cancelled() {
            return Err(Problem::new(Code::Unavailable, "fipd is stopping"));
        }
        let requester = &self.requester;
        let (rows, next) = match place {
            ExportPosition::Leases(after) => requester.read(|visible| leases(visible, after)),
            ExportPosition::Pools(after) => {
                let (pools, next) = requester.read(|visible| pools(visible, after));
                let rows = pools
                    .into_iter()
                    .map(|(head, pool)| convert::with_addresses(head, &pool));
                (Rows::Pools(rows.collect()), next)
            }
            ExportPosition::Quotas(after) => requester.read(|visible| quotas(visible, after)),
            ExportPosition::Networks(after) => requester.read(|visible| networks(visible, after)),
            ExportPosition::Separations(after) => {
                requester.read(|visible| separations(visible, after))
            }
            ExportPosition::Audit(filter, before) => {
                let page = audit::rows(requester, &filter, before, Ledger::SCAN);
                let (entries, next) = page.await?;
                let next = next.map(|number| ExportPosition::Audit(filter, Some(number)));
                (Rows::Audit(entries), next)
            }
        };
        self.next = next;
        rows.text(self.format, first).map(Some)
    }
}

fn leases(visible: VisibleLedger<'_>, after: Option<LeaseKey>) -> (Rows, Option<ExportPosition>) {
    let filter = LeaseFilter {
        scope: visible.scope.clone(),
        ..LeaseFilter::default()
    };
    let page = visible.ledger.leases(&filter, after, Ledger::SCAN);
    let view = |lease| convert::lease_view(visible.ledger, lease);
    let rows = page.leases.iter().map(|lease| view(lease)).collect();
    let next = page.next.map(|key| ExportPosition::Leases(Some(key)));
    (Rows::Leases(rows), next)
}

/// The pools of a page without their addresses, which are made into text without the ledger.
fn pools(
    visible: VisibleLedger<'_>,
    after: Option<PoolId>,
) -> (Vec<(PoolView, Arc<Pool>)>, Option<ExportPosition>) {
    let (mut page, mut looked, mut entries) = (Vec::new(), 0, 0);
    for pool in visible.ledger.pools_after(after) {
        if visible.scope.has_pool(pool) {
            page.push((convert::pool_head(visible.ledger, pool), Arc::clone(pool)));
            entries += pool.spec.addresses.len() + pool.spec.exclusions.len();
        }
        looked += 1;
        if looked == POOLS || entries >= ENTRIES {
            let next = Some(ExportPosition::Pools(Some(pool.id)));
            return (page, next);
        }
    }
    (page, None)
}

fn quotas(
    visible: VisibleLedger<'_>,
    after: Option<(PoolId, Tenant)>,
) -> (Rows, Option<ExportPosition>) {
    let found = visible.ledger.quotas(None, None, after, Ledger::SCAN);
    let last = found.last().filter(|_| found.len() == Ledger::SCAN);
    let key = |usage: &QuotaUsage| (usage.quota.pool, usage.quota.tenant.clone());
    let next = last.map(|usage| ExportPosition::Quotas(Some(key(usage))));
    let mine = found.iter().filter(|usage| visible.has_quota(&usage.quota));
    let rows = mine.map(|usage| quotas::view(visible.ledger, usage));
    (Rows::Quotas(rows.collect()), next)
}

fn networks(
    visible: VisibleLedger<'_>,
    after: Option<NetworkId>,
) -> (Rows, Option<ExportPosition>) {
    let networks: Vec<_> = visible.ledger.networks_after(after).take(POOLS).collect();
    let last = networks.last().filter(|_| networks.len() == POOLS);
    let next = last.map(|network| ExportPosition::Networks(Some(network.id)));
    let mine = networks
        .iter()
        .filter(|network| visible.has_network(network));
    let views = mine.map(|network| convert::network_view(visible, network));
    (Rows::Networks(views.collect()), next)
}

fn separations(
    visible: VisibleLedger<'_>,
    after: Option<Separation>,
) -> (Rows, Option<ExportPosition>) {
    let found = visible.ledger.separations_after(after);
    let pairs: Vec<Separation> = found.take(POOLS).collect();
    let last = pairs.last().filter(|_| pairs.len() == POOLS);
    let next = last.map(|pair| ExportPosition::Separations(Some(*pair)));
    let name = |id| {
        let network = visible.ledger.network(id);
        let mine = network.filter(|network| visible.has_network(network));
        mine.map(|network| network.name.to_string())
    };
    let view = |(one, other): &Separation| {
        Some(SeparationView {
            kind: "separation".to_owned(),
            networks: [name(*one)?, name(*other)?],
        })
    };
    (
        Rows::Separations(pairs.iter().filter_map(view).collect()),
        next,
    )
}

#[cfg(test)]
pub(in crate::api) mod tests;
