//! One way to a cluster: a kubeconfig, the client made from it and a probe that asks again and again which
//! cluster answers.
//!
//! Each link is a task of its own and tells the registry what it sees; one that hangs delays nobody.

use std::{path::PathBuf, sync::Arc, time::Duration};

use fipd_core::{ClusterId, Text};
use kube::Client;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    backoff::{Backoff, jittered},
    connect,
    files::{self, Stamps},
    kubeconfig::{self, Allow, KubeconfigRefused, Loaded, Trust},
    memory::Memory,
};
use crate::foreign_file;

/// Between two probes of a cluster that answers.
const PROBE: Duration = Duration::from_secs(15);
/// Before a refused kubeconfig without a file to watch is looked at again.
const REFUSED: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Where a kubeconfig comes from.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Access {
    File {
        path: PathBuf,
        context: Option<String>,
    },
    InCluster,
    /// The text of a Secret; never printed.
    Text {
        origin: Text,
        text: Arc<str>,
    },
}

/// What a link is made from; a change makes a new one.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct LinkSpec {
    pub access: Access,
    pub insecure: bool,
}

/// What a link saw.
pub(super) enum News {
    Refused(String),
    /// No cluster answers; tried again.
    Lost(String),
    Up(Up),
}

/// A cluster that answers.
#[derive(Clone)]
pub(super) struct Up {
    pub id: ClusterId,
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
    pub generation: u64,
}

impl<F: Fn(News) + Send + Sync> Link<F> {
    /// Until cancelled.
    pub async fn run(mut self, cancel: CancellationToken) {
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.keep() => {}
        }
    }

    async fn keep(&mut self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let own: Vec<PathBuf> = match &self.spec.access {
                Access::File { path, .. } => vec![path.clone()],
                Access::InCluster | Access::Text { .. } => Vec::new(),
            };
            let stamps = Stamps::look(&own).await;
            match self.load().await {
                Err(refused) => {
                    (self.tell)(News::Refused(refused.to_string()));
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
        match &self.spec.access {
            Access::InCluster => kubeconfig::in_cluster(),
            Access::Text { origin, text } => {
                kubeconfig::accept(
                    text,
                    None,
                    origin,
                    None,
                    Allow {
                        code: false,
                        insecure,
                    },
                )
                .await
            }
            Access::File { path, context } => {
                let (file, trust) = (path.clone(), self.trust.clone());
                let read = move || Ok(kubeconfig::read_file(&file, &trust));
                let read = foreign_file::run(path, read).await;
                let (text, code) = read.map_err(|source| KubeconfigRefused::Unreadable {
                    path: path.clone(),
                    source,
                })??;
                let origin = path.display().to_string();
                kubeconfig::accept(
                    &text,
                    context.as_deref(),
                    &origin,
                    path.parent(),
                    Allow { code, insecure },
                )
                .await
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
        let memory = Memory::default();
        let client = connect::client(loaded.config, &self.trust.home, memory.clone()).await;
        let client = match client {
            Ok(client) => client,
            Err(err) => {
                (self.tell)(News::Lost(err.to_string()));
                self.changed(files, seen, backoff.pause()).await;
                return;
            }
        };
        loop {
            let pause = match connect::identity(&client).await {
                Ok(id) => {
                    backoff.reset();
                    (self.tell)(News::Up(Up {
                        id,
                        client: client.clone(),
                        memory: memory.clone(),
                        server: server.clone(),
                        generation: self.generation,
                    }));
                    jittered(PROBE)
                }
                Err(err) => {
                    (self.tell)(News::Lost(format!("{server}: {err}")));
                    backoff.pause()
                }
            };
            if self.changed(files, seen, pause).await {
                return;
            }
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
                access: Access::File {
                    path: path.clone(),
                    context: None,
                },
                insecure: false,
            },
            trust: Trust::default(),
            tell: move |news| drop(tell.send(news)),
            look: Arc::clone(&look),
            generation: 0,
        };
        let cancel = CancellationToken::new();
        let running = tokio::spawn(link.run(cancel.clone()));
        assert!(matches!(told.recv().await, Some(News::Refused(_))));
        // The clock goes on once it waits for its next look.
        tokio::time::sleep(Duration::from_millis(10)).await;
        let began = Instant::now();
        std::fs::write(&path, "another").unwrap();
        look.notify_one();
        assert!(matches!(told.recv().await, Some(News::Refused(_))));
        assert_eq!(began.elapsed(), Duration::ZERO);
        cancel.cancel();
        running.await.unwrap();
    }
}
