//! IPRules: what became of each, and the end of those that are deleted.

use std::sync::Arc;

use fipd_crds::ip_rule::{IPRule, RULE_FINALIZER};
use k8s_openapi::jiff;

use super::{
    super::{
        observe::{Config, Rule},
        plan::Told,
        status,
    },
    Decider,
};
use crate::{
    controller::{
        Reconciled, context::Context, meta::Meta, queue::Next, reconcile::Controller, store::Key,
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

    async fn reconcile(&self, key: &Key, rule: Option<Arc<Rule>>) -> Reconciled {
        if let Some(rule) = rule {
            self.0.show_rule(key, &rule).await?;
        }
        Ok(Next::Done)
    }

    async fn release(&self, key: &Key, meta: &Meta, _: Option<Arc<Rule>>) -> Reconciled {
        self.0.end_rule(key, meta).await.map(|()| Next::Done)
    }
}

impl Decider {
    pub(super) async fn protect(&self, rule: &Rule) -> Reconciled<()> {
        let key = Key::new("", &rule.meta.name);
        let add = self
            .rules
            .add_finalizer::<IPRule>(&key, &rule.meta, RULE_FINALIZER);
        if let Some(after) = add.await? {
            self.rules.objects.keep(&key, Rule::of(after));
        }
        Ok(())
    }

    /// Brings the status of one IPRule up to date.
    async fn show_rule(&self, key: &Key, rule: &Rule) -> Reconciled<()> {
        let Some(plan) = self.plan.lock().clone() else {
            return Ok(());
        };
        let Some(told) = plan.rules.get(&key.name) else {
            return Ok(());
        };
        let after = status::of_rule(rule, told, jiff::Timestamp::now());
        let (uid, change) = (&rule.meta.uid, (&rule.status, &after));
        let view = Rule::of::<IPRule>;
        self.rules.show_status(key, uid, change, view).await?;
        self.tell(key, rule, told);
        Ok(())
    }

    /// Its finalizer goes after its last IPRuleConfig, and that after its last rule on a node.
    async fn end_rule(&self, key: &Key, meta: &Meta) -> Reconciled<()> {
        let mine = |config: &Config| config.owners.iter().any(|owner| owner.uid == meta.uid);
        let configs = self.configs.objects.all();
        // Until the next look at all, IPRuleConfigs may still be made of it.
        let plan = self.plan.lock().clone();
        let counts = plan.is_none_or(|plan| plan.rules.contains_key(&key.name));
        if counts || configs.iter().any(|(_, config)| mine(config)) {
            return Ok(());
        }
        self.rules.drop_finalizer(key, meta, RULE_FINALIZER).await
    }

    fn tell(&self, key: &Key, rule: &Rule, told: &Told) {
        let warn = |reason, note: String| self.rules.warn(key, &rule.meta.uid, reason, note);
        match told {
            Told::Wrong(wrong) => warn(status::rejected(rule), status::wrong(wrong)),
            Told::PodsUnknown => warn(status::PODS_UNKNOWN, status::PODS.to_owned()),
            Told::Counts { lost, .. } => {
                if let Some((reason, message)) = status::lost(lost) {
                    warn(reason, message);
                }
                for warning in warnings(&rule.spec) {
                    warn("Questionable", warning);
                }
            }
        }
    }
}
