//! The CustomResourceDefinitions as they are installed, and their YAML.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionVersion,
    JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::{cluster_api, fipd_io, flat_network, floating_ip, ip_rule, kube_fip};

macro_rules! manifest {
    ($name:literal) => {
        ($name, include_str!(concat!("../yaml/", $name)))
    };
}

/// The committed YAML of [`all`], in the same order: file name and text.
pub const MANIFESTS: [(&str, &str); 17] = [
    manifest!("api.operator.brtrm.dev_agents.yaml"),
    manifest!("api.operator.brtrm.dev_ipruleconfigs.yaml"),
    manifest!("api.operator.brtrm.dev_iprules.yaml"),
    manifest!("fipd.io_addressclaims.yaml"),
    manifest!("fipd.io_namespacedpools.yaml"),
    manifest!("fipd.io_pools.yaml"),
    manifest!("flatnetwork.pandaria.io_flatnetworkips.yaml"),
    manifest!("flatnetwork.pandaria.io_flatnetworksubnets.yaml"),
    manifest!("ipam.cluster.x-k8s.io_globalinclusterippools.yaml"),
    manifest!("ipam.cluster.x-k8s.io_globalinclusterprefixpools.yaml"),
    manifest!("ipam.cluster.x-k8s.io_inclusterippools.yaml"),
    manifest!("ipam.cluster.x-k8s.io_inclusterprefixpools.yaml"),
    manifest!("kubefip.k8s.binbash.org_floatingipranges.yaml"),
    manifest!("kubefip.k8s.binbash.org_floatingips.yaml"),
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
        nullable(flat_network::FlatNetworkIP::crd()),
        nullable(flat_network::FlatNetworkSubnet::crd()),
        in_cluster(cluster_api::GlobalInClusterIPPool::crd()),
        prefixes(cluster_api::GlobalInClusterPrefixPool::crd()),
        in_cluster(cluster_api::InClusterIPPool::crd()),
        prefixes(cluster_api::InClusterPrefixPool::crd()),
        lax(kube_fip::FloatingIPRange::crd()),
        lax(kube_fip::GuestFloatingIP::crd()),
        family(floating_ip::FloatingIPPool::crd()),
        family(floating_ip::FloatingIPProjectQuota::crd()),
        one_service_in_v1beta1(family(floating_ip::FloatingIP::crd())),
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

/// A kind of the rancher-fip family: what is stored, and the same as the deprecated version before it.
fn family(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let (group, kind) = (&crd.spec.group, &crd.spec.names.kind);
    let warning = format!("{group}/v1beta1 {kind} is deprecated; use {group}/v1beta2 {kind}");
    for version in crd.spec.versions.clone() {
        crd.spec.versions.push(CustomResourceDefinitionVersion {
            name: "v1beta1".to_owned(),
            storage: false,
            deprecated: Some(true),
            deprecation_warning: Some(warning.clone()),
            ..version
        });
    }
    lax(crd)
}

/// A kind of an original, which takes objects without a spec.
fn lax(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let mut lax = own(crd);
    roots(&mut lax).for_each(|root| root.required = None);
    lax
}

/// A kind of an original that takes null for every field.
fn nullable(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let mut crd = lax(crd);
    roots(&mut crd).for_each(take_null);
    crd
}

fn take_null(schema: &mut JSONSchemaProps) {
    let fields = schema.properties.iter_mut().flatten();
    for (_, field) in fields.filter(|(name, _)| *name != "conditions") {
        field.nullable = Some(true);
        take_null(field);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(inner)) = &mut schema.items {
        take_null(inner);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(inner)) = &mut schema.additional_properties {
        take_null(inner);
    }
}

/// A pool of Cluster API. `clusterctl move` finds its kind by the first label and takes all objects of it by the second; the others
/// name the version that each contract of Cluster API means.
fn in_cluster(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let mut crd = lax(crd);
    let labels = crd.metadata.labels.get_or_insert_default();
    for (label, value) in [
        (cluster_api::names::CLUSTERCTL, ""),
        (cluster_api::names::MOVE_HIERARCHY, ""),
        ("cluster.x-k8s.io/v1beta1", cluster_api::names::POOL_VERSION),
        ("cluster.x-k8s.io/v1beta2", cluster_api::names::POOL_VERSION),
    ] {
        labels.insert(label.to_owned(), value.to_owned());
    }
    crd
}

/// A pool of prefixes. The original has the API server write the default length into the object, where it must not change any more.
fn prefixes(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let mut crd = in_cluster(crd);
    let specs = roots(&mut crd).filter_map(|root| fields_of(root, "spec"));
    let lengths = specs.filter_map(|spec| spec.get_mut("allocationPrefixLength"));
    lengths.for_each(|length| {
        let default = cluster_api::DEFAULT_ALLOCATION_PREFIX_LENGTH;
        length.default = Some(JSON(default.into()));
    });
    crd
}

/// A floating IP of v1beta1 names one Service in place of several, and no group of them.
fn one_service_in_v1beta1(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let mut versions = crd.spec.versions.iter_mut();
    let Some(v1beta1) = versions.find(|version| version.name == "v1beta1") else {
        return crd;
    };
    let columns = v1beta1.additional_printer_columns.iter_mut().flatten();
    for column in columns.filter(|column| column.name == "Group") {
        column.name = "Service".to_owned();
        column.json_path = ".status.assigned.serviceName".to_owned();
    }
    let root = v1beta1.schema.as_mut();
    let root = root.and_then(|schema| schema.open_api_v3_schema.as_mut());
    let Some(status) = root.and_then(|root| fields_of(root, "status")) else {
        return crd;
    };
    status.remove("floatingipGroup");
    status.remove("sharedKey");
    let assigned = status.get_mut("assigned");
    let Some(fields) = assigned.and_then(|assigned| assigned.properties.as_mut()) else {
        return crd;
    };
    fields.retain(|name, _| ["clusterName", "projectName"].contains(&&**name));
    for (name, description) in [
        ("serviceNamespace", "Namespace of the Service."),
        ("serviceName", "Name of the Service."),
    ] {
        let text = JSONSchemaProps {
            type_: Some("string".to_owned()),
            description: Some(description.to_owned()),
            ..JSONSchemaProps::default()
        };
        fields.insert(name.to_owned(), text);
    }
    crd
}

fn fields_of<'a>(
    schema: &'a mut JSONSchemaProps,
    field: &str,
) -> Option<&'a mut BTreeMap<String, JSONSchemaProps>> {
    schema
        .properties
        .as_mut()?
        .get_mut(field)?
        .properties
        .as_mut()
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
