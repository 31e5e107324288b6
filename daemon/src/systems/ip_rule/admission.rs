//! Whether an IPRule or an Agent may be stored. Needs nothing but the object.

use fipd_crds::ip_rule::{GROUP, IPRuleSpec};

use futures::future::BoxFuture;

use crate::{
    admission::{
        Asks, Judge, Judged, ReviewedKind, Sample,
        review::{Operation, Question, Verdict},
        spec,
    },
    systems::ip_rule::validate::{is_agent_name, read, warnings},
};

/// The name of fipd's object.
pub const VALIDATOR: &str = "fipd-ip-rule-validator";

const WRITES: &[&str] = &["CREATE", "UPDATE"];
const RULE: ReviewedKind = ReviewedKind {
    group: GROUP,
    plural: "iprules",
    operations: WRITES,
    path: "validate-api-operator-brtrm-dev-v1alpha1-iprule",
    namespaced: false,
    webhook: "viprule.kb.io",
    conditions: &[],
};
const AGENT: ReviewedKind = ReviewedKind {
    group: GROUP,
    plural: "agents",
    operations: WRITES,
    path: "validate-api-operator-brtrm-dev-v1alpha1-agent",
    namespaced: true,
    webhook: "vagent.kb.io",
    conditions: &[],
};

/// What API servers ask about.
pub static ASKS: Asks = Asks {
    system: "ip-rule",
    name: VALIDATOR,
    kinds: &[RULE, AGENT],
    versions: &["v1alpha1"],
    sample: Sample {
        api: "apis/api.operator.brtrm.dev/v1alpha1",
        kind: "IPRule",
        plural: "iprules",
        namespace: "",
        spec: r#"{ "cidrs": ["192.0.2.1/32"], "table": 1 }"#,
        role: "packaging/rbac/ip-rule.yaml",
    },
    original: None,
};

/// Judges IPRules and Agents.
pub struct RuleJudge;

impl Judge for RuleJudge {
    fn judge<'a>(
        &'a self,
        _cluster: &'a str,
        kind: &'static ReviewedKind,
        question: &'a Question,
    ) -> BoxFuture<'a, Judged> {
        let passes = question.operation == Operation::Delete || question.passes();
        let verdict = match passes {
            true => Verdict::allowed(),
            false => judge(kind, question),
        };
        Box::pin(std::future::ready(Judged::checked(verdict)))
    }
}

/// Whether it may be stored.
pub(super) fn judge(kind: &ReviewedKind, question: &Question) -> Verdict {
    match *kind == AGENT {
        true => agent(question),
        false => rule(question),
    }
}

fn rule(question: &Question) -> Verdict {
    let spec: IPRuleSpec = match spec(&question.object.spec) {
        Ok(spec) => spec,
        Err(verdict) => return verdict,
    };
    match read(&spec) {
        Ok(_) => Verdict::warned(warnings(&spec)),
        Err(wrong) => {
            let wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
            Verdict::invalid(wrong.join("; "))
        }
    }
}

fn agent(question: &Question) -> Verdict {
    match is_agent_name(&question.name) {
        true => Verdict::allowed(),
        false => Verdict::invalid(format!(
            "metadata.name: {:?} is not allowed: an Agent is called default or agent; one of any other name is not run",
            question.name
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn question(kind: &'static ReviewedKind, name: &str, spec: Value) -> Question {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": "CREATE", "name": name,
                "resource": { "group": "api.operator.brtrm.dev", "version": "v1alpha1", "resource": kind.plural },
                "object": { "metadata": { "name": name }, "spec": spec },
            },
        });
        Question::read(review.to_string().as_bytes(), kind).unwrap()
    }

    fn denied(spec: Value) -> String {
        let verdict = rule(&question(&RULE, "lb", spec));
        verdict.denied.unwrap().message
    }

    #[test]
    fn conformance_9_to_12_an_ip_rule_is_refused_by_its_field_or_warned_of() {
        assert!(denied(json!({ "cidr": "foo", "table": 100 })).starts_with("spec.cidr: \"foo\""));
        for table in [json!(0), json!(-1), json!(1_u64 << 32)] {
            assert!(
                denied(json!({ "cidr": "10.0.0.0/8", "table": table })).starts_with("spec.table")
            );
        }
        assert!(denied(json!({ "cidr": "10.0.0.0/8", "table": "x" })).contains("schema"));
        let allowed = |spec| {
            let verdict = rule(&question(&RULE, "lb", spec));
            assert_eq!(verdict.denied, None);
            verdict.warnings.len()
        };
        assert_eq!(
            allowed(
                json!({ "cidr": "10.0.0.0/8", "table": 4_294_967_295_u32, "nodeSelectorLabel": "lb" })
            ),
            0
        );
        assert_eq!(
            allowed(json!({ "cidr": "10.0.0.0/8", "cidrs": ["fd00::/64"], "table": 1 })),
            1
        );
    }

    #[test]
    fn an_agent_has_one_of_two_names() {
        let judge = |name| agent(&question(&AGENT, name, json!({}))).denied;
        assert_eq!((judge("default"), judge("agent")), (None, None));
        assert!(
            judge("mine")
                .unwrap()
                .message
                .starts_with("metadata.name: \"mine\"")
        );
    }
}
