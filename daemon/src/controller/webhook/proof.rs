//! Whether an admission webhook is in force: what the dry run of an object that fipd refuses came to.

use serde_json::{Value, json};

use crate::{
    admission::{Asks, Sample, proof::Proof},
    controller::client::{CallError, Remote, Target},
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

/// Has the API server of the cluster show that it asks this fipd. Where another webhook refuses everything, its refusal may come
/// first: then it counts that fipd was asked.
///
/// # Errors
/// Why that is not known, or is not so.
pub async fn prove(remote: &Remote, asks: &Asks, cluster: &str) -> Result<(), String> {
    let own = Proof::own().ok_or("the system has no random numbers")?;
    let (target, object) = (asks.sample.target(&own), asks.sample.object(&own));
    let before = Proof::times_asked(cluster);
    let result = remote.create_dry(&target, &object).await;
    let text = result.as_ref().err().map(ToString::to_string);
    match verdict(result, &own, &asks.sample) {
        Verdict::InForce => Ok(()),
        Verdict::NotAsked => Err("the API server would have stored what fipd refuses".to_owned()),
        Verdict::Unproved(_) | Verdict::Nothing if Proof::times_asked(cluster) > before => Ok(()),
        Verdict::Unproved(why) => Err(why),
        Verdict::Nothing => Err(text.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        controller::client::testing::serving,
        systems::{ip_rule, rancher_fip::admission::ASKS},
    };

    #[tokio::test]
    async fn a_webhook_that_was_asked_beside_one_that_refuses_is_proved() {
        let own = Proof::own().unwrap();
        let denied = format!(
            "admission webhook \"a\" denied the request: {}",
            own.refusal
        );
        let down = "failed calling webhook \"stock\": no endpoints available";
        for (cluster, code, text, asked, proved) in [
            ("refuses", 403, denied.as_str(), false, true),
            ("asks-beside-a-dead-one", 500, down, true, true),
            ("has-a-dead-one", 500, down, false, false),
            ("does-not-ask", 200, "", false, false),
            ("ignores-the-answer", 200, "", true, false),
        ] {
            let text = json!(text);
            let (remote, _) = serving(move |_| {
                if asked {
                    Proof::note_asked(cluster);
                }
                (code, text.clone())
            });
            let proof = prove(&remote, &ASKS, cluster).await;
            assert_eq!(proof.is_ok(), proved, "{cluster}: {proof:?}");
        }
    }

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
