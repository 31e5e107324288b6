//! Whether a FloatingIPProjectQuota may be stored.

use std::collections::BTreeMap;

use fipd_core::Tenant;
use serde_json::Value;

use super::{
    Book,
    review::{Question, Verdict},
    spec,
};
use crate::fip_rules::quota::{Wanted, limits_of, wanted};

const FIELD: &str = "floatingIPQuota";

pub fn judge(question: &Question, book: Book<'_>) -> Verdict {
    look(question, book).unwrap_or_else(|verdict| verdict)
}

fn look(question: &Question, book: Book<'_>) -> Result<Verdict, Verdict> {
    let now = question.object.spec.get(FIELD);
    let before = question.before().map(|old| old.spec.get(FIELD));
    if before.is_some_and(|before| before == now) {
        return Ok(Verdict::allowed());
    }
    let raw: Option<BTreeMap<String, Value>> = spec(now.unwrap_or(&Value::Null))?;
    let limits = limits_of(&raw.unwrap_or_default()).map_err(|wrong| {
        let texts: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        Verdict::invalid(texts.join("; "))
    })?;
    let find = |name: &str| match book.mirror(name) {
        Some(own) => vec![own.id],
        None => {
            let names = book.cluster.pools_called(name);
            let pools = names.iter().filter_map(|name| book.mirror(name));
            pools.map(|pool| pool.id).collect()
        }
    };
    let wanted = wanted(limits, find);
    if let Some(message) = wanted.ambiguous() {
        return Err(Verdict::invalid(message));
    }
    let mut warnings: Vec<String> = wanted.unnamed().into_iter().collect();
    warnings.extend(over(&question.name, &wanted, book));
    Ok(Verdict::warned(warnings))
}

/// Where the project has more than it would be allowed.
fn over(project: &str, wanted: &Wanted, book: Book<'_>) -> Vec<String> {
    let tenant = Tenant(project.into());
    let over = wanted.limits.iter().filter_map(|(pool, (name, limit))| {
        let used = book.ledger.charged(*pool, &tenant);
        (used > *limit).then(|| {
            format!(
                "spec.{FIELD}[{name:?}]: the project has {used} addresses, more than {limit}; it keeps them and gets no more"
            )
        })
    });
    over.collect()
}
