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
    /// Tenants may have more than their quotas then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// `jsonl` (one object a line) or `csv` (with a header line); `jsonl` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}

impl ImportQuery {
    /// The largest file, in bytes: an export of 100,000 leases fits.
    pub const MAX_BYTES: usize = 128 * 1024 * 1024;
    /// What is taken at once, for people.
    pub const MOST: &str = "an import takes up to 128 MiB and 200,000 rows; split the file, with networks and pools before what is in them";
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
    /// Of the file, from 1: where the row begins.
    #[serde(default)]
    pub line: usize,
    pub what: String,
    /// Who holds the address by this row, as it is written there; the first one of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
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
