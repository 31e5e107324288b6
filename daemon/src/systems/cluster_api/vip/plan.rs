//! What to do for a Cluster. Pure.

use std::net::IpAddr;

use super::{
    observe::{CapiClusterView, ClassView},
    second::{self, SECOND_ENDPOINT_READY, SECOND_INGRESS_READY, SecondFacts, SecondPlan},
};
use crate::{controller::conditions::ConditionUpdate, systems::cluster_api::names::CLUSTER_VIP};

/// Type of the condition on the address of the control plane.
pub const ENDPOINT_READY: &str = "fipd.io/EndpointReady";
/// The same of the ingress.
pub const INGRESS_READY: &str = "fipd.io/IngressReady";

/// Types of the conditions that are fipd's in a Cluster.
pub const CONDITIONS: [&str; 4] = [
    ENDPOINT_READY,
    INGRESS_READY,
    SECOND_ENDPOINT_READY,
    SECOND_INGRESS_READY,
];

/// Reason of [`ENDPOINT_READY`]: the endpoint differs from its lease, be that of its claim or of the Cluster itself.
pub const ENDPOINT_DIFFERS: &str = "EndpointDiffers";
/// Reason of both: no pool has the labels of the class and role.
pub const POOL_NOT_FOUND: &str = "PoolNotFound";
/// The declaration of the variable, as an item of `spec.variables` of a class.
const CLUSTER_VIP_LINES: &str = "\
- name: clusterVip
  required: false
  schema:
    openAPIV3Schema:
      type: string
      default: \"\"";

/// What is known of the claim of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// There is none; `Err`: why none can be made.
    Absent(Result<(), String>),
    /// Somebody else's claim has its name.
    Foreign(String),
    /// It was just made, and nobody has said anything of it.
    Underway,
    /// It has no address yet; why, as far as it says so.
    Pending(String),
    /// It waits for a full pool while another has room.
    Misplaced(String),
    Fulfilled(IpAddr),
}

impl ClaimState {
    /// The address that the claim has.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Fulfilled(address) => Some(*address),
            Self::Absent(_)
            | Self::Foreign(_)
            | Self::Underway
            | Self::Pending(_)
            | Self::Misplaced(_) => None,
        }
    }
}

/// What is to be done for one address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VipStep {
    #[default]
    Nothing,
    Claim,
    /// The claim goes, and another is made on another pool.
    ClaimAnew,
    /// The address that somebody else chose is kept from others.
    Reserve(IpAddr),
}

/// What is written into the Cluster, in one apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VipApply {
    /// Host and port.
    pub endpoint: Option<(String, i32)>,
    /// Value of the variable.
    pub variable: Option<IpAddr>,
    /// Value of the annotation with the address of the control plane.
    pub annotation: Option<IpAddr>,
    pub ingress: Option<IpAddr>,
}

/// What to do for a Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VipPlan {
    pub control_plane: VipStep,
    pub ingress: VipStep,
    /// All that is fipd's in the Cluster; empty: nothing is.
    pub apply: VipApply,
    /// Whether anything of it is missing there.
    pub differs: bool,
    /// It has one of both addresses, and the other may come at any moment.
    pub is_half: bool,
    /// The same of the second family, which is written apart.
    pub second: SecondPlan,
    /// What is to be said; of addresses that concern the Cluster.
    pub conditions: Vec<ConditionUpdate>,
}

/// What is known of a Cluster.
#[derive(Debug)]
pub struct VipFacts<'a> {
    pub cluster: &'a CapiClusterView,
    /// `None`: it has no ClusterClass, or that is not known.
    pub class: Option<&'a ClassView>,
    pub control_plane: ClaimState,
    pub ingress: ClaimState,
    /// The address that an endpoint without a claim had first, if it has another one now.
    pub replaced: Option<IpAddr>,
    /// `None`: the Cluster has one family, or says none.
    pub second: Option<SecondFacts>,
    pub default_port: i32,
}

impl VipFacts<'_> {
    /// Somebody else chose the endpoint.
    pub fn endpoint_is_given(&self) -> bool {
        let ours = |address| self.cluster.host() == Some(address);
        let claimed = matches!(self.control_plane, ClaimState::Fulfilled(address) if ours(address));
        self.cluster.endpoint.is_some() && !claimed
    }

    /// Somebody else chose the address of the ingress.
    pub fn ingress_is_given(&self) -> bool {
        let shown = self.cluster.ingress.address.as_deref();
        shown.is_some_and(|text| !is_claimed(text, &self.ingress))
    }
}

/// Whether the address that is shown is that of the claim.
fn is_claimed(shown: &str, state: &ClaimState) -> bool {
    matches!(state, ClaimState::Fulfilled(address) if shown.parse() == Ok(*address))
}

