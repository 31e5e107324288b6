//! Configurations as this build reads them.

use std::path::Path;

use super::{Config, ConfigError};
use crate::systems::SYSTEMS;

impl Config {
    /// As the daemon reads it.
    pub fn parse(text: &str, base: &Path) -> Result<Self, String> {
        Self::read(*SYSTEMS, text, base)
    }

    /// As the daemon loads it.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::load_with(*SYSTEMS, path)
    }
}
