//! Whether a FloatingIPPool may be stored.

use std::sync::Arc;

use fipd_core::{Lease, Origin, PoolPreview, PoolSpec};
use fipd_crds::{floating_ip::FloatingIPPoolSpec, labels::NETWORK};

use super::{
    Book, NewPool, invalid,
    review::{Question, Verdict},
    some, spec,
};
use crate::fip_rules::{
    mirror::{Source, desired},
    pool::{Ranges, doubles, raw, validate},
};

/// The most addresses and pools that a message names.
const NAMED: usize = 5;

pub fn judge(question: &Question, book: Book<'_>) -> Verdict {
    look(question, book).unwrap_or_else(|verdict| verdict)
}

fn look(question: &Question, book: Book<'_>) -> Result<Verdict, Verdict> {
    let now: FloatingIPPoolSpec = spec(&question.object.spec)?;
    let before = question.before().map(|old| old.spec.get("ipConfig"));
    if before.is_some_and(|before| before == question.object.spec.get("ipConfig")) {
        return Ok(Verdict::allowed());
    }
    let raw = raw(&now);
    let ranges = validate(raw.as_ref()).map_err(|wrong| invalid(&wrong))?;
    let mut warnings = raw.as_ref().map(doubles).unwrap_or_default();
    if let Some((wanted, preview)) = preview(question, &now, &ranges, book)? {
        let leaving = live(&preview.leaving);
        let updated = question.before().is_some();
        if !leaving.is_empty() {
            let text = shrinking(&leaving, preview.next.is_some());
            if updated {
                return Err(Verdict::invalid(text));
            }
            warnings.push(text);
        }
        warnings.extend(overlapping(&wanted, &preview, book));
    }
    Ok(Verdict::warned(warnings))
}

/// What the pool would come to; `None`: its network does not exist yet, and nothing is in it.
fn preview(
    question: &Question,
    now: &FloatingIPPoolSpec,
    ranges: &Ranges,
    book: Book<'_>,
) -> Result<Option<(PoolSpec, PoolPreview)>, Verdict> {
    let (name, object) = (&question.name, &question.object);
    let mirror = book.mirror(name);
    let facts = NewPool {
        name,
        interface: &now.target_network_interface,
        annotation: object.annotation(NETWORK),
    };
    let network = match mirror {
        Some(mirror) => Some((mirror.spec.network, mirror.spec.network_by_default)),
        None => {
            let network = book.cluster.network(book.ledger, &facts);
            network.map(|network| (network, true))
        }
    };
    let Some(network) = network else {
        return Ok(None);
    };
    let source = Source {
        cluster: book.cluster.id(),
        cluster_name: book.cluster.name(),
        name,
        uid: object.metadata.uid.as_deref().unwrap_or_default(),
        quota_required: book.cluster.quota_required(),
    };
    let wanted = desired(&source, ranges, network);
    let id = mirror.map(|mirror| mirror.id);
    match book.ledger.preview_pool(id, &wanted) {
        Ok(preview) => Ok(Some((wanted, preview))),
        Err(refusal) => Err(Verdict::invalid(refusal.to_string()).for_now()),
    }
}

/// Those that somebody holds.
fn live(leases: &[Arc<Lease>]) -> Vec<&Arc<Lease>> {
    leases
        .iter()
        .filter(|lease| !lease.members.is_empty())
        .collect()
}

fn shrinking(leaving: &[&Arc<Lease>], more: bool) -> String {
    let count = leaving.len();
    let count = if more {
        format!("more than {count}")
    } else {
        count.to_string()
    };
    let addresses = some(leaving.iter().map(|lease| lease.key.address), NAMED);
    format!(
        "spec.ipConfig.pool: {count} addresses in use would be outside the pool: {addresses}; keep them in the range and not \
         excluded, or delete their FloatingIPs and Services first"
    )
}

fn overlapping(wanted: &PoolSpec, preview: &PoolPreview, book: Book<'_>) -> Option<String> {
    let others = preview
        .overlaps
        .iter()
        .filter_map(|id| book.ledger.pool(*id));
    // One that is closed gives nothing.
    let others: Vec<_> = others.filter(|pool| !pool.spec.closed).collect();
    let names = others.iter().map(|pool| match &pool.spec.origin {
        Origin::Mirror { object, .. } => object.to_string(),
        Origin::Own => pool.spec.name.to_string(),
    });
    let ranges = some(wanted.addresses.iter(), NAMED);
    (!others.is_empty()).then(|| {
        format!(
            "spec.ipConfig.pool: the range {ranges} has addresses of other pools as well: {}; each address is given once, by \
             whichever pool is asked first",
            some(names, NAMED)
        )
    })
}
