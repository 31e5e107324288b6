//! Companions: for each Service of flat pods a headless one that leads to their addresses on the flat network.
//!
//! ```text
//!  Service web --selects--> flat pods --report--> addresses on the flat network
//!      |                                                     |
//!      +--owns--> Service web-flat-network <-- Endpoints, EndpointSlices (see `endpoints`)
//! ```
//!
//! A Service is looked at when it, its companion or a pod that it selects changes.

pub mod name;
pub mod observe;
pub mod plan;
mod pod_index;
pub mod watches;

use std::sync::Arc;

use tokio::task::JoinSet;

use self::{
    name::{companion_key, is_long},
    observe::FlatServiceView,
    plan::{CompanionFacts, CompanionPlan},
    watches::ServiceWatches,
};
use crate::controller::{
    Reconciled,
    client::Patch,
    context::Context,
    events::Events,
    kind::SERVICE,
    meta::Meta,
    queue::Next,
    reconcile::{self, Controller},
    site::Site,
    store::{Key, Observed},
};

/// Reason of the Event of a Service whose companion has another name than its own and the suffix.
const NAME_SHORTENED: &str = "FlatNetworkServiceNameShortened";
/// The same where a Service that is no companion has the name.
const NAME_TAKEN: &str = "FlatNetworkServiceNameTaken";

/// See the module.
pub struct CompanionController {
    context: Context<FlatServiceView>,
    watches: Arc<ServiceWatches>,
}

/// Keeps companions until the session ends.
pub fn start(
    site: &Arc<Site>,
    events: &Arc<Events>,
    watches: &Arc<ServiceWatches>,
    tasks: &mut JoinSet<()>,
) {
    let controller = CompanionController {
        context: watches.context(site, events),
        watches: Arc::clone(watches),
    };
    reconcile::work(&Arc::new(controller), tasks);
}

impl Controller for CompanionController {
    type View = FlatServiceView;

    const METRIC: &'static str = "flatservice";
    const WORKERS: usize = 4;

    fn context(&self) -> &Context<FlatServiceView> {
        &self.context
    }

    async fn completed(&self) {
        self.watches.completed().await;
    }

    async fn reconcile(&self, key: &Key, service: Option<Arc<FlatServiceView>>) -> Reconciled {
        let Some(original) = service else {
            return Ok(Next::Done);
        };
        let companion = companion_key(key);
        let found = match self.context.objects.seen(&companion) {
            None => None,
            Some(Observed::Parsed(found)) => Some(found),
            // What it is cannot be told.
            Some(Observed::Malformed(_)) => return Ok(Next::Done),
        };
        let pods = self.watches.selected(&key.namespace, &original.selector);
        let plan = plan::plan(&CompanionFacts {
            original: (key, &original),
            name: &companion.name,
            found: found.as_deref(),
            pods: &pods,
        });
        self.carry_out((key, &original), &companion, plan).await?;
        Ok(Next::Done)
    }

    /// Its companion goes with it, as it owns it.
    async fn release(&self, _: &Key, _: &Meta, _: Option<Arc<FlatServiceView>>) -> Reconciled {
        Ok(Next::Done)
    }
}

impl CompanionController {
    async fn carry_out(
        &self,
        (key, original): (&Key, &FlatServiceView),
        companion: &Key,
        plan: CompanionPlan,
    ) -> Reconciled<()> {
        let (remote, target) = (&self.context.remote, SERVICE.target(companion));
        let (name, uid) = (&companion.name, &original.meta.uid);
        match plan {
            CompanionPlan::Leave => {}
            CompanionPlan::Create(body) => {
                remote.create(&target, &body).await?;
                if is_long(key) {
                    let note = format!("its Service on the flat network is called {name}");
                    self.context.note(key, uid, NAME_SHORTENED, note);
                }
            }
            CompanionPlan::Refresh(patch) => remote.patch(&target, Patch::Merge, &patch).await?,
            CompanionPlan::Delete(uid) => remote.delete(&target, &uid).await?,
            CompanionPlan::Taken => {
                let note = format!(
                    "it gets no Service on the flat network: {name} is a Service of somebody else; rename or delete that one"
                );
                self.context.warn(key, uid, NAME_TAKEN, note);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
