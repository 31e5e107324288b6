//! The write of a finalizer that goes on beside other steps.

use futures::{
    FutureExt as _,
    future::{BoxFuture, Either, ready, select},
};

use crate::controller::Reconciled;

/// What the object is after the write.
pub type Marking<'a, V> = BoxFuture<'a, Reconciled<Option<V>>>;

/// Asks the ledger while the finalizer is written, which may go on after that.
pub async fn beside<V: Send + 'static, T: Send>(
    marking: &mut Option<Marking<'_, V>>,
    ask: impl Future<Output = T> + Send,
) -> T {
    let Some(mark) = marking.take() else {
        return ask.await;
    };
    let ask = async {
        // The write goes out before the wait for the disk, which may keep the thread.
        tokio::task::yield_now().await;
        ask.await
    };
    match select(mark, ask.boxed()).await {
        Either::Left((marked, ask)) => {
            *marking = Some(ready(marked).boxed());
            ask.await
        }
        Either::Right((asked, mark)) => {
            *marking = Some(mark);
            asked
        }
    }
}
