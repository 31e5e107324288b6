//! What becomes of the rows of an import.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ImportQuery {
    /// Only say what would become of each row.
    #[serde(default)]
    pub dry_run: bool,
    /// `jsonl` (one object a line) or `csv` (with a header line); `jsonl` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ImportReport {
    /// All rows are as the file says. Otherwise nothing was changed.
    pub written: bool,
    pub created: usize,
    pub changed: usize,
    pub same: usize,
    pub refused: usize,
    /// In the order of the file.
    pub rows: Vec<ImportedRow>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportedRow {
    /// From 1; a header line does not count.
    pub row: usize,
    pub what: String,
    /// `create`, `change`, `same` or `error`.
    pub fate: String,
    /// Why the row is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
}
