//! What is exported.

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ExportQuery {
    /// `leases`, `pools`, `networks`, `separations`, `quotas` or `audit`; `leases` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// `jsonl` (one object a line) or `csv` (with a header line); `jsonl` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}
