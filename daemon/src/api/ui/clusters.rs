//! The clusters.

use std::sync::Arc;

use axum::extract::State;
use fipd_web_ui::{ClusterRow, ClustersPage, Health, Nav};

use super::{
    page::{Answered, page},
    views,
    visit::Visitor,
};
use crate::{
    api::Api,
    clusters::{ClusterState, ClusterView},
};

pub async fn show(State(api): State<Arc<Api>>, visitor: Visitor) -> Answered {
    Ok(page(&ClustersPage {
        shell: visitor.shell(Nav::Clusters),
        clusters: rows(&api),
    }))
}

/// All clusters, by name.
pub fn rows(api: &Api) -> Vec<ClusterRow> {
    api.clusters.views().iter().map(row).collect()
}

fn row(view: &ClusterView) -> ClusterRow {
    ClusterRow {
        name: view.name.to_string(),
        id: view
            .id
            .as_ref()
            .map_or_else(String::new, ToString::to_string),
        health: health(view.state),
        state: view.state.as_str().to_owned(),
        since: Some(views::moment(view.since)),
        last_error: view.last_error.as_deref().unwrap_or_default().to_owned(),
        server: view.server.as_deref().unwrap_or_default().to_owned(),
        discovered: view.discovered,
        systems: view.systems.iter().map(ToString::to_string).collect(),
        leases: view.leases as u128,
        held_back: view.held_back.as_ref().map_or_else(String::new, |held| {
            format!(
                "{} leases of {} (at most {} go by themselves)",
                held.leases, held.system, held.limit
            )
        }),
    }
}

fn health(state: ClusterState) -> Health {
    match state {
        ClusterState::Ready | ClusterState::Joined => Health::Good,
        ClusterState::Connecting | ClusterState::Stopped => Health::Busy,
        ClusterState::Degraded | ClusterState::Refused | ClusterState::IdentityConflict => {
            Health::Bad
        }
    }
}
