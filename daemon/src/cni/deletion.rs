//! Deletes attachments: as a runtime asks now, or asked while fipd was away.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use fipd_cni::{Ask, MOST_ADDRESSES, NetConf, spool};

use super::{
    question::PluginQuestion, record::AttachmentKey, refusal::CallRefusal, service::CniService,
};

/// How long a deletion of the spool is tried before other calls go on without it.
const TRIED_FOR: Duration = Duration::from_secs(60);

/// How long the spool has not been done.
#[derive(Default)]
pub(super) struct ReplayTries {
    /// Since the first failure that no replay without one has followed.
    failing_since: Option<Instant>,
}

impl ReplayTries {
    /// An entry fails: whether calls have waited for the spool for long enough by now. It is one time for all entries, or so many that
    /// fail would keep calls waiting for as many minutes.
    fn have_failed_long(&mut self, now: Instant) -> bool {
        let since = *self.failing_since.get_or_insert(now);
        now.saturating_duration_since(since) >= TRIED_FOR
    }

    /// All of the spool is done or deferred.
    fn end(&mut self) {
        self.failing_since = None;
    }
}

impl CniService {
    /// What a runtime asks. Its turn is the caller's.
    pub(super) async fn delete_asked(
        &self,
        question: &PluginQuestion<'_>,
    ) -> Result<(), CallRefusal> {
        if !question.conf.is_standalone() {
            self.unroute_unknown(question).await?;
        }
        self.delete(&question.key).await?;
        self.forget_deferred(&question.key).await
    }

    /// The container is added again, or its deletion is done.
    pub(super) async fn forget_deferred(&self, key: &AttachmentKey) -> Result<(), CallRefusal> {
        let key = key.clone();
        self.on_host(move |host| host.forget_deferred(&key)).await
    }

    /// The original's plugin routes to its pods without a record of it, and takes the routes away at `DEL`; of fipd's own a lost
    /// journal has no record. Which addresses the interface had, the plugin says.
    async fn unroute_unknown(&self, question: &PluginQuestion<'_>) -> Result<(), CallRefusal> {
        let addresses = question.ask.addresses.iter().take(MOST_ADDRESSES);
        let addresses: Vec<_> = addresses.copied().collect();
        if addresses.is_empty() || self.host.lock().await.record(&question.key).is_some() {
            return Ok(());
        }
        self.on_host(move |host| host.unroute_unknown(&addresses))
            .await
    }

    /// Takes away what an attachment has. The address of a pod goes with the pod.
    pub(super) async fn delete(&self, key: &AttachmentKey) -> Result<(), CallRefusal> {
        let keys = BTreeSet::from([key.clone()]);
        self.on_host(move |host| host.release(&keys)).await?;
        match &self.leases {
            Some(leases) => leases.release(key, "CNI DEL").await,
            None => Ok(()),
        }
    }

    /// The same once no call is about the attachment.
    pub(super) async fn delete_in_turn(&self, key: &AttachmentKey) -> Result<(), CallRefusal> {
        let _turn = self.turns.wait(key).await;
        self.delete(key).await
    }

    /// Does what the spool has, in its order.
    pub async fn replay(&self) -> Result<(), CallRefusal> {
        let _alone = self.replaying.lock().await;
        loop {
            let after = self.host.lock().await.replayed();
            let spool = self.spool.clone();
            let read = tokio::task::spawn_blocking(move || spool::entries_after(&spool, after));
            let read = read
                .await
                .map_err(|_| CallRefusal::later("fipd is stopping; ask again"))?;
            let entries = read.map_err(|error| {
                let spool = self.spool.display();
                CallRefusal::later(format!(
                    "the spool of deletions cannot be read: {spool}: {error}"
                ))
            })?;
            if entries.is_empty() {
                self.tries.lock().end();
                return Ok(());
            }
            for (number, entry) in entries {
                self.replay_one(number, entry).await?;
            }
        }
    }

    /// What fails for so long would keep every call waiting: it goes to the journal and the sweeps, which try it again.
    ///
    /// # Errors
    /// The refusal, while the deletion is yet to be tried again first.
    fn may_defer(
        &self,
        number: u64,
        key: &AttachmentKey,
        refusal: CallRefusal,
    ) -> Result<(), CallRefusal> {
        if !self.tries.lock().have_failed_long(Instant::now()) {
            return Err(refusal);
        }
        let (network, container, error) = (&key.network, &key.container_id, refusal.why);
        tracing::warn!(
            number,
            network,
            container,
            error,
            "a CNI deletion of the spool cannot be done; it is tried again every minute, and other calls go on"
        );
        Ok(())
    }

    /// Tries again what the spool could not have done.
    pub(super) async fn delete_deferred(&self) {
        let keys: Vec<_> = self.host.lock().await.deferred().keys().cloned().collect();
        for key in keys {
            let _turn = self.turns.wait(&key).await;
            let ask = self.host.lock().await.deferred().get(&key).cloned();
            // Its container may have been added again.
            let Some(ask) = ask else { continue };
            let deleted = self.delete_again(&key, &ask).await;
            if deleted.is_ok() {
                self.board.replayed();
            }
            self.warn_about("a deletion of the spool", &key, deleted);
        }
    }

    async fn delete_again(&self, key: &AttachmentKey, ask: &Ask) -> Result<(), CallRefusal> {
        let Ok(conf) = NetConf::parse(ask.config.get(), ask.command) else {
            // Another version of fipd took the configuration.
            self.delete(key).await?;
            return self.forget_deferred(key).await;
        };
        let key = key.clone();
        self.delete_asked(&PluginQuestion { key, conf, ask }).await
    }

    async fn replay_one(&self, number: u64, entry: spool::Entry) -> Result<(), CallRefusal> {
        match entry {
            spool::Entry::Ask(ask) => match NetConf::parse(ask.config.get(), ask.command) {
                Ok(conf) => return self.replay_ask(number, conf, &ask).await,
                Err(error) => {
                    tracing::warn!(number, %error, "a CNI deletion of the spool makes no sense and is left out")
                }
            },
            spool::Entry::Malformed(why) => {
                tracing::warn!(
                    number,
                    why,
                    "a CNI deletion of the spool cannot be read and is left out"
                );
            }
        }
        self.note_replayed(number, None).await
    }

    async fn replay_ask(&self, number: u64, conf: NetConf, ask: &Ask) -> Result<(), CallRefusal> {
        let question = PluginQuestion::new(conf, ask);
        // Until it is noted: deferred after its container was added again, it would delete that.
        let _turn = self.turns.wait(&question.key).await;
        let deferred = match self.delete_asked(&question).await {
            Ok(()) => {
                self.board.replayed();
                None
            }
            Err(refusal) => {
                self.may_defer(number, &question.key, refusal)?;
                Some((question.key.clone(), ask.clone()))
            }
        };
        self.note_replayed(number, deferred).await
    }

    async fn note_replayed(
        &self,
        number: u64,
        deferred: Option<(AttachmentKey, Ask)>,
    ) -> Result<(), CallRefusal> {
        self.on_host(move |host| host.note_replayed(number, deferred))
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_fail_are_tried_for_a_minute_together() {
        let mut tries = ReplayTries::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!tries.have_failed_long(at(0)));
        assert!(!tries.have_failed_long(at(59)));
        for entry in 60..70 {
            assert!(tries.have_failed_long(at(entry)), "each at once");
        }
        tries.end();
        assert!(!tries.have_failed_long(at(70)));
        assert!(!tries.have_failed_long(at(129)));
        assert!(tries.have_failed_long(at(130)));
    }
}
