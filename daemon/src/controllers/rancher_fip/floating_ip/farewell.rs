//! The end of a FloatingIP.

use fipd_core::{Holder, Release, ReleaseScope, Request, Text};

use super::{FloatingIps, target};
use crate::controllers::{Trouble, objects::Key, queue::Next, rancher_fip::names::FINALIZER};

impl FloatingIps {
    /// The object is being deleted: its address is free before its finalizer goes.
    pub(super) async fn let_go(
        &self,
        key: &Key,
        uid: &Text,
        finalizers: &[String],
    ) -> Result<Next, Trouble> {
        self.wakes.wait(key, None);
        if !finalizers.iter().any(|one| one == FINALIZER) {
            return Ok(Next::Done);
        }
        // A lease handed over before the object was seen names no instance.
        for instance in [uid, &Text::from("")] {
            self.release(self.holder(key, instance), "deleted").await?;
        }
        self.data
            .remote
            .drop_finalizer(&target(key), uid, finalizers, FINALIZER)
            .await?;
        Ok(Next::Done)
    }

    pub(super) async fn release(&self, holder: Holder, reason: &str) -> Result<(), Trouble> {
        let scope = ReleaseScope::Holder(holder);
        let request = Request::Release(Release {
            scope,
            actor: self.site.actor(),
            reason: reason.into(),
        });
        self.site.ipam.submit(request).await?;
        Ok(())
    }
}
