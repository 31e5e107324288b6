//! The CNI side of fipd: the spec's wire types and the answer to each verb.
//!
//! Source of names and numbers: CNI specification 1.1.0, sections 2 to 5.
//! This crate decides no address. Pod networks are served by the daemon; while it serves none, `STATUS` says
//! so, `ADD` and `CHECK` are refused in the spec's form, and `DEL` and `GC` have nothing to undo.
#![forbid(unsafe_code)]

mod error;
mod verb;
mod version;

pub use error::{CniError, Code};
pub use verb::{Verb, answer};
pub use version::{SUPPORTED, VersionInfo};
