//! The CustomResourceDefinitions as they are installed, and their YAML.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionVersion,
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::{
    fipd_io,
    floating_ip::{v1beta1, v1beta2},
    ip_rule,
};

macro_rules! manifest {
    ($name:literal) => {
        ($name, include_str!(concat!("../yaml/", $name)))
    };
}

/// The committed YAML of [`all`], in the same order: file name and text.
pub const MANIFESTS: [(&str, &str); 9] = [
    manifest!("api.operator.brtrm.dev_agents.yaml"),
    manifest!("api.operator.brtrm.dev_ipruleconfigs.yaml"),
    manifest!("api.operator.brtrm.dev_iprules.yaml"),
    manifest!("fipd.io_addressclaims.yaml"),
    manifest!("fipd.io_namespacedpools.yaml"),
    manifest!("fipd.io_pools.yaml"),
    manifest!("rancher.k8s.binbash.org_floatingippools.yaml"),
    manifest!("rancher.k8s.binbash.org_floatingipprojectquotas.yaml"),
    manifest!("rancher.k8s.binbash.org_floatingips.yaml"),
];

/// All kinds fipd installs, in a fixed order, each with all its versions.
#[must_use]
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![
        own(ip_rule::Agent::crd()),
        own(ip_rule::IPRuleConfig::crd()),
        own(ip_rule::IPRule::crd()),
        own(fipd_io::AddressClaim::crd()),
        own(fipd_io::NamespacedPool::crd()),
        own(fipd_io::Pool::crd()),
        family(
            v1beta2::FloatingIPPool::crd(),
            v1beta2::FloatingIPPool::crd(),
        ),
        family(
            v1beta2::FloatingIPProjectQuota::crd(),
            v1beta2::FloatingIPProjectQuota::crd(),
        ),
        family(v1beta2::FloatingIP::crd(), v1beta1::FloatingIP::crd()),
    ]
}

/// One definition as a YAML document, as it stands in [`MANIFESTS`].
///
/// # Errors
/// What the YAML writer reports; no definition of [`all`] makes it.
pub fn yaml(crd: &CustomResourceDefinition) -> Result<String, serde_saphyr::ser::Error> {
    let text = serde_saphyr::to_string(crd)?;
    Ok(format!(
        "# Generated from the Rust types; the tests of fipd-crds fail when it is stale.\n{text}"
    ))
}

/// The name of the file that holds `crd`.
#[must_use]
pub fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}

/// A kind of the rancher-fip family: what is stored, and the deprecated version before it.
fn family(
    mut stored: CustomResourceDefinition,
    older: CustomResourceDefinition,
) -> CustomResourceDefinition {
    let (group, kind) = (&older.spec.group, &older.spec.names.kind);
    let warning = format!("{group}/v1beta1 {kind} is deprecated; use {group}/v1beta2 {kind}");
    let older = older.spec.versions.into_iter();
    stored
        .spec
        .versions
        .extend(older.map(|version| CustomResourceDefinitionVersion {
            name: "v1beta1".to_owned(),
            storage: false,
            deprecated: Some(true),
            deprecation_warning: Some(warning.clone()),
            ..version
        }));
    let mut both = own(stored);
    // The originals take objects without a spec.
    roots(&mut both).for_each(|root| root.required = None);
    both
}

/// A kind as fipd installs it: every version shows the age of its objects in its last column.
fn own(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        let columns = version.additional_printer_columns.get_or_insert_default();
        columns.push(CustomResourceColumnDefinition {
            name: "Age".to_owned(),
            type_: "date".to_owned(),
            json_path: ".metadata.creationTimestamp".to_owned(),
            ..CustomResourceColumnDefinition::default()
        });
    }
    roots(&mut crd).for_each(tidy);
    crd
}

/// The schema of each version.
fn roots(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    let schemas = crd.spec.versions.iter_mut();
    let schemas = schemas.filter_map(|version| version.schema.as_mut());
    schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut())
}

/// Takes out what the generator adds for Rust's sake: the originals have no defaults, refuse null, and name no integer format but in
/// conditions, which are the well-known type.
fn tidy(schema: &mut JSONSchemaProps) {
    schema.default = None;
    schema.nullable = None;
    if schema.type_.as_deref() == Some("integer") {
        schema.format = None;
    }
    let properties = schema.properties.iter_mut().flatten();
    properties
        .filter(|(name, _)| *name != "conditions")
        .for_each(|(_, inner)| tidy(inner));
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(inner)) => tidy(inner),
        Some(JSONSchemaPropsOrArray::Schemas(inner)) => inner.iter_mut().for_each(tidy),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(inner)) = &mut schema.additional_properties {
        tidy(inner);
    }
}

#[cfg(test)]
mod tests;
