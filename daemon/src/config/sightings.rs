//! What becomes of addresses that other load balancers use.

use std::collections::BTreeSet;

use fipd_core::System;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ClusterSettings;

/// What becomes of addresses of fipd's pools that Services of other load balancers show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SightingMode {
    /// A free address is kept for the Service, a held one makes it a contender.
    #[default]
    Hold,
    /// They are only shown.
    Report,
    /// Nobody looks.
    Off,
}

impl ClusterSettings {
    /// What becomes of sightings where these systems are on: without one that holds leases nobody looks.
    pub fn sightings(&self, systems: &BTreeSet<System>) -> SightingMode {
        match systems.iter().any(|system| *system != System::ip_rule()) {
            true => self.sightings,
            false => SightingMode::Off,
        }
    }
}
