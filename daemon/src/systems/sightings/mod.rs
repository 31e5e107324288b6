//! What Services that fipd does not serve use of fipd's pools: kept from everybody else, and shown.
//!
//! ```text
//!  Service of another class --> address in a pool? --> core::sighting --> lease of a foreign holder, or contender
//!                                                           |
//!                                                           +--> more than the cluster may have: only shown
//! ```
//!
//! Nothing is written to these Services. A network is looked at once all that fipd serves itself is adopted there, so that
//! nobody else's use comes before that, and gives its first new lease after that. A cluster that an earlier build has
//! adopted is first shown what would be kept ([`PREVIEW`]).

mod inventory;
mod kept;
mod list;
mod observe;
mod ranges;
mod report;
mod stage;

use fipd_core::System;
use futures::future::BoxFuture;

use crate::{
    clusters::{ClusterSession, adoption},
    system::RunningSystems,
};
use inventory::ForeignInventory;

/// How long sightings of a cluster that an earlier build has adopted are only reported, in milliseconds.
pub const PREVIEW: u64 = 24 * 3_600 * 1_000;

/// Takes in what others use in a cluster until the session ends.
pub fn run(session: ClusterSession, systems: RunningSystems) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let system = System::foreign();
        let inventory = ForeignInventory::new(session.clone(), systems);
        inventory.look_out();
        let adopt = async {
            inventory.ready().await;
            let first = adoption::first(&session, &system, &inventory).await;
            if first.is_some() {
                adoption::keep(&session, &system, &inventory).await;
            }
        };
        tokio::select! {
            () = session.cancel.cancelled() => {}
            () = adopt => {}
            () = inventory.keep_open() => {}
            () = ranges::keep(&session) => {}
        }
    })
}
