//! One call of an attachment at a time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::record::AttachmentKey;

/// Attachments that calls are about now. A runtime asks one thing of a container after the other, but what it gave up may still
/// go on here.
#[derive(Default)]
pub struct Turns(parking_lot::Mutex<BTreeMap<AttachmentKey, Weak<Mutex<()>>>>);

impl Turns {
    /// Waits until no other call is about the attachment. The next one begins when the guard is dropped.
    pub async fn wait(&self, key: &AttachmentKey) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock();
            turns.retain(|_, turn| turn.strong_count() > 0);
            let there = turns.get(key).and_then(Weak::upgrade);
            there.unwrap_or_else(|| {
                let turn = Arc::new(Mutex::default());
                turns.insert(key.clone(), Arc::downgrade(&turn));
                turn
            })
        };
        turn.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::testing::key;

    #[tokio::test]
    async fn calls_of_one_attachment_wait_for_each_other_and_others_do_not() {
        let turns = Turns::default();
        let first = turns.wait(&key("a")).await;
        drop(turns.wait(&key("b")).await);
        let same = key("a");
        let mut second = Box::pin(turns.wait(&same));
        let soon = std::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, &mut second).await.is_err());
        drop(first);
        drop(second.await);
        drop(turns.wait(&key("a")).await);
        assert_eq!(turns.0.lock().len(), 1, "those that are over are forgotten");
    }
}
