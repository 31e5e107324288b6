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
mod adhoc_client;
mod admin;
mod admin_requests;
pub mod adoption;
pub mod answers;
mod connect;
mod converge;
mod credentials;
mod discovery;
mod event_recorder;
mod files;
mod handle;
pub(crate) mod identity;
mod identity_conflicts;
pub(crate) mod kubeconfig;
mod leave;
pub mod lenient;
mod link;
pub mod memory;
mod offers;
mod plugin;
pub mod ranges;
mod registrations;
mod registry;
mod release_budget;
mod session;
mod sessions;
mod show;
pub mod sightings;
mod sites;
mod sweep;
mod transport;
mod view;
pub mod watch;

pub use adhoc_client::{client_of, client_of_file};
pub use admin::Upload;
pub use admin_requests::ClusterHold;
pub(crate) use connect::{explain, short};
#[cfg(test)]
pub(crate) use credentials::CredentialError;
pub use event_recorder::EventRecorder;
pub use files::WatchedFile;
pub use handle::{Clusters, ClustersError, ClustersOptions};
pub use kubeconfig::{KubeconfigRefused, Trust, check_kubeconfig};
pub use registrations::Registration;
#[cfg(test)]
pub(crate) use session::testing;
pub use session::{CallError, ClusterSession, SystemRunner};
pub use view::{
    ClusterOrigin, ClusterState, ClusterView, DiscoveryView, HeldBack, SightingView, SightingsView,
};

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
pub(crate) mod tls_server_tests;
