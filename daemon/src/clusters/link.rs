//! One way to a cluster: a kubeconfig, the client made from it and a probe that asks again and again which
//! cluster answers.
//!
//! Each link is a task of its own and tells the registry what it sees; one that hangs delays nobody.

use std::{path::PathBuf, sync::Arc, time::Duration};

use fipd_core::{ClusterId, Text};
use kube::Client;
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    connect,
    files::{self, Stamps},
    identity::{
        Reached, Seen, Shown,
        secret::{self as identity_secret, SecretOrder, SecretWrite},
    },
    kubeconfig::{self, Allow, KubeconfigRefused, Loaded, Trust},
    memory::Memory,
};
use crate::{
    backoff::{Backoff, jittered},
    config::Source,
    foreign_file,
};

/// Between two probes of a cluster that answers.
const PROBE: Duration = Duration::from_secs(15);
/// Before a refused kubeconfig without a file to watch is looked at again.
const REFUSED: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Before a right that was missing is tried again.
const RIGHTS: Duration = Duration::from_secs(300);

/// What a link is made from; a change makes a new one.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct LinkSpec {
    pub source: Source,
    pub insecure: bool,
    /// Where the Secret is that tells the cluster from its clones.
    pub namespace: Text,
}

/// What a link saw.
pub(super) enum LinkNews {
    Refused(String),
    /// No cluster answers; tried again.
    Lost(String),
    Up(Box<Up>),
}

/// A cluster that answers.
#[derive(Clone)]
pub(super) struct Up {
    /// The UID it shows.
    pub id: ClusterId,
    pub shown: Shown,
    pub client: Client,
    /// What its answers are charged to.
    pub memory: Memory,
    pub server: Text,
    /// Grows with each client that was built.
    pub generation: u64,
}

pub(super) struct Link<F> {
    pub spec: LinkSpec,
    pub trust: Trust,
    pub tell: F,
    /// Somebody wants its files to be looked at now.
    pub look: Arc<Notify>,
    /// What to do with the Secret; the cluster is asked again after each.
    pub orders: mpsc::UnboundedReceiver<(SecretOrder, Reached)>,
    pub generation: u64,
}

impl<F: Fn(LinkNews) + Send + Sync> Link<F> {
    /// Until cancelled.
    pub async fn run(mut self, cancel: CancellationToken) {
        cancel.run_until_cancelled(self.keep()).await;
    }