/// Plans all addresses; none waits for another.
pub fn plan(facts: &VipFacts<'_>) -> VipPlan {
    let cluster = facts.cluster;
    let mut apply = VipApply::default();
    let mut conditions = Vec::new();
    let control_plane = control_plane(facts, &mut apply, &mut conditions);
    let ingress = match &cluster.ingress {
        one if one.disabled => VipStep::Nothing,
        one => {
            let (step, address) = annotated(
                (INGRESS_READY, "the address of the ingress"),
                one.address.as_deref(),
                &facts.ingress,
                &mut conditions,
            );
            apply.ingress = address;
            step
        }
    };
    let second = second::plan(facts, &mut conditions);
    VipPlan {
        control_plane,
        ingress,
        differs: differs(cluster, &apply),
        is_half: is_half(facts, &apply),
        apply,
        second,
        conditions,
    }
}

fn control_plane(
    facts: &VipFacts<'_>,
    apply: &mut VipApply,
    conditions: &mut Vec<ConditionUpdate>,
) -> VipStep {
    let cluster = facts.cluster;
    let host = cluster
        .endpoint
        .as_ref()
        .map(|endpoint| endpoint.host.as_str());
    let mut says = |status, reason, message: String| {
        conditions.push(ConditionUpdate {
            kind: ENDPOINT_READY,
            status,
            reason,
            message,
        });
    };
    match (host, &facts.control_plane) {
        (Some(host), ClaimState::Fulfilled(address)) if cluster.host() != Some(*address) => {
            let message = format!(
                "the endpoint is {host}, and the claim has {address}; certificates carry the endpoint, so it is not changed: delete the claim, or make the Cluster anew"
            );
            says(false, ENDPOINT_DIFFERS, message);
            fill_empty(facts, apply);
            cluster.host().map_or(VipStep::Nothing, VipStep::Reserve)
        }
        (_, ClaimState::Fulfilled(address)) => {
            fill(facts, *address, apply);
            let message = format!("{address} is the endpoint");
            says(true, "AddressAllocated", message);
            missing_variable(facts, conditions);
            VipStep::Nothing
        }
        (Some(host), _) => {
            // Before that no certificate carries it, and whoever chose it may choose again.
            match facts.replaced.filter(|_| cluster.is_provisioned) {
                Some(first) => says(
                    false,
                    ENDPOINT_DIFFERS,
                    format!(
                        "the endpoint is {host}, and the Cluster holds {first}, which was its endpoint first; certificates carry the endpoint, so it is not changed: put {first} back, or let an admin of fipd release its lease once nothing uses it"
                    ),
                ),
                None => says(
                    true,
                    "EndpointGiven",
                    format!("the endpoint {host} was chosen by somebody else, and stays"),
                ),
            }
            fill_empty(facts, apply);
            if cluster.port.is_none() {
                // Without one it is no endpoint to Cluster API.
                apply.endpoint = Some((host.to_owned(), facts.default_port));
            }
            if facts.replaced.is_none() && cluster.host().is_some() {
                missing_variable(facts, conditions);
            }
            cluster.host().map_or(VipStep::Nothing, VipStep::Reserve)
        }
        (None, state) => wait(ENDPOINT_READY, state, conditions),
    }
}

/// The endpoint of the claim, with the variable and the annotation where the class has use for them.
fn fill(facts: &VipFacts<'_>, address: IpAddr, apply: &mut VipApply) {
    // Without a host it is no endpoint to Cluster API, and stays all the same.
    let port = facts.cluster.port.unwrap_or(facts.default_port);
    apply.endpoint = Some((address.to_string(), port));
    let class = facts.class;
    apply.variable = class.filter(|class| class.declares_vip).map(|_| address);
    apply.annotation = class
        .filter(|class| class.reads_annotation)
        .map(|_| address);
}

/// Variable and annotation of an endpoint that is not of a claim. Whoever chose it may have chosen them as well: only what is empty
/// is filled. A name is no address, and stays the endpoint alone.
fn fill_empty(facts: &VipFacts<'_>, apply: &mut VipApply) {
    let cluster = facts.cluster;
    let (Some(class), Some(host)) = (facts.class, cluster.host()) else {
        return;
    };
    let text = host.to_string();
    let fits = |there: &Option<String>| {
        let there = there.as_deref().unwrap_or_default();
        there.is_empty() || there == text
    };
    let variable = class.declares_vip && fits(&cluster.variable);
    let annotation = class.reads_annotation && fits(&cluster.annotated);
    apply.variable = variable.then_some(host);
    apply.annotation = annotation.then_some(host);
}

