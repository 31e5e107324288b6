//! Saying that the network of a pool and another are two.

use std::sync::Arc;

use axum::extract::State;
use fipd_core::Request;
use fipd_web_ui::links;

use super::{
    page::{Answered, go_to},
    pool::find,
};
use crate::api::ui::session_extract::{Place, Posted};
use crate::api::{Api, convert, problem::Problem};

pub async fn separate(
    State(api): State<Arc<Api>>,
    Place(id): Place<String>,
    posted: Posted,
) -> Answered {
    let Posted { visitor, fields } = posted;
    visitor.must_administer()?;
    let pool = find(&api, &visitor, &id)?;
    let name = fields.get("network").to_owned();
    let other = api.ipam.read(|ledger| {
        let network = convert::network(ledger, &name)?;
        Ok::<_, Problem>(network.id)
    });
    let done = match other {
        Ok(other) => {
            let request = Request::Separate {
                networks: (pool.spec.network, other),
                apart: true,
                actor: visitor.actor(),
            };
            api.ipam.submit(request).await.map_err(Problem::from)
        }
        Err(problem) => Err(problem),
    };
    let text = match &done {
        Ok(_) => format!("The networks of {} and {name} are two.", pool.spec.name),
        Err(problem) => problem.detail.to_string(),
    };
    visitor.tell(done.is_ok(), text, None);
    Ok(go_to(&links::pool(pool.id.0)))
}
