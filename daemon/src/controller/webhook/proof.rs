//! Whether an admission webhook is in force: what the dry run of an object that fipd refuses came to.

use serde_json::{Value, json};

use crate::{
    admission::{Asks, Sample, proof::Proof},
    controller::client::{CallError, Target},
};

/// What a dry run says of the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    InForce,
    /// The API server would have stored it.
    NotAsked,
    /// Why nothing can be said.
    Unproved(String),
    /// The API server does not answer, or has no such kind, whose objects nobody can write.
    Nothing,
}

impl Sample {
    pub fn target(&self, proof: &Proof) -> Target {
        Target {
            api: self.api,
            plural: self.plural,
            namespace: self.namespace.to_owned(),
            name: proof.name.clone(),
        }
    }

    pub fn object(&self, proof: &Proof) -> Value {
        let spec: Value = serde_json::from_str(self.spec).unwrap_or_default();
        let mut metadata = json!({ "name": proof.name });
        if !self.namespace.is_empty() {
            metadata["namespace"] = json!(self.namespace);
        }
        let version = self.api.trim_start_matches("apis/");
        json!({ "apiVersion": version, "kind": self.kind, "metadata": metadata, "spec": spec })
    }
}

/// What the result of the dry run says.
pub fn verdict(result: Result<(), CallError>, proof: &Proof, sample: &Sample) -> Verdict {
    match result {
        Ok(()) => Verdict::NotAsked,
        Err(CallError::Rejected(_, why)) if why.contains(&proof.refusal) => Verdict::InForce,
        Err(CallError::Rejected(_, why)) if why.contains("cannot create resource") => {
            Verdict::Unproved(format!(
                "the role does not allow fipd to create {} as a dry run; apply {} again",
                sample.plural, sample.role
            ))
        }
        Err(CallError::Rejected(_, why)) => {
            Verdict::Unproved(format!("the API server refuses fipd's test object: {why}"))
        }
        Err(CallError::NotFound(_) | CallError::Unavailable(..) | CallError::Conflict(..)) => {
            Verdict::Nothing
        }
    }
}

/// What is wrong with the webhook at `base`; `None`: nothing that is known.
pub fn trouble(verdict: &Verdict, asks: &Asks, base: &str) -> Option<String> {
    let name = asks.name;
    match verdict {
        Verdict::InForce | Verdict::Nothing => None,
        Verdict::NotAsked => Some(format!(
            "the admission webhook {name} is not in force: the API server would have stored an object that fipd refuses; \
             check that it reaches {base} and that the CA in the webhook is that of the certificate there (its log says why)"
        )),
        Verdict::Unproved(why) => Some(format!(
            "it is not known whether the admission webhook {name} is in force: {why}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::{ip_rule, rancher_fip::admission::ASKS};

    #[test]
    fn only_this_processs_own_refusal_proves_the_webhook() {
        let proof = Proof::own().unwrap();
        let sample = &ASKS.sample;
        let rejected = |why: &str| Err(CallError::Rejected("x".into(), why.into()));
        let of = |result| verdict(result, &proof, sample);
        let denied = format!(
            "admission webhook \"a\" denied the request: {}",
            proof.refusal
        );
        assert_eq!(of(rejected(&denied)), Verdict::InForce);
        assert_eq!(of(Ok(())), Verdict::NotAsked);
        let denied = "admission webhook \"a\" denied the request: fipd was asked: 0";
        let other = of(rejected(denied));
        assert!(
            matches!(&other, Verdict::Unproved(why) if why.contains(denied)),
            "{other:?}"
        );
        let role = of(rejected(
            "User \"a\" cannot create resource \"floatingips\"",
        ));
        let text = trouble(&role, &ASKS, "https://a").unwrap();
        assert!(
            text.contains("packaging/rbac/rancher-fip-management.yaml"),
            "{text}"
        );
        let down = Err(CallError::Unavailable("x".into(), "down".into()));
        assert_eq!(of(down), Verdict::Nothing);
        let text = trouble(&Verdict::NotAsked, &ASKS, "https://a").unwrap();
        assert!(
            text.contains("not in force") && text.contains("https://a"),
            "{text}"
        );
    }

    #[test]
    fn the_samples_are_objects_with_a_spec() {
        let proof = Proof::own().unwrap();
        for asks in [&ASKS, &ip_rule::admission::ASKS] {
            let object = asks.sample.object(&proof);
            assert!(object["spec"].is_object(), "{object}");
            assert_eq!(object["metadata"]["name"], json!(proof.name));
        }
    }
}
