//! Reading the configuration again.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReloadView {
    /// Parts of the configuration that are in force as they are now, and were not before.
    pub applied: Vec<String>,
    /// Parts that are in force as they were at the start, until the next one.
    pub needs_restart: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReloadStanding {
    /// Why the file as it is now is not used; null while it is.
    pub failed: Option<String>,
    /// Parts that are in force as they were at the start, until the next one.
    pub needs_restart: Vec<String>,
}
