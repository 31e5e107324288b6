//! The loop of a controller: from the objects of a kind and changes of the address book to one reconcile of each object.

use std::{fmt::Debug, sync::Arc};

use fipd_core::Ledger;
use kube::Resource;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::{
    Reconciled,
    context::Context,
    meta::{Meta, View},
    queue::{self, Next, Queue},
    reconcile_counts::counted,
    site::Site,
    store::{Key, Malformed, Observed},
    waiters::{self, LedgerEvent},
};
use crate::logging;

/// What brings the objects of one kind of a cluster up to date.
pub trait Controller: Send + Sync + 'static {
    type View: View;

    /// The label `controller` of `fipd_reconcile_*`.
    const METRIC: &'static str;
    /// Reconciles at once.
    const WORKERS: usize;

    fn context(&self) -> &Context<Self::View>;

    /// Queues the objects that a change of the address book concerns.
    fn affected(&self, _ledger: &Ledger, _event: &LedgerEvent<'_>) {}

    /// Waits until all is known that decides about an object.
    fn completed(&self) -> impl Future<Output = ()> + Send {
        self.context().objects.completed()
    }

    /// Brings an object up to date; `None`: there is no such object, or no longer.
    fn reconcile(
        &self,
        key: &Key,
        object: Option<Arc<Self::View>>,
    ) -> impl Future<Output = Reconciled> + Send;

    /// The object is being deleted; `object` is `None` where it does not fit its schema. One that has no finalizer of fipd
    /// is brought up to date as long as it is there.
    fn release(
        &self,
        key: &Key,
        _meta: &Meta,
        object: Option<Arc<Self::View>>,
    ) -> impl Future<Output = Reconciled> + Send {
        async move {
            match object {
                Some(object) => self.reconcile(key, Some(object)).await,
                None => Ok(Next::Done),
            }
        }
    }

    /// The object does not fit its schema, and is not being deleted.
    fn malformed(&self, key: &Key, object: &Malformed) -> impl Future<Output = Reconciled> + Send {
        self.context().warn_malformed(key, object);
        std::future::ready(Ok(Next::Done))
    }
}

/// Follows the objects, and queues what appeared, changed or went.
pub fn watch<C: Controller, K>(
    controller: &Arc<C>,
    view: impl Fn(K) -> Option<C::View> + Send + Sync + 'static,
    tasks: &mut JoinSet<()>,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let queue = Arc::clone(&controller.context().queue);
    let changed = move |key: &Key| queue.add(key.clone());
    controller.context().follow(tasks, view, changed);
}

/// Works on the keys of a queue, `width` of them at once, until the session ends. `work` is the owner's, counted for the
/// `controller`, and what it logs is the system's.
pub fn work_on<T, K, W, F>(
    site: &Site,
    controller: &'static str,
    (queue, width): (&Arc<Queue<K>>, usize),
    (owner, work): (&Arc<T>, W),
) -> impl Future<Output = ()> + Send + use<T, K, W, F>
where
    T: Send + Sync + 'static,
    K: Ord + Clone + Send + Sync + 'static,
    W: Fn(Arc<T>, K) -> F + Send + Sync + 'static,
    F: Future<Output = Next> + Send + 'static,
{
    let (owner, system) = (Arc::clone(owner), site.system.clone());
    let work = counted(&site.system, controller, move |key| {
        work(Arc::clone(&owner), key).instrument(logging::work_for(system.as_str()))
    });
    queue::run(Arc::clone(queue), width, site.cancel(), work)
}

/// Works on the queue, once the objects are known, until the session ends.
pub fn work<C: Controller>(controller: &Arc<C>, tasks: &mut JoinSet<()>) {
    let context = controller.context();
    let (cancel, waiting) = (context.site.cancel(), Arc::clone(controller));
    let (queue, step) = ((&context.queue, C::WORKERS), (controller, one::<C>));
    let working = work_on(&context.site, C::METRIC, queue, step);
    tasks.spawn(async move {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = waiting.completed() => {}
        }
        working.await;
    });
}

/// The same, and queues what changes of the address book concern.
pub fn follow_and_work<C: Controller>(controller: &Arc<C>, tasks: &mut JoinSet<()>) {
    let (site, follower) = (&controller.context().site, Arc::clone(controller));
    tasks.spawn(waiters::listen(
        site.ipam.clone(),
        site.cancel(),
        move |ledger, event| follower.affected(ledger, event),
    ));
    work(controller, tasks);
}

pub(super) async fn one<C: Controller>(controller: Arc<C>, key: Key) -> Next {
    let context = controller.context();
    let done = match context.objects.seen(&key) {
        None => {
            context.forget(&key);
            controller.reconcile(&key, None).await
        }
        Some(Observed::Malformed(object)) if object.meta.deleted.is_some() => {
            context.warn_malformed(&key, &object);
            controller.release(&key, &object.meta, None).await
        }
        Some(Observed::Malformed(object)) => controller.malformed(&key, &object).await,
        Some(Observed::Parsed(object)) => {
            let meta = object.meta();
            match meta.deleted {
                Some(_) => controller.release(&key, &meta, Some(object)).await,
                None => controller.reconcile(&key, Some(object)).await,
            }
        }
    };
    done.unwrap_or_else(|trouble| trouble.next(context.kind().kind, &key))
}

#[cfg(test)]
mod tests;
