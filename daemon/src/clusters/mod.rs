//! Clusters by identity: how each is reached, which one it is, and what runs on it.
//!
//! ```text
//!  config file ---\                 one task per kubeconfig ("link")
//!                  > sites -> links: load, connect, read identity, probe
//!  discovery -----/                    |
//!                                      v
//!                    registry: groups links by identity, records names,
//!                    pushes what networks wait for, starts one session per identity
//!                                      |
//!                                      v
//!                    session -> systems (started through `SystemRunner`)
//! ```
//!
//! A cluster is the UID of its `kube-system` namespace and the nonce of a Secret there ([`identity`]). This module decides which
//! cluster a kubeconfig leads to and when its systems run; it knows no controller and releases an address only by the
//! rule of [`absence`].

pub mod absence;
pub mod adoption;
pub mod answers;
pub(crate) mod backoff;
mod claims;
mod connect;
mod credentials;
mod discovery;
mod files;
mod given;
mod hand;
mod handle;
pub(crate) mod identity;
mod kept;
pub(crate) mod kubeconfig;
mod leave;
pub mod lenient;
mod link;
pub mod memory;
mod plugin;
pub mod ranges;
mod registry;
mod session;
mod sessions;
mod settle;
mod show;
pub mod sightings;
mod sites;
mod sweep;
mod transport;
mod view;
pub mod watch;
mod window;

pub(crate) use connect::{explain, short};
#[cfg(test)]
pub(crate) use credentials::CredentialError;
pub use files::WatchedFile;
pub use given::{NoClient, client_of, client_with};
pub use hand::Upload;
pub use handle::{Clusters, ClustersError, Hold, Options};
pub use kept::Said;
pub use kubeconfig::{KubeconfigRefused, Trust, check_kubeconfig};
#[cfg(test)]
pub(crate) use session::testing;
pub use session::{CallError, ClusterSession, SystemRunner};
pub use view::{
    ClusterState, ClusterView, DiscoveryView, Found, HeldBack, SightingView, SightingsView,
};

#[cfg(test)]
mod hostile_tests;
