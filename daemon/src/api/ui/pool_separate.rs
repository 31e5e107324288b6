//! Saying that the network of a pool and another are two.

use axum::extract::State;
use fipd_web_ui::links;

use super::{
    page::{Answered, go_to},
    pool::find,
    session_extract::{PathParam, SubmittedForm},
};
use crate::api::{convert::network_name, extract::Path, rest::separate as rest};
use crate::ipam::Ipam;

pub async fn separate(
    State(ipam): State<Ipam>,
    PathParam(id): PathParam<String>,
    posted: SubmittedForm,
) -> Answered {
    let SubmittedForm { visitor, fields } = posted;
    let pool = find(&ipam, &visitor, &id)?;
    let name = fields.get("network").to_owned();
    let network = ipam.read(|ledger| network_name(ledger, pool.spec.network));
    let networks = Path((network, name.clone()));
    let done = rest::separate(State(ipam.clone()), visitor.caller(), networks).await;
    let text = match &done {
        Ok(_) => format!("The networks of {} and {name} are two.", pool.spec.name),
        Err(problem) => problem.detail.to_string(),
    };
    visitor.tell(done.is_ok(), text, None);
    Ok(go_to(&links::pool(pool.id.0)))
}
