//! The write of a finalizer that goes on beside other steps.

use futures::{
    FutureExt as _,
    future::{BoxFuture, Either, ready, select},
};

use crate::controller::Reconciled;

/// What the object is after the write.
pub type Marking<'a, V> = BoxFuture<'a, Reconciled<Option<V>>>;

/// The write, which goes on or is done; `Err`: it has failed, and what it was to protect is not made.
pub fn not_failed<V: Send + 'static>(mut marking: Marking<'_, V>) -> Reconciled<Marking<'_, V>> {
    match (&mut marking).now_or_never() {
        Some(marked) => Ok(ready(Ok(marked?)).boxed()),
        None => Ok(marking),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::ReconcileError;

    #[tokio::test]
    async fn a_write_that_failed_is_known_before_anything_is_made() {
        let failed: Marking<'_, u8> = ready(Err(ReconcileError::ChangedHands)).boxed();
        assert!(not_failed(failed).is_err());
        let slow: Marking<'_, u8> = async {
            tokio::task::yield_now().await;
            Ok(Some(2))
        }
        .boxed();
        for (marking, wanted) in [(ready(Ok(Some(1))).boxed(), 1), (slow, 2)] {
            let marking = not_failed(marking).expect("it has not failed");
            assert_eq!(marking.await.expect("no failure"), Some(wanted));
        }
    }
}
