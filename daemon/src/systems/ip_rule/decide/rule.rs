//! IPRules: what became of each, and the end of those that are deleted.

use std::sync::Arc;

use fipd_crds::ip_rule::{IPRule, RULE_FINALIZER};
use k8s_openapi::jiff;

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
        ReconcileError, context::Context, meta::Meta, queue::Next, reconcile::Controller,
        store::Key,
    },
    systems::ip_rule::validate::warnings,
};

/// The controller of the IPRules, one by one.
pub struct Rules(pub Arc<Decider>);

impl Controller for Rules {
    type View = Rule;

    const METRIC: &'static str = "iprule";
    const WORKERS: usize = 4;

    fn context(&self) -> &Context<Rule> {
        &self.0.rules
    }

    async fn reconcile(&self, key: &Key, rule: Option<Arc<Rule>>) -> Result<Next, ReconcileError> {
        if let Some(rule) = rule {
            self.0.show_rule(key, &rule).await?;
        }
        Ok(Next::Done)
    }

    async fn release(
        &self,
        key: &Key,
        meta: &Meta,
        _: Option<Arc<Rule>>,
    ) -> Result<Next, ReconcileError> {
        self.0.end_rule(key, meta).await.map(|()| Next::Done)
    }
}

impl Decider {
    pub(super) async fn protect(&self, rule: &Rule) -> Result<(), ReconcileError> {
        let key = Key::new("", &rule.meta.name);
        let add = self
            .rules
            .add_finalizer::<IPRule>(&key, &rule.meta, RULE_FINALIZER);
        if let Some(after) = add.await? {
            let rules = &self.rules.objects;
            rules.update(&key, observe::rule(after), Rule::is_after);
        }
        Ok(())
    }

    /// Brings the status of one IPRule up to date.
    async fn show_rule(&self, key: &Key, rule: &Rule) -> Result<(), ReconcileError> {
        let Some(plan) = self.plan.lock().clone() else {
            return Ok(());
        };
        let Some(told) = plan.rules.get(&key.name) else {
            return Ok(());
        };
        let after = status::of_rule(rule, told, jiff::Timestamp::now());
        let (uid, change) = (&rule.meta.uid, (&rule.status, &after));
        let write = self.rules.write_status_seen::<_, IPRule>(key, uid, change);
        if let Some(after) = write.await? {
            let rules = &self.rules.objects;
            rules.update(key, observe::rule(after), Rule::is_after);
        }
        self.tell(rule, told);
        Ok(())
    }

    /// Its finalizer goes after its last IPRuleConfig, and that after its last rule on a node.
    async fn end_rule(&self, key: &Key, meta: &Meta) -> Result<(), ReconcileError> {
        let mine = |config: &Config| config.owners.iter().any(|owner| owner.uid == meta.uid);
        let configs = self.configs.objects.all();
        // Until the next look at all, IPRuleConfigs may still be made of it.
        let counts = self
            .plan
            .lock()
            .as_ref()
            .is_none_or(|plan| plan.rules.contains_key(&key.name));
        if counts || configs.iter().any(|(_, config)| mine(config)) {
            return Ok(());
        }
        self.rules.drop_finalizer(key, meta, RULE_FINALIZER).await
    }

    fn tell(&self, rule: &Rule, told: &Told) {
        let reference = RULE.reference(&Key::new("", &rule.meta.name), &rule.meta.uid);
        match told {
            Told::Wrong(wrong) => {
                self.rules
                    .events
                    .warning(&reference, status::rejected(rule), status::wrong(wrong))
            }
            Told::PodsUnknown => {
                self.rules
                    .events
                    .warning(&reference, status::PODS_UNKNOWN, status::PODS);
            }
            Told::Counts { lost, .. } => {
                if let Some((reason, message)) = status::lost(lost) {
                    self.rules.events.warning(&reference, reason, message);
                }
                for warning in warnings(&rule.spec) {
                    self.rules
                        .events
                        .warning(&reference, "Questionable", warning);
                }
            }
        }
    }
}
