//! Whether a FloatingIPPool may be stored.

use std::sync::Arc;

use fipd_core::{Lease, Origin, PoolPreview, PoolSpec};
use fipd_crds::{floating_ip::FloatingIPPoolSpec, labels::NETWORK};

use super::{
    Book, Rule,
    review::{Question, Verdict},
    some, spec,
};
use crate::{
    systems::rancher_fip::pool::{desired, facts},
    validation::{
        mirror::MirrorOf,
        pool::{Ranges, doubles, validate},
    },
};

/// The most addresses and pools that a message names.
const NAMED: usize = 5;
/// With more exclusions than this nothing is compared: the address book would be kept from all others for too long.
const EXCLUDED: usize = 10_000;

/// How a pool is judged whose fields are as they must be; the answer, where it needs no address book.
pub fn rule(question: &Question) -> Result<Rule<'_>, Verdict> {
    let now: FloatingIPPoolSpec = spec(&question.object.spec)?;
    let before = question.before().map(|old| old.spec.get("ipConfig"));
    if before.is_some_and(|before| before == question.object.spec.get("ipConfig")) {
        return Err(Verdict::allowed());
    }
    let config = now.ip_config.as_ref();
    let ranges = validate(config)?;
    let excluded = ranges.exclusions.len();
    if excluded > EXCLUDED {
        return Err(Verdict::warned(vec![format!(
            "spec.ipConfig.pool.exclude: {excluded} addresses are more than are compared here with what is in use ({EXCLUDED}); \
             the controllers do that"
        )]));
    }
    let doubles = config.map(doubles).unwrap_or_default();
    Ok(Box::new(move |book: Book<'_>| {
        let mut warnings = doubles.clone();
        warnings.extend(judge(question, &now, &ranges, book)?);
        Ok(warnings)
    }))
}

fn judge(
    question: &Question,
    now: &FloatingIPPoolSpec,
    ranges: &Ranges,
    book: Book<'_>,
) -> Result<Vec<String>, Verdict> {
    let mut warnings = Vec::new();
    let Some((wanted, preview)) = preview(question, now, ranges, book)? else {
        return Ok(warnings);
    };
    let leaving = &preview.leaving;
    if !leaving.is_empty() {
        let text = shrinking(leaving, preview.next.is_some());
        if question.before().is_some() {
            return Err(Verdict::invalid(text));
        }
        warnings.push(text);
    }
    if preview.after.assignable == 0 {
        warnings.push("spec.ipConfig.pool: the pool has no address to give".to_owned());
    }
    warnings.extend(overlapping(&wanted, &preview, book));
    Ok(warnings)
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
    let network = match mirror {
        Some(mirror) => (mirror.spec.network, mirror.spec.network_by_default),
        None => {
            let facts = facts(now, object.annotation(NETWORK));
            match book.cluster.network(book.ledger, name, &facts) {
                Some(network) => (network, true),
                None => return Ok(None),
            }
        }
    };
    let of = MirrorOf {
        cluster: book.cluster.id(),
        cluster_name: book.cluster.name(),
        object: name,
        uid: object.metadata.uid.as_deref().unwrap_or_default(),
    };
    let wanted = desired(&of, book.cluster.quota_required(), ranges, network);
    let id = mirror.map(|mirror| mirror.id);
    match book.ledger.preview_pool(id, &wanted) {
        Ok(preview) => Ok(Some((wanted, preview))),
        Err(refusal) => Err(Verdict::invalid(refusal.to_string())),
    }
}

fn shrinking(leaving: &[Arc<Lease>], more: bool) -> String {
    let count = leaving.len();
    let count = if more {
        format!("more than {count}")
    } else {
        count.to_string()
    };
    let addresses = some(leaving.iter().map(|lease| lease.key.address), NAMED).join(", ");
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
    let ranges = some(wanted.addresses.iter(), NAMED).join(", ");
    (!others.is_empty()).then(|| {
        format!(
            "spec.ipConfig.pool: the range {ranges} has addresses of other pools as well: {}; each address is given once, by \
             whichever pool is asked first",
            some(names, NAMED).join(", ")
        )
    })
}