    async fn keep(&mut self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let own: Vec<PathBuf> = match &self.spec.source {
                Source::File { path, .. } => vec![path.clone()],
                Source::InCluster | Source::Text { .. } => Vec::new(),
            };
            let stamps = Stamps::look(&own).await;
            match self.load().await {
                Err(refused) => {
                    (self.tell)(LinkNews::Refused(refused.to_string()));
                    self.changed(&own, &stamps, REFUSED).await;
                }
                Ok(loaded) => {
                    let mut files = own.clone();
                    files.extend(loaded.files.iter().cloned());
                    // The kubeconfig may have changed while it was read: its first stamp counts.
                    let seen = if Stamps::look(&own).await == stamps {
                        Stamps::look(&files).await
                    } else {
                        Stamps::default()
                    };
                    self.connected(loaded, &files, &seen, &mut backoff).await;
                }
            }
        }
    }

    async fn load(&self) -> Result<Loaded, KubeconfigRefused> {
        let insecure = self.spec.insecure;
        match &self.spec.source {
            Source::InCluster => kubeconfig::in_cluster(),
            Source::Text { origin, text } => {
                kubeconfig::accept(&text.0, None, origin, None, Allow::no_code(insecure)).await
            }
            Source::File { path, context } => {
                let (file, trust) = (path.clone(), self.trust.clone());
                let read = move || Ok(kubeconfig::read_file(&file, &trust));
                let read = foreign_file::run(path, read).await;
                let unreadable = |error| KubeconfigRefused::unreadable(path, &error);
                let (text, code) = read.map_err(unreadable)??;
                let origin = path.display().to_string();
                let (context, allow) = (context.as_deref(), Allow { code, insecure });
                kubeconfig::accept(&text, context, &origin, path.parent(), allow).await
            }
        }
    }

    /// Probes until the files change.
    async fn connected(
        &mut self,
        loaded: Loaded,
        files: &[PathBuf],
        seen: &Stamps,
        backoff: &mut Backoff,
    ) {
        let server: Text = loaded.config.cluster_url.to_string().into();
        self.generation += 1;
        let ca = connect::ca_of(&loaded.config).await;
        let memory = Memory::default();
        let client = connect::client(loaded.config, &self.trust.home, memory.clone()).await;
        let client = match client {
            Ok(client) => client,
            Err(err) => {
                (self.tell)(LinkNews::Lost(err.to_string()));
                self.changed(files, seen, backoff.pause()).await;
                return;
            }
        };
        // Those were about another client.
        while self.orders.try_recv().is_ok() {}
        let mut refused: Option<Instant> = None;
        loop {
            let pause = match self.probe(&client).await {
                Ok((id, (secret, reached), begun)) => {
                    backoff.reset();
                    let read_only = refused.is_some_and(|at| at.elapsed() < RIGHTS);
                    let shown = Shown {
                        secret,
                        reached,
                        ca: ca.clone(),
                        read_only,
                        begun,
                    };
                    (self.tell)(LinkNews::Up(Box::new(Up {
                        id,
                        shown,
                        client: client.clone(),
                        memory: memory.clone(),
                        server: server.clone(),
                        generation: self.generation,
                    })));
                    jittered(PROBE)
                }
                Err(err) => {
                    (self.tell)(LinkNews::Lost(format!("{server}: {err}")));
                    backoff.pause()
                }
            };
            match self.changed_or_ordered(files, seen, pause).await {
                Wake::Changed => return,
                Wake::Probe => {}
                Wake::Order(order, reached) => {
                    // One probe answers all that wait for one.
                    let mut next = Some((order, reached));
                    while let Some((order, reached)) = next {
                        let written = self.carry_out(&client, &server, &order, reached).await;
                        refused = written.map_or(refused, |written| {
                            matches!(written, SecretWrite::Refused(_)).then(Instant::now)
                        });
                        next = self.orders.try_recv().ok();
                    }
                }
            }
        }
    }

    /// Which cluster answers, with its Secret and when the read of that began.
    async fn probe(
        &self,
        client: &Client,
    ) -> Result<(ClusterId, (Seen, Option<Reached>), Instant), connect::ConnectError> {
        let id = connect::identity(client).await?;
        let begun = Instant::now();
        let secret = identity_secret::read(client, &self.spec.namespace).await?;
        Ok((id, secret, begun))
    }

    /// `None`: only a read was wanted, or it is not known how the write ended.
    async fn carry_out(
        &self,
        client: &Client,
        server: &str,
        order: &SecretOrder,
        reached: Reached,
    ) -> Option<SecretWrite> {
        let namespace = &self.spec.namespace;
        if let SecretOrder::Look = order {
            return None;
        }
        match identity_secret::write(client, namespace, order, reached).await {
            Ok(written) => {
                if let SecretWrite::Refused(why) = &written {
                    tracing::warn!(server, %namespace, "fipd may not keep its Secret there: {why}");
                }
                Some(written)
            }
            Err(error) => {
                tracing::warn!(server, %namespace, "the Secret is not known to be written: {error}");
                None
            }
        }
    }

    /// Waits as [`Self::changed`] does, or for an order.
    async fn changed_or_ordered(
        &mut self,
        files: &[PathBuf],
        seen: &Stamps,
        most: Duration,
    ) -> Wake {
        let look = Arc::clone(&self.look);
        tokio::select! {
            changed = files::changed(files, seen, most) => Wake::of(changed),
            () = look.notified() => Wake::of(files::changed(files, seen, Duration::ZERO).await),
            Some((order, reached)) = self.orders.recv() => Wake::Order(order, reached),
        }
    }

    /// Waits as [`files::changed`] does, but not where somebody wants to know now.
    async fn changed(&self, files: &[PathBuf], seen: &Stamps, most: Duration) -> bool {
        tokio::select! {
            changed = files::changed(files, seen, most) => changed,
            () = self.look.notified() => files::changed(files, seen, Duration::ZERO).await,
        }
    }
}

/// Why a link goes on.
enum Wake {
    Changed,
    Probe,
    Order(SecretOrder, Reached),
}

impl Wake {
    fn of(changed: bool) -> Self {
        if changed { Self::Changed } else { Self::Probe }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{sync::mpsc, time::Instant};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn files_are_looked_at_without_a_wait_where_somebody_wants_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, "one").unwrap();
        let (tell, mut told) = mpsc::unbounded_channel();
        let look = Arc::new(Notify::new());
        let link = Link {
            spec: LinkSpec {
                source: Source::File {
                    path: path.clone(),
                    context: None,
                },
                insecure: false,
                namespace: "kube-system".into(),
            },
            trust: Trust::default(),
            tell: move |news| drop(tell.send(news)),
            look: Arc::clone(&look),
            orders: mpsc::unbounded_channel().1,
            generation: 0,
        };
        let cancel = CancellationToken::new();
        let running = tokio::spawn(link.run(cancel.clone()));
        assert!(matches!(told.recv().await, Some(LinkNews::Refused(_))));
        // The clock goes on once it waits for its next look.
        tokio::time::sleep(Duration::from_millis(10)).await;
        let began = Instant::now();
        std::fs::write(&path, "another").unwrap();
        look.notify_one();
        assert!(matches!(told.recv().await, Some(LinkNews::Refused(_))));
        assert_eq!(began.elapsed(), Duration::ZERO);
        cancel.cancel();
        running.await.unwrap();
    }
}
