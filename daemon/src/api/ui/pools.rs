//! The list of pools.

use std::sync::Arc;

use axum::extract::State;
use fipd_web_ui::{Nav, Pager, PoolRow, PoolsPage, links};

use super::{
    dashboard::rows,
    fields::with_query,
    page::{Answered, page},
    visit::{Query, Visitor},
};
use crate::{api::Api, ipam::Ipam};

/// Pools of one page.
const PAGE: usize = 100;

/// Pools with the text in their name, by name.
pub fn rows_named(ipam: &Ipam, text: &str, most: usize) -> Vec<PoolRow> {
    let mut pools = rows(ipam);
    pools.retain(|row| row.name.contains(text));
    pools.sort_by(|left, right| left.name.cmp(&right.name));
    pools.truncate(most);
    pools
}

pub async fn list(State(api): State<Arc<Api>>, visitor: Visitor, Query(query): Query) -> Answered {
    let (filter, after) = (query.get("filter"), query.get("after"));
    let total = api.ipam.read(|ledger| ledger.pools().count());
    let mut pools = rows_named(&api.ipam, filter, usize::MAX);
    let matching = pools.len();
    pools.retain(|row| after.is_empty() || row.name.as_str() > after);
    let more = pools.len() > PAGE;
    pools.truncate(PAGE);
    let link = |after: &str| with_query(links::POOLS, &[("filter", filter), ("after", after)]);
    let pager = Pager {
        first: (!after.is_empty()).then(|| link("")),
        next: pools.last().filter(|_| more).map(|row| link(&row.name)),
        label: if more || !after.is_empty() {
            format!("{} of {matching}", pools.len())
        } else {
            String::new()
        },
    };
    let (shell, filter) = (visitor.shell(Nav::Pools), filter.to_owned());
    Ok(page(&PoolsPage {
        shell,
        filter,
        total,
        pools,
        pager,
    }))
}
