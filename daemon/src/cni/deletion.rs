//! Deletes attachments: as a runtime asks now, or asked while fipd was away.

use std::collections::BTreeSet;

use fipd_cni::{MOST_ADDRESSES, NetConf, spool};

use super::{
    question::PluginQuestion, record::AttachmentKey, refusal::CallRefusal, service::CniService,
};

impl CniService {
    /// What a runtime asks. Its turn is the caller's.
    pub(super) async fn delete_asked(
        &self,
        question: &PluginQuestion<'_>,
    ) -> Result<(), CallRefusal> {
        if !question.conf.is_standalone() {
            self.unroute_unknown(question).await?;
        }
        self.delete(&question.key).await
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
                return Ok(());
            }
            for (number, entry) in entries {
                self.replay_one(number, entry).await?;
            }
        }
    }

    async fn replay_one(&self, number: u64, entry: spool::Entry) -> Result<(), CallRefusal> {
        match entry {
            spool::Entry::Ask(ask) => match NetConf::parse(ask.config.get(), ask.command) {
                Ok(conf) => {
                    let question = PluginQuestion {
                        key: AttachmentKey::of(&conf, &ask),
                        conf,
                        ask: &ask,
                    };
                    let _turn = self.turns.wait(&question.key).await;
                    self.delete_asked(&question).await?;
                    self.board.replayed();
                }
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
        self.on_host(move |host| host.note_replayed(number)).await
    }
}
