//! IPRules: what became of each, and the end of those that are deleted.

use std::sync::Arc;

use fipd_crds::ip_rule::{IPRule, RULE_FINALIZER};
use k8s_openapi::jiff;
use serde_json::json;

use super::{
    super::{
        names::RULE,
        observe::{self, Config, Rule},
        plan::Told,
        status,
    },
    Decider,
};
use crate::{
    controller::{
        Trouble,
        client::Patch,
        merge::change,
        queue::Next,
        store::{Key, MALFORMED, Seen},
    },
    validation::ip_rule::warnings,
};

impl Decider {
    pub(super) async fn protect(&self, rule: &Rule) -> Result<(), Trouble> {
        // A merge patch replaces the whole list, so it must be the list that was read.
        let mut finalizers = rule.meta.finalizers.clone();
        finalizers.push(RULE_FINALIZER.into());
        let patch = json!({ "metadata": {
            "uid": &*rule.meta.uid, "resourceVersion": rule.meta.version, "finalizers": finalizers,
        } });
        let target = RULE.named("", &rule.meta.name);
        let after: IPRule = self
            .remote
            .patch_seen(&target, Patch::Merge, &patch)
            .await?;
        self.rules.update(
            &Key::new("", &rule.meta.name),
            observe::rule(after),
            Rule::is_after,
        );
        Ok(())
    }

    /// Brings the status of one IPRule up to date, or lets it go once nothing of it is left.
    pub async fn reconcile_rule(self: Arc<Self>, key: Key) -> Next {
        match self.try_rule(&key).await {
            Ok(()) => Next::Done,
            Err(trouble) => trouble.next(RULE.kind, &key),
        }
    }

    async fn try_rule(&self, key: &Key) -> Result<(), Trouble> {
        let rule = match self.rules.seen(key) {
            None => return Ok(()),
            // Its schema says nothing about how it goes.
            Some(Seen::Malformed(object)) if object.meta.deleted.is_some() => {
                return self
                    .end_rule(key, &object.meta.uid, &object.meta.finalizers)
                    .await;
            }
            Some(Seen::Malformed(object)) => {
                let reference = RULE.reference(key, &object.meta.uid);
                self.events.warning(&reference, MALFORMED, object.note());
                return Ok(());
            }
            Some(Seen::Good(rule)) => rule,
        };
        if rule.meta.terminating {
            let meta = &rule.meta;
            return self.end_rule(key, &meta.uid, &meta.finalizers).await;
        }
        let Some(outlook) = self.outlook.lock().clone() else {
            return Ok(());
        };
        let Some(told) = outlook.rules.get(&key.name) else {
            return Ok(());
        };
        let after = status::of_rule(&rule, told, jiff::Timestamp::now());
        let patch =
            change(&rule.status, &after).map_err(|error| Trouble::internal(error.to_string()))?;
        if let Some(patch) = patch {
            let body = json!({ "metadata": { "uid": &*rule.meta.uid }, "status": patch });
            let after: IPRule = self
                .remote
                .patch_status_seen(&RULE.target(key), Patch::Merge, &body)
                .await?;
            self.rules.update(key, observe::rule(after), Rule::is_after);
        }
        self.tell(&rule, told);
        Ok(())
    }

    /// Its finalizer goes after its last IPRuleConfig, and that after its last rule on a node.
    async fn end_rule(&self, key: &Key, uid: &str, finalizers: &[String]) -> Result<(), Trouble> {
        let mine = |config: &Config| config.owners.iter().any(|owner| &*owner.uid == uid);
        let configs = self.configs.all();
        // Until the next look at all, IPRuleConfigs may still be made of it.
        let counts = self
            .outlook
            .lock()
            .as_ref()
            .is_none_or(|outlook| outlook.rules.contains_key(&key.name));
        if counts || configs.iter().any(|(_, config)| mine(config)) {
            return Ok(());
        }
        let target = RULE.target(key);
        self.remote
            .drop_finalizer(&target, uid, finalizers, RULE_FINALIZER)
            .await?;
        Ok(())
    }

    fn tell(&self, rule: &Rule, told: &Told) {
        let reference = RULE.reference(&Key::new("", &rule.meta.name), &rule.meta.uid);
        match told {
            Told::Wrong(wrong) => {
                self.events
                    .warning(&reference, status::INVALID, status::wrong(wrong))
            }
            Told::PodsUnknown => {
                self.events
                    .warning(&reference, status::PODS_UNKNOWN, status::PODS);
            }
            Told::Counts { lost, .. } => {
                if let Some((reason, message)) = status::lost(lost) {
                    self.events.warning(&reference, reason, message);
                }
                for warning in warnings(&rule.spec) {
                    self.events.warning(&reference, "Questionable", warning);
                }
            }
        }
    }
}
