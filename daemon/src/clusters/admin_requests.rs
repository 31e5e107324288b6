//! What admins ask of clusters; the registry answers one request after the other.

use std::sync::Arc;

use fipd_core::{Actor, Text};
use futures::FutureExt as _;

use super::{Clusters, ClustersError, admin::Upload, handle::Registered};

/// A cluster that one request works on; others on it are refused until this is dropped.
pub struct ClusterHold {
    registered: Arc<Registered>,
    names: Vec<Text>,
}

impl Drop for ClusterHold {
    fn drop(&mut self) {
        let mut busy = self.registered.busy.lock();
        for name in &self.names {
            busy.remove(name);
        }
    }
}

impl Clusters {
    /// Keeps other requests from adding, removing, leaving and attaching this cluster, under any of its names.
    fn hold(&self, name: &str) -> Result<ClusterHold, ClustersError> {
        let mut names = self.view(name).map_or_else(Vec::new, |view| view.names);
        names.push(name.into());
        let mut busy = self.0.busy.lock();
        if names.iter().any(|name| busy.contains(name)) {
            return Err(ClustersError::Busy(name.into()));
        }
        busy.extend(names.iter().cloned());
        let registered = Arc::clone(&self.0);
        Ok(ClusterHold { registered, names })
    }

    /// Takes a cluster in by its kubeconfig, now and after restarts. Whether it is one that was left, and stays so.
    ///
    /// # Errors
    /// What is wrong with it; somebody else is at work on the cluster.
    pub async fn add(&self, upload: Upload, actor: Actor) -> Result<bool, ClustersError> {
        let name = upload.name.clone();
        let _hold = self.hold(&name)?;
        self.ask(move |registry| registry.add(upload, actor).boxed())
            .await
    }

    /// Takes a cluster out that was added so. Its leases stay. Whether something of fipd's may be there.
    ///
    /// # Errors
    /// It is not one of those; somebody else is at work on it.
    pub async fn remove(&self, name: &str, actor: Actor) -> Result<bool, ClustersError> {
        let _hold = self.hold(name)?;
        let name = Text::from(name);
        self.ask(move |registry| async move { registry.remove(&name, actor).await }.boxed())
            .await
    }

    /// Switches the systems of a cluster on as they are configured, now and after restarts.
    ///
    /// # Errors
    /// It is not known; somebody else is at work on it.
    pub async fn attach(&self, name: &str, actor: Actor) -> Result<(), ClustersError> {
        let _hold = self.hold(name)?;
        self.switch(name, true, actor).await
    }

    /// Switches the systems of a cluster off, now and after restarts. While what this returns is held, nobody switches them on
    /// again.
    ///
    /// # Errors
    /// It is not known; somebody else is at work on it.
    pub async fn detach(&self, name: &str, actor: Actor) -> Result<ClusterHold, ClustersError> {
        let hold = self.hold(name)?;
        self.switch(name, false, actor).await?;
        Ok(hold)
    }

    async fn switch(&self, name: &str, attached: bool, actor: Actor) -> Result<(), ClustersError> {
        let name = Text::from(name);
        self.ask(move |registry| {
            async move { registry.attach(&name, attached, actor).await }.boxed()
        })
        .await
    }

    /// Notes that nothing of fipd's is in a cluster any more.
    pub async fn left(&self, name: &str, actor: Actor) -> Result<(), ClustersError> {
        let name = Text::from(name);
        self.ask(move |registry| async move { registry.left(&name, actor).await }.boxed())
            .await
    }

    /// Frees the leases of a cluster that is no longer in use. How many.
    pub async fn forget(&self, name: &str, actor: Actor) -> Result<usize, ClustersError> {
        let name = Text::from(name);
        self.ask(move |registry| async move { registry.forget(&name, actor).await }.boxed())
            .await
    }

    /// Takes an admin's word that the cluster that goes by `name` is the one that goes by `other`.
    ///
    /// # Errors
    /// It does not answer, has another UID, or shows that it is another cluster.
    pub async fn join(&self, name: &str, other: &str, actor: Actor) -> Result<(), ClustersError> {
        let (name, other) = (Text::from(name), Text::from(other));
        self.ask(move |registry| async move { registry.join(&name, &other, actor).await }.boxed())
            .await
    }

    /// Takes an admin's word that `name` leads to a clone: it becomes a cluster of its own, and is adopted as one.
    ///
    /// # Errors
    /// It does not answer, is in use, or fipd may not write its Secret there.
    pub async fn new_identity(&self, name: &str, actor: Actor) -> Result<(), ClustersError> {
        let name = Text::from(name);
        self.ask(move |registry| async move { registry.new_identity(&name, actor).await }.boxed())
            .await
    }

    /// Lets a network go without having adopted the cluster.
    pub async fn skip_adoption(
        &self,
        name: &str,
        network: &str,
        actor: Actor,
    ) -> Result<(), ClustersError> {
        let (name, network) = (Text::from(name), Text::from(network));
        self.ask(move |registry| async move { registry.skip(&name, &network, actor).await }.boxed())
            .await
    }
}
