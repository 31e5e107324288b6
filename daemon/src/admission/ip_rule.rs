//! Whether an IPRule or an Agent may be stored. Needs nothing but the object.

use fipd_crds::ip_rule::IPRuleSpec;

use super::{
    review::{Question, Verdict},
    spec,
};
use crate::validation::ip_rule::{is_agent_name, read, warnings};

pub fn rule(question: &Question) -> Verdict {
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

pub fn agent(question: &Question) -> Verdict {
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
    use crate::admission::review::Kind;

    fn question(kind: Kind, name: &str, spec: Value) -> Question {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": "CREATE", "name": name,
                "resource": { "group": "api.operator.brtrm.dev", "version": "v1alpha1", "resource": kind.plural() },
                "object": { "metadata": { "name": name }, "spec": spec },
            },
        });
        Question::read(review.to_string().as_bytes(), kind).unwrap()
    }

    fn denied(spec: Value) -> String {
        let verdict = rule(&question(Kind::IpRule, "lb", spec));
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
            let verdict = rule(&question(Kind::IpRule, "lb", spec));
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
        let judge = |name| agent(&question(Kind::Agent, name, json!({}))).denied;
        assert_eq!((judge("default"), judge("agent")), (None, None));
        assert!(
            judge("mine")
                .unwrap()
                .message
                .starts_with("metadata.name: \"mine\"")
        );
    }
}