/// Patches that read an undeclared variable get nothing and Cluster API does not say so: the condition has the lines to add.
fn missing_variable(facts: &VipFacts<'_>, conditions: &mut [ConditionUpdate]) {
    let lacks = facts.class.filter(|class| !class.declares_vip);
    let (Some(class), Some(last)) = (lacks, conditions.last_mut()) else {
        return;
    };
    if !class.reads_vip {
        if !class.reads_annotation {
            last.message
                .push_str("; the class has no variable clusterVip, so no patch gets it");
        }
        return;
    }
    let name = facts.cluster.class.as_ref().map(|class| &*class.name);
    last.status = false;
    last.reason = "VariableMissing";
    last.message = format!(
        "{}; patches of ClusterClass {} read the variable {CLUSTER_VIP}, which the class does not declare: add to its spec.variables:\n{CLUSTER_VIP_LINES}",
        last.message,
        name.unwrap_or_default(),
    );
}

/// What to do for an address that an annotation shows, and what the annotation is to be.
pub(super) fn annotated(
    (kind, what): (&'static str, &str),
    shown: Option<&str>,
    state: &ClaimState,
    conditions: &mut Vec<ConditionUpdate>,
) -> (VipStep, Option<IpAddr>) {
    let mut says = |reason, message: String| {
        conditions.push(ConditionUpdate {
            kind,
            status: true,
            reason,
            message,
        });
    };
    match (shown, state) {
        (Some(text), state) if !is_claimed(text, state) => {
            let kept = matches!(state, ClaimState::Fulfilled(_));
            let note = if kept {
                "; the claim has another one"
            } else {
                ""
            };
            let message =
                format!("the address {text} was chosen by somebody else, and stays{note}");
            says("AddressGiven", message);
            let step = text.parse().map_or(VipStep::Nothing, VipStep::Reserve);
            (step, None)
        }
        (_, ClaimState::Fulfilled(address)) => {
            says("AddressAllocated", format!("{address} is {what}"));
            (VipStep::Nothing, Some(*address))
        }
        (_, state) => (wait(kind, state, conditions), None),
    }
}

/// Plans an address that is missing. A claim that is under way gets no condition.
fn wait(kind: &'static str, state: &ClaimState, conditions: &mut Vec<ConditionUpdate>) -> VipStep {
    let (reason, message, step) = match state {
        ClaimState::Absent(Ok(())) => return VipStep::Claim,
        ClaimState::Absent(Err(why)) => (POOL_NOT_FOUND, why.clone(), VipStep::Nothing),
        ClaimState::Foreign(why) => ("ClaimTaken", why.clone(), VipStep::Nothing),
        ClaimState::Pending(why) => ("ClaimPending", why.clone(), VipStep::Nothing),
        ClaimState::Misplaced(why) => ("ClaimPending", why.clone(), VipStep::ClaimAnew),
        ClaimState::Underway | ClaimState::Fulfilled(_) => return VipStep::Nothing,
    };
    conditions.push(ConditionUpdate {
        kind,
        status: false,
        reason,
        message,
    });
    step
}

/// Whether the Cluster lacks anything of it.
fn differs(cluster: &CapiClusterView, apply: &VipApply) -> bool {
    let endpoint = apply.endpoint.as_ref().is_some_and(|(host, port)| {
        cluster.endpoint.as_ref().is_none_or(|there| {
            let same =
                there.host == *host || cluster.host().is_some_and(|one| host.parse() == Ok(one));
            !same || there.port != *port
        })
    });
    let text = |address: IpAddr| address.to_string();
    let lacks = |there: &Option<String>, wanted: Option<IpAddr>| {
        wanted.is_some() && *there != wanted.map(text)
    };
    let filled =
        lacks(&cluster.variable, apply.variable) || lacks(&cluster.annotated, apply.annotation);
    let ingress = apply.ingress.map(text);
    let label = ingress.clone().filter(|text| is_label_value(text));
    let annotated = ingress.is_some() && cluster.ingress.address != ingress;
    endpoint || filled || annotated || label.is_some() && cluster.ingress.label != label
}

/// Whether the Cluster has neither address yet, one of them is to be written, and the claim of the other is about to be served.
fn is_half(facts: &VipFacts<'_>, apply: &VipApply) -> bool {
    let (cluster, ingress) = (facts.cluster, &facts.cluster.ingress);
    let has_none = cluster.endpoint.is_none() && !ingress.disabled && ingress.address.is_none();
    let comes =
        |state: &ClaimState| matches!(state, ClaimState::Absent(Ok(())) | ClaimState::Underway);
    let endpoint_alone = apply.endpoint.is_some() && comes(&facts.ingress);
    let ingress_alone = apply.ingress.is_some() && comes(&facts.control_plane);
    has_none && (endpoint_alone || ingress_alone)
}

/// A label may have it as its value; an IPv6 address may not be one.
pub fn is_label_value(text: &str) -> bool {
    !text.contains(':')
}

#[cfg(test)]
mod tests;
