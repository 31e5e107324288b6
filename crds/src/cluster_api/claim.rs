//! Claims: one address, or one prefix, of a pool each.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Deserializer, Serialize};

use super::conditions::{self, AnyCondition, ConditionsV1Beta2, DeprecatedStatus};
use super::names::IPAM_GROUP;
use super::object::object;
use crate::lenient::{self, is_default};

object! {
    /// A claim on an address of a pool. Infrastructure providers make it; the provider of the pool answers with an `IPAddress`.
    IPAddressClaim: IPAM_GROUP, "ipaddressclaims", NamespaceResourceScope,
    "super::object::ipam_version", IPAddressClaimSpec, IPAddressClaimStatus
}

impl IPAddressClaim {
    /// The claim's conditions of the form of `metav1.Condition`, wherever its version keeps them.
    #[must_use]
    pub fn ready_conditions(&self) -> Vec<Condition> {
        let Some(status) = &self.status else {
            return Vec::new();
        };
        conditions::metav1(
            self.is_v1beta1(),
            &status.conditions,
            status.v1beta2.as_ref(),
        )
    }

    /// Name of the claim's `IPAddress`, once there is one.
    #[must_use]
    pub fn address_name(&self) -> Option<&str> {
        let reference = self.status.as_ref()?.address_ref.as_ref()?;
        Some(&reference.name)
    }
}

/// What a claim asks for. The API server refuses every change of it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IPAddressClaimSpec {
    /// The `Cluster` of the claim, in the claim's namespace.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub cluster_name: String,
    /// The pool.
    #[serde(deserialize_with = "lenient::any")]
    pub pool_ref: PoolRef,
}

/// A pool: in the namespace of the claim, or of the whole cluster.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolRef {
    /// API group; only v1beta1 may leave it out.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub api_group: Option<String>,
    /// Kind.
    #[serde(deserialize_with = "lenient::any")]
    pub kind: String,
    /// Name.
    #[serde(deserialize_with = "lenient::any")]
    pub name: String,
}

/// What became of a claim, in the form of either version.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IPAddressClaimStatus {
    /// The claim's `IPAddress`. One without a name, as v1beta1 writes it, counts as absent.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "named_or_absent"
    )]
    pub address_ref: Option<AddressRef>,
    /// v1beta2: `metav1.Condition`s; v1beta1: Cluster API's own.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub conditions: Vec<AnyCondition>,
    /// v1beta1 only: the `metav1.Condition`s.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub v1beta2: Option<ConditionsV1Beta2>,
    /// v1beta2 only: Cluster API's own conditions.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub deprecated: Option<DeprecatedStatus>,
}

/// An `IPAddress` in the namespace of its claim.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AddressRef {
    /// Name; usually that of the claim.
    #[serde(deserialize_with = "lenient::any")]
    pub name: String,
}

fn named_or_absent<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<AddressRef>, D::Error> {
    let reference: Option<AddressRef> = lenient::any(deserializer)?;
    Ok(reference.filter(|reference| !reference.name.is_empty()))
}
