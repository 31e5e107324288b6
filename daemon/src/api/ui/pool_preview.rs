//! What an edit or the end of a pool would do, as it is shown before it is done.

use std::sync::Arc;

use axum::response::Response;
use fipd_core::{LeaseState, Ledger, Pool, PoolId, PoolPreview, PoolSpec};
use fipd_web_ui::{Form, Input, InputKind, Nav, PreviewPage, TouchedQuota, count, links};
use http::StatusCode;

use super::{fields::with_query, page::page_as, pool_form::form, views};
use crate::{api::ui::session_extract::Visitor, ipam::Ipam};

/// Leases, pools and quotas that a preview lists.
const SHOWN: usize = 20;

/// What a form is about: no pool yet, or this one.
pub type About<'a> = Option<&'a Arc<Pool>>;

/// Title, where the form is sent to, and the way back.
pub fn titles(about: About<'_>) -> (String, String, String) {
    match about {
        None => {
            let target = links::POOL_NEW.to_owned();
            ("New pool".to_owned(), target, links::POOLS.to_owned())
        }
        Some(pool) => {
            let title = format!("Change pool {}", pool.spec.name);
            let here = links::pool(pool.id.0);
            (title, here.clone() + "/edit", here)
        }
    }
}

pub fn trail(about: About<'_>) -> Vec<(String, String)> {
    let pools = (links::POOLS.to_owned(), "Pools".to_owned());
    let pool = about.map(|pool| (links::pool(pool.id.0), pool.spec.name.to_string()));
    [pools].into_iter().chain(pool).collect()
}

/// What a preview is made of.
pub struct Would<'a> {
    pub about: About<'a>,
    pub spec: PoolSpec,
    pub preview: PoolPreview,
    /// Of the form below it, with what is wrong.
    pub asked: Form,
}

pub fn show(visitor: &Visitor, status: StatusCode, typed: &Form, would: Would<'_>) -> Response {
    let Would {
        about,
        spec,
        preview,
        asked,
    } = would;
    let (title, target, back) = titles(about);
    let force = !preview.leaving.is_empty();
    let mut inputs = typed.hidden();
    if about.is_some() {
        let reason = Input::new("reason", "Reason");
        let (reason, note) = match force {
            true => (reason.required(), "for the audit log"),
            false => (reason, "optional, for the audit log"),
        };
        inputs.push(Input {
            field: asked.field("reason"),
            ..reason.note(note)
        });
    }
    let button = match (about, force) {
        (None, _) => "Make the pool",
        (Some(_), false) => "Change the pool",
        (Some(_), true) => "Change it and leave them out of range",
    };
    let form = Form {
        error: asked.error,
        danger: force,
        ..Form::new(target, button, inputs)
    };
    let shell = visitor.shell(Nav::Pools);
    let size = preview.after.assignable;
    let quotas = visitor.read(|ledger| quotas(ledger, about, Some(size)));
    let changes = changes(&visitor.ipam, about.map(|pool| &pool.spec), &spec);
    let page = visitor.read(|ledger| PreviewPage {
        shell,
        title: format!("{title}?"),
        trail: trail(about),
        changes,
        size: (preview.before.map(|size| size.assignable), Some(size)),
        prefixes: spec.allocation_length.is_some(),
        leaving: views::lease_rows(ledger, preview.leaving.iter().take(SHOWN)),
        leaving_count: preview.leaving.len(),
        leaving_more: preview.next.is_some(),
        leaving_list: about.map_or_else(String::new, |pool| leaving(pool, &preview)),
        overlaps: overlaps(ledger, &preview),
        quotas,
        form,
        editable: true,
        back,
        ..PreviewPage::default()
    });
    page_as(status, &page)
}

/// Label, before and after of each field that becomes another; all that have a value, of a new pool.
fn changes(
    ipam: &Ipam,
    before: Option<&PoolSpec>,
    after: &PoolSpec,
) -> Vec<(&'static str, String, String)> {
    let form = |spec| ipam.read(|ledger| form(ledger, Some(spec)));
    let was = before.map(form);
    let will = form(after);
    let inputs = will.inputs.into_iter();
    let change = |input: Input| {
        let before = was.as_ref().map_or("", |was| was.value(input.name));
        let after = input.field.value.as_str();
        (before != after).then(|| (input.label, short(before), short(after)))
    };
    inputs.filter_map(change).collect()
}

/// A long list by its first entries.
fn short(text: &str) -> String {
    let lines: Vec<_> = text.lines().take(SHOWN).collect();
    match text.lines().count().saturating_sub(SHOWN) {
        0 => lines.join(", "),
        more => format!("{} and {} more", lines.join(", "), count(more)),
    }
}

