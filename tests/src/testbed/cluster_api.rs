//! Cluster API on a control plane: its real definitions and core manager, with stand-ins for the providers.
//!
//! ```text
//!  ControlPlane ── CRDs and webhooks of core ── CoreManager
//!       └───────── CRDs of the stand-ins ────── StandInProviders
//! ```

mod classes;
mod core_manager;
mod definitions;
mod extension;
mod objects;
mod providers;

pub use classes::{CLUSTER_VIP, Class, INGRESS_VIP, SECOND_CLUSTER_VIP};
pub use core_manager::CoreManager;
pub use definitions::{Versions, definitions, install_definitions, install_example_providers};
pub use extension::{HOOKS, HookCall, RuntimeExtension};
pub use objects::{ApiVersion, ClusterApiObjects, condition};
pub use providers::{StandIn, StandInProviders, install_stand_ins};
