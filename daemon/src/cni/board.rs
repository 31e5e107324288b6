//! How plugins of this host fare, for whoever shows it or counts it.

use std::{sync::Arc, time::Duration};

use fipd_cni::{CniError, Reply, Verb};
use fipd_core::Timestamp;
use parking_lot::Mutex;

use crate::{clock, metrics::cni};

/// The most characters of a plugin's version.
const VERSION: usize = 32;

/// See the module; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct CniBoard(Arc<Mutex<CniHealth>>);

/// What is known since fipd started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CniHealth {
    /// Whether plugins are served here.
    pub serves: bool,
    /// Version of the plugin that asked last.
    pub plugin: Option<String>,
    /// Attachments that the journal has: all of pods, and others that use something of the host.
    pub attachments: usize,
    /// VLANs, promiscuous masters and routes that attachments use.
    pub kept: usize,
    /// Deletions that were done out of the spool.
    pub replayed: u64,
    /// Questions that were answered, and calls that were refused or failed, by fipd or in the plugin.
    pub answered: u64,
    pub refused: u64,
    pub last_error: Option<CniFailure>,
    pub last_gc: Option<Timestamp>,
}

/// A call that was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniFailure {
    pub at: Timestamp,
    pub verb: Verb,
    /// Of the specification, or fipd's own.
    pub code: u32,
    pub message: String,
}

impl CniBoard {
    pub fn health(&self) -> CniHealth {
        self.0.lock().clone()
    }

    /// Plugins are served here from now on.
    pub fn serves(&self) {
        self.0.lock().serves = true;
    }

    pub fn show_host(&self, attachments: usize, kept: usize) {
        let mut health = self.0.lock();
        (health.attachments, health.kept) = (attachments, kept);
        cni::show_host(attachments, kept);
    }

    /// A plugin of this version asks; empty: an early one, which does not say.
    pub fn asked_by(&self, version: &str) {
        let shown = version.chars().take(VERSION).collect::<String>();
        self.0.lock().plugin = Some(shown).filter(|version| !version.is_empty());
    }

    /// A deletion of the spool was done.
    pub fn replayed(&self) {
        self.0.lock().replayed += 1;
        cni::replayed();
    }

    /// A call failed in the plugin.
    pub fn failed(&self, verb: Verb, error: &CniError) {
        let mut health = self.0.lock();
        health.refused += 1;
        health.last_error = Some(CniFailure {
            at: clock::now(),
            verb,
            code: error.code,
            message: error.to_string(),
        });
        cni::refused(verb, error.code);
    }

    /// Notes a question and what was answered.
    pub fn note(&self, verb: Verb, reply: &Reply, took: Duration) {
        if let Reply::Error(error) = reply {
            return self.failed(verb, error);
        }
        let mut health = self.0.lock();
        health.answered += 1;
        if verb == Verb::Gc {
            health.last_gc = Some(clock::now());
        }
        cni::answered(verb, took);
    }
}