/// The pool's leases, on the addresses of those that leave where all of them are known.
fn leaving(pool: &Pool, preview: &PoolPreview) -> String {
    let spans = || preview.leaving.iter().map(|lease| lease.span());
    let first = spans().min_by_key(|span| span.first);
    let last = spans().max_by_key(|span| span.last);
    let ends = first.zip(last).filter(|_| preview.next.is_none());
    let within = ends.map_or_else(String::new, |(first, last)| {
        format!("{}-{}", first.first_address(), last.last_address())
    });
    let pairs = [("pool", &*pool.spec.name), ("within", within.as_str())];
    with_query(links::LEASES, &pairs)
}

fn overlaps(ledger: &Ledger, preview: &PoolPreview) -> Vec<(String, String)> {
    let pools = preview.overlaps.iter().take(SHOWN);
    let pools = pools.filter_map(|id| ledger.pool(*id));
    pools
        .map(|pool| (links::pool(pool.id.0), pool.spec.name.to_string()))
        .collect()
}

/// Quotas of the pool above what it will be able to give; all of them where it goes.
fn quotas(ledger: &Ledger, about: About<'_>, size: Option<u128>) -> Vec<TouchedQuota> {
    let of = |id: PoolId| ledger.quotas(None, Some(id), None, Ledger::SCAN);
    let found = about.map_or_else(Vec::new, |pool| of(pool.id)).into_iter();
    let touched =
        found.filter(|usage| size.is_none_or(|size| u128::from(usage.quota.limit) > size));
    let row = |usage: fipd_core::QuotaUsage| TouchedQuota {
        tenant: usage.quota.tenant.0.to_string(),
        used: usage.used,
        limit: usage.quota.limit,
    };
    touched.take(SHOWN).map(row).collect()
}

pub fn deletion(
    visitor: &Visitor,
    pool: &Arc<Pool>,
    status: StatusCode,
    error: Option<String>,
) -> Response {
    let shell = visitor.shell(Nav::Pools);
    let name = &pool.spec.name;
    let quotas = visitor.read(|ledger| quotas(ledger, Some(pool), None));
    let page = visitor.read(|ledger| {
        let leases = ledger.pool_leases(pool.id, None, Ledger::SCAN);
        let used = |lease: &&Arc<fipd_core::Lease>| lease.state != LeaseState::Quarantined;
        let obstacle = match leases.iter().filter(used).count() {
            0 => String::new(),
            1 => format!("Pool {name} still has a lease; release or transfer it first."),
            some if leases.len() < Ledger::SCAN => {
                format!("Pool {name} still has {some} leases; release them first.")
            }
            some => format!("Pool {name} still has {some} leases or more; release them first."),
        };
        let generation = Input::new("generation", "").kind(InputKind::Hidden);
        let usage = ledger.usage(pool.id);
        PreviewPage {
            shell,
            title: format!("Delete pool {name}?"),
            trail: trail(Some(pool)),
            size: (usage.map(|usage| usage.size), Some(0)),
            prefixes: pool.spec.allocation_length.is_some(),
            quotas,
            obstacle,
            form: Form {
                inputs: vec![generation.value(pool.generation.to_string())],
                error,
                ..Form::confirm(links::pool(pool.id.0) + "/delete", "Delete the pool")
            },
            back: links::pool(pool.id.0),
            ..PreviewPage::default()
        }
    });
    page_as(status, &page)
}

#[cfg(test)]
mod tests {
    use fipd_core::{Lease, PoolSize, testing};

    use super::*;

    #[test]
    fn the_list_of_what_leaves_has_whole_prefixes() {
        let pool = testing::pool(testing::pool_spec("delegated", &["2001:db8::/48"]));
        let lease = |address: &str| {
            let key = testing::key_of(address);
            Arc::new(Lease {
                length: 64,
                ..testing::lease(key, Some(pool.id), None)
            })
        };
        let preview = PoolPreview {
            before: None,
            after: PoolSize {
                listed: 0,
                excluded: 0,
                reserved: 0,
                assignable: 0,
            },
            leaving: vec![lease("2001:db8:0:3::"), lease("2001:db8:0:5::")],
            next: None,
            overlaps: Vec::new(),
        };
        assert_eq!(
            leaving(&pool, &preview),
            "/ui/leases?pool=delegated&within=2001:db8:0:3::-2001:db8:0:5:ffff:ffff:ffff:ffff"
        );
    }
}
