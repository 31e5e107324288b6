//! Classes of clusters, read only.

use serde::{Deserialize, Serialize};
use serde_json::Value;

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

    /// Whether a patch in the class reads the variable. Patches of extensions are not seen.
    #[must_use]
    pub fn reads(&self, variable: &str) -> bool {
        let field = format!(".{variable}");
        let is_end = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric());
        let in_template = |text: &str| {
            let mut found = text.match_indices(&field);
            found.any(|(at, field)| text.get(at + field.len()..).is_some_and(is_end))
        };
        self.any_expression(&|key, text| match key {
            "variable" => text.strip_prefix(variable).is_some_and(is_end),
            _ => in_template(text),
        })
    }

    /// Whether a template of a patch in the class names this annotation.
    #[must_use]
    pub fn reads_annotation(&self, annotation: &str) -> bool {
        self.any_expression(&|_, text| text.contains(annotation))
    }

    /// Whether the test holds for the name and text of any field of the patches that is evaluated for a cluster.
    fn any_expression(&self, test: &dyn Fn(&str, &str) -> bool) -> bool {
        self.spec.patches.iter().any(|patch| any_in(patch, test))
    }
}

fn any_in(value: &Value, test: &dyn Fn(&str, &str) -> bool) -> bool {
    match value {
        Value::Array(all) => all.iter().any(|one| any_in(one, test)),
        Value::Object(fields) => fields.iter().any(|(key, value)| match value.as_str() {
            Some(text) => {
                ["enabledIf", "template", "variable"].contains(&&**key) && test(key, text)
            }
            None => any_in(value, test),
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// What fipd reads of a class.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterClassSpec {
    /// Variables that the class defines itself.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub variables: Vec<ClassVariable>,
    /// Patches, of any shape.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub patches: Vec<Value>,
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
