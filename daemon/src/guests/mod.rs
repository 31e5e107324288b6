//! The clusters that Rancher manages, which are guests of fipd: how they are reached, where they run, how a release of a
//! chart gets into them, and how they are doing.
//!
//! Nothing here knows what a system wants in a guest: that comes in as parameters and by the traits of [`charts::owner`].
//! Systems share the clients of a Rancher's guests and the turns of their charts, see [`GuestBoard::links`].

pub mod access;
mod board;
pub mod charts;
pub mod clusters;
pub mod config_maps;
pub mod harvesters;
pub mod homes;
pub mod hosting;
pub mod names;
pub mod objects;
pub mod releases;
mod report;
pub mod sources;
pub mod system;
mod unready;

pub use board::{
    DetailValue, GuestBoard, GuestDetail, GuestManager, GuestPhase, GuestStatus, GuestUpdate,
    GuestView, ReleaseView, helm_name,
};
pub use system::GuestSystem;
pub use unready::{GuestUnready, Stop};
