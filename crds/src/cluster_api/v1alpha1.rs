//! Address pools of v1alpha1, which may also name their addresses by `subnet`, `start` and `end`, and their conversion.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use super::pool::{InClusterIPPoolSpec, InClusterPoolStatus};
use crate::lenient::{self, integer, is_default, or_default};

/// The addresses of a pool: `addresses`, `start` to `end`, or `subnet` without its ends.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "InClusterIPPool",
    root = "InClusterIPPoolV1Alpha1",
    plural = "inclusterippools",
    namespaced,
    status = "InClusterPoolStatus",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled",
    doc = "A pool of addresses for the IPAddressClaims of its namespace, in the old version."
)]
pub struct InClusterIPPoolV1Alpha1Spec {
    /// Single addresses, ranges and CIDRs.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub addresses: Vec<String>,
    /// CIDR; host bits may be set.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub subnet: String,
    /// First address. Left out: the second one of `subnet`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub start: String,
    /// Last address. Left out: the last but one of `subnet`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub end: String,
    /// Prefix length that goes with each address. Left out or 0: that of `subnet`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "integer")]
    pub prefix: i64,
    /// Gateway that goes with each address; never allocated.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub gateway: String,
}
lenient::absent_is_default!(InClusterIPPoolV1Alpha1Spec);

/// The addresses of a pool of the whole cluster, like those of a namespaced one.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "GlobalInClusterIPPool",
    root = "GlobalInClusterIPPoolV1Alpha1",
    plural = "globalinclusterippools",
    status = "InClusterPoolStatus",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled",
    doc = "A pool of addresses for the IPAddressClaims of every namespace, in the old version."
)]
pub struct GlobalInClusterIPPoolV1Alpha1Spec {
    /// The spec; on the wire there is no field of this name.
    pub pool: InClusterIPPoolV1Alpha1Spec,
}

/// The spec in the stored version. `start` to `end` becomes the last entry of `addresses`.
///
/// # Errors
/// A subnet that does not parse or has nothing between its ends, only one of `start` and `end` without a subnet, or no address
/// at all: the field, the cause and the next step.
pub fn to_v1alpha2(old: &InClusterIPPoolV1Alpha1Spec) -> Result<InClusterIPPoolSpec, String> {
    let (mut start, mut end, mut prefix) = (old.start.clone(), old.end.clone(), old.prefix);
    if !old.subnet.is_empty() {
        let subnet = Subnet::parse(&old.subnet)?;
        if start.is_empty() || end.is_empty() {
            let (first, last) = subnet.inner()?;
            let or = |given: String, otherwise: IpAddr| {
                if given.is_empty() {
                    otherwise.to_string()
                } else {
                    given
                }
            };
            (start, end) = (or(start, first), or(end, last));
        }
        if prefix == 0 {
            prefix = i64::from(subnet.length);
        }
    }
    let mut addresses = old.addresses.clone();
    match (start.is_empty(), end.is_empty()) {
        (false, false) => addresses.push(format!("{start}-{end}")),
        (true, true) => {}
        (false, true) => return Err("spec.end is missing; add it or name a subnet".to_owned()),
        (true, false) => return Err("spec.start is missing; add it or name a subnet".to_owned()),
    }
    if addresses.is_empty() {
        return Err("the pool has no addresses; set spec.addresses or spec.subnet".to_owned());
    }
    Ok(InClusterIPPoolSpec {
        addresses,
        prefix,
        gateway: old.gateway.clone(),
        ..InClusterIPPoolSpec::default()
    })
}

/// The spec in the old version: `original`, as long as it still means the same addresses, prefix and gateway, else the `addresses`
/// themselves.
///
/// The old version has no form for exclusions, grace periods and the like. Do not write the result back.
#[must_use]
pub fn to_v1alpha1(
    new: &InClusterIPPoolSpec,
    original: Option<&InClusterIPPoolV1Alpha1Spec>,
) -> InClusterIPPoolV1Alpha1Spec {
    let same = |old: &InClusterIPPoolV1Alpha1Spec| {
        to_v1alpha2(old).is_ok_and(|old| {
            (&old.addresses, old.prefix, &old.gateway) == (&new.addresses, new.prefix, &new.gateway)
        })
    };
    match original.filter(|old| same(old)) {
        Some(original) => original.clone(),
        None => InClusterIPPoolV1Alpha1Spec {
            addresses: new.addresses.clone(),
            prefix: new.prefix,
            gateway: new.gateway.clone(),
            ..InClusterIPPoolV1Alpha1Spec::default()
        },
    }
}

/// A CIDR. The address is kept as the low bits of a number of `width` bits.
struct Subnet<'a> {
    text: &'a str,
    address: u128,
    width: u8,
    length: u8,
}

impl<'a> Subnet<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let parse = || {
            let (address, length) = text.split_once('/')?;
            let (address, width) = match address.parse().ok()? {
                IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
                IpAddr::V6(address) => (u128::from(address), 128),
            };
            // `parse` alone would take a sign and leading zeros.
            let plain = length.bytes().all(|byte| byte.is_ascii_digit());
            let plain = plain && (length == "0" || !length.starts_with('0'));
            let length = length.parse().ok().filter(|length| *length <= width)?;
            plain.then_some(Self {
                text,
                address,
                width,
                length,
            })
        };
        parse().ok_or_else(|| {
            format!("spec.subnet {text:?} is no CIDR; use a form like 10.0.0.0/24 or fd00::/64")
        })
    }

    /// The first and last address between the ends.
    fn inner(&self) -> Result<(IpAddr, IpAddr), String> {
        let bits = u32::from(self.width - self.length);
        if bits < 2 {
            let text = self.text;
            return Err(format!(
                "spec.subnet {text:?} has no address between its ends; set spec.start and spec.end, or spec.addresses"
            ));
        }
        let host = u128::MAX.checked_shr(128 - bits).unwrap_or_default();
        let (first, last) = (self.address & !host, self.address | host);
        Ok((self.ip(first + 1), self.ip(last - 1)))
    }

    fn ip(&self, number: u128) -> IpAddr {
        match u32::try_from(number) {
            Ok(number) if self.width == 32 => Ipv4Addr::from(number).into(),
            _ => Ipv6Addr::from(number).into(),
        }
    }
}

#[cfg(test)]
mod tests;
