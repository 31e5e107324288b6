//! Whether a FloatingIPProjectQuota may be stored.

use std::collections::BTreeMap;

use fipd_core::Tenant;
use serde_json::Value;

use super::{
    Book, Management, Rule,
    review::{Question, Verdict},
    some, spec,
};
use crate::validation::quota::{ProjectLimits, limits_of, wanted};

const FIELD: &str = "floatingIPQuota";
/// The most mistakes that a message names.
const NAMED: usize = 5;
/// The most pools that are looked for.
const POOLS: usize = 1000;

/// How a quota is judged; the answer, where it needs no address book.
pub fn rule<'a>(question: &'a Question, cluster: &dyn Management) -> Result<Rule<'a>, Verdict> {
    let now = question.object.spec.get(FIELD);
    let before = question.before().map(|old| old.spec.get(FIELD));
    if before.is_some_and(|before| before == now) {
        return Err(Verdict::allowed());
    }
    let raw: Option<BTreeMap<String, Value>> = spec(now.unwrap_or(&Value::Null))?;
    let limits = limits_of(&raw.unwrap_or_default())
        .map_err(|wrong| Verdict::invalid(some(wrong.iter(), NAMED).join("; ")))?;
    if limits.len() > POOLS {
        return Err(Verdict::warned(vec![format!(
            "spec.{FIELD}: {} pools are more than are looked for here ({POOLS}); the controllers do that",
            limits.len()
        )]));
    }
    // Which pools the names may mean beside those that are called so.
    let others = cluster.other_names();
    Ok(Box::new(move |book: Book<'_>| {
        let find = |name: &str| match book.mirror(name) {
            Some(own) => vec![own.id],
            None => {
                let names = others.get(name).into_iter().flatten();
                let pools = names.filter_map(|name| book.mirror(name));
                pools.map(|pool| pool.id).collect()
            }
        };
        let wanted = wanted(limits.clone(), find);
        if let Some(message) = wanted.ambiguous() {
            return Err(Verdict::invalid(message));
        }
        let mut warnings: Vec<String> = wanted.unnamed().into_iter().collect();
        warnings.extend(over(&question.name, &wanted, book));
        Ok(warnings)
    }))
}

/// Where the project has more than it would be allowed.
fn over(project: &str, wanted: &ProjectLimits, book: Book<'_>) -> Vec<String> {
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
