//! The clusters that Rancher manages, which are guests of fipd: how they are reached, where they run, how a release of a
//! chart gets into them, and how they are doing.

mod board;
pub mod charts;
pub mod clients;
pub mod hosting;
pub mod objects;
pub mod releases;

pub use board::{
    GuestBoard, GuestView, Has, Manager, News, Phase, ReleaseView, RotateError, Rotated, Says,
    helm_name,
};
