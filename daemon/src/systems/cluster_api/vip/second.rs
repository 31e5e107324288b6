//! What to do for the addresses that a dual-stack Cluster has in its second family. Pure.
//!
//! They are claimed, written and said of apart from the first ones, and hold up nothing. Where somebody else chose the first
//! address of a role, none is claimed beside it.

use std::net::IpAddr;

use super::{
    observe::CapiClusterView,
    plan::{ClaimState, VipFacts, VipStep, annotated},
};
use crate::controller::conditions::ConditionUpdate;

/// Type of the condition on the second address of the control plane.
pub const SECOND_ENDPOINT_READY: &str = "fipd.io/SecondEndpointReady";
/// The same of the ingress.
pub const SECOND_INGRESS_READY: &str = "fipd.io/SecondIngressReady";

/// What is known of the claims of the second family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecondFacts {
    pub control_plane: ClaimState,
    pub ingress: ClaimState,
}

/// What to do for the second family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecondPlan {
    pub control_plane: VipStep,
    pub ingress: VipStep,
    pub apply: SecondApply,
    /// Whether anything of it is missing in the Cluster.
    pub differs: bool,
}

/// What is written into the Cluster, in one apply of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecondApply {
    pub control_plane: Option<IpAddr>,
    /// It is the value of the variable as well.
    pub variable: bool,
    pub ingress: Option<IpAddr>,
}

pub(super) fn plan(facts: &VipFacts<'_>, conditions: &mut Vec<ConditionUpdate>) -> SecondPlan {
    let Some(second) = &facts.second else {
        return SecondPlan::default();
    };
    let mut plan = |kind, given: bool, shown: Option<&str>, state: &ClaimState| {
        if given && shown.is_none() && matches!(state, ClaimState::Absent(_)) {
            return (VipStep::Nothing, None);
        }
        annotated(kind, shown, state, conditions)
    };
    let cluster = facts.cluster;
    let (control_plane, endpoint) = plan(
        (
            SECOND_ENDPOINT_READY,
            "the second address of the control plane",
        ),
        facts.endpoint_is_given(),
        cluster.second.control_plane.as_deref(),
        &second.control_plane,
    );
    let (ingress, front) = match cluster.ingress.disabled {
        true => (VipStep::Nothing, None),
        false => plan(
            (SECOND_INGRESS_READY, "the second address of the ingress"),
            facts.ingress_is_given(),
            cluster.second.ingress.as_deref(),
            &second.ingress,
        ),
    };
    let declared = facts.class.is_some_and(|class| class.declares_second_vip);
    let apply = SecondApply {
        control_plane: endpoint,
        variable: declared && endpoint.is_some(),
        ingress: front,
    };
    SecondPlan {
        control_plane,
        ingress,
        differs: differs(cluster, &apply),
        apply,
    }
}

/// Whether the Cluster lacks anything of it.
fn differs(cluster: &CapiClusterView, apply: &SecondApply) -> bool {
    let text = |address: Option<IpAddr>| address.map(|address| address.to_string());
    let (endpoint, ingress) = (text(apply.control_plane), text(apply.ingress));
    let there = &cluster.second;
    endpoint.is_some() && there.control_plane != endpoint
        || apply.variable && there.variable != endpoint
        || ingress.is_some() && there.ingress != ingress
}

#[cfg(test)]
#[path = "second_tests.rs"]
mod tests;
