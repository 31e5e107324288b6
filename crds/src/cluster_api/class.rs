//! Classes of clusters, read only.

use serde::{Deserialize, Serialize};

use super::names::CLUSTER_GROUP;
use super::object::object;
use crate::lenient::{self, is_default};

object! {
    /// A template for clusters.
    ClusterClass: CLUSTER_GROUP, "clusterclasses", NamespaceResourceScope,
    "super::object::cluster_version", ClusterClassSpec, ClusterClassStatus
}

impl ClusterClass {
    /// Whether clusters of the class may set the variable: the class defines it, or an extension does.
    #[must_use]
    pub fn declares(&self, variable: &str) -> bool {
        let status = self.status.as_ref();
        let found = status.map_or(&[][..], |status| &status.variables);
        let inline = self.spec.variables.iter().map(|one| &one.name);
        let mut names = inline.chain(found.iter().map(|one| &one.name));
        names.any(|name| name == variable)
    }
}

/// What fipd reads of a class.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterClassSpec {
    /// Variables that the class defines itself.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub variables: Vec<ClassVariable>,
}

/// A variable that a class defines itself.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassVariable {
    /// Name.
    #[serde(deserialize_with = "lenient::any")]
    pub name: String,
}

/// What the topology controller found.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterClassStatus {
    /// All variables, those of extensions included.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub variables: Vec<ClassVariableStatus>,
}

/// A variable and who defines it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassVariableStatus {
    /// Name.
    #[serde(deserialize_with = "lenient::any")]
    pub name: String,
    /// Its definitions.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub definitions: Vec<VariableDefinition>,
}

/// One definition of a variable.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VariableDefinition {
    /// `inline` for the class itself, else the name of a patch.
    #[serde(deserialize_with = "lenient::any")]
    pub from: String,
}
