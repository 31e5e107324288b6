//! Stand-ins for programs of the original family that run inside a guest cluster. The testbed's clusters have no kubelet, so
//! the charts that fipd installs there start no pod; what these programs would say to fipd is said here.

mod client;
mod controller;
mod definition;
mod objects;

pub use client::FipClient;
pub use controller::{LbController, Served};
pub use definition::{definition, restore};
pub use objects::{cluster, pool, project, secret};
