//! The pool of the address book that an object is mirrored as.

use fipd_core::{ClusterId, Origin, System, Text};

/// The object that a pool mirrors.
#[derive(Clone, Copy, Debug)]
pub struct MirrorOf<'a> {
    pub cluster: &'a ClusterId,
    pub cluster_name: &'a str,
    /// `[namespace/]name`.
    pub object: &'a str,
    pub uid: &'a str,
}

impl MirrorOf<'_> {
    /// The name of the pool in the address book.
    pub fn pool_name(&self, system: &System) -> Text {
        format!("{system}/{}/{}", self.cluster_name, self.object).into()
    }

    pub fn origin(&self, system: System) -> Origin {
        Origin::Mirror {
            system,
            cluster: self.cluster.clone(),
            object: self.object.into(),
            uid: self.uid.into(),
        }
    }
}
