//! Conditions of Cluster API, old and new.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::lenient::{self, is_default};

/// A condition of either family: Cluster API's own (with a severity) or `metav1.Condition`. It writes what it read.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AnyCondition {
    /// Type of the condition.
    #[serde(rename = "type", deserialize_with = "lenient::any")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "lenient::any")]
    pub status: String,
    /// `Error`, `Warning` or `Info`; only Cluster API's own have one.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub severity: Option<String>,
    /// Generation of the object that the condition describes; only `metav1.Condition` has one.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub observed_generation: Option<i64>,
    /// Reason in one word.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub reason: Option<String>,
    /// Text for people.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub message: Option<String>,
    /// Time of the last change of `status` (RFC 3339).
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub last_transition_time: Option<String>,
}

impl AnyCondition {
    /// The condition as `metav1.Condition`; none if its time does not parse.
    #[must_use]
    pub fn to_condition(&self) -> Option<Condition> {
        let time: Timestamp = self.last_transition_time.as_deref()?.parse().ok()?;
        Some(Condition {
            type_: self.type_.clone(),
            status: self.status.clone(),
            observed_generation: self.observed_generation,
            reason: self.reason.clone().unwrap_or_default(),
            message: self.message.clone().unwrap_or_default(),
            last_transition_time: Time(time),
        })
    }
}

impl From<Condition> for AnyCondition {
    fn from(condition: Condition) -> Self {
        let time = condition.last_transition_time.0;
        Self {
            type_: condition.type_,
            status: condition.status,
            severity: None,
            observed_generation: condition.observed_generation,
            reason: Some(condition.reason),
            message: Some(condition.message),
            last_transition_time: Some(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        }
    }
}

/// `status.v1beta2` of a v1beta1 object: the conditions of the newer version.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConditionsV1Beta2 {
    /// The conditions, of the form of `metav1.Condition`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub conditions: Vec<AnyCondition>,
}

/// `status.deprecated` of a v1beta2 object.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeprecatedStatus {
    /// What v1beta1 has in `status`.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub v1beta1: Option<ConditionsV1Beta1>,
}

/// `status.deprecated.v1beta1` of a v1beta2 object: the conditions of the older version.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConditionsV1Beta1 {
    /// Cluster API's own conditions.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub conditions: Vec<AnyCondition>,
}

/// The `metav1.Condition`s of a status of either version.
pub(super) fn metav1(
    is_v1beta1: bool,
    conditions: &[AnyCondition],
    v1beta2: Option<&ConditionsV1Beta2>,
) -> Vec<Condition> {
    let conditions = if is_v1beta1 {
        v1beta2.map_or(&[][..], |newer| &newer.conditions)
    } else {
        conditions
    };
    let conditions = conditions.iter();
    conditions.filter_map(AnyCondition::to_condition).collect()
}
