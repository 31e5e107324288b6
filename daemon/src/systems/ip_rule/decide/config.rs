//! IPRuleConfigs: each is brought to what is wanted, or away.

use std::{sync::Arc, time::Duration};

use fipd_core::Text;
use fipd_crds::ip_rule::{CONFIG_FINALIZER, IPRule, IPRuleConfig};
use k8s_openapi::jiff;
use serde_json::Value;
use tokio::time::Instant;

use super::super::metrics as figures;
use super::{
    super::{
        agent::standing::active,
        config_change::{ConfigChange, ConfigPatience, Scope, named, plan_change},
        names::{CONFIG, RULE},
        observe::{self, Config},
        status,
    },
    Decider,
};
use crate::{
    clock,
    controller::{
        ReconcileError, Reconciled, client::Patch, context::Context, meta::Meta, queue::Next,
        reconcile::Controller, store::Key,
    },
    systems::ip_rule::settings::IpRuleSettings,
};

/// How long it is believed that this cluster is the one that it was.
const BELIEVED: Duration = Duration::from_secs(10);
/// Nodes that do not answer are looked at so often at the least.
const WAIT: Duration = Duration::from_secs(30);

/// The controller of the IPRuleConfigs, one by one.
pub struct Configs(pub Arc<Decider>);

impl Controller for Configs {
    type View = Config;

    const METRIC: &'static str = "ipruleconfig";
    const WORKERS: usize = 16;

    fn context(&self) -> &Context<Config> {
        &self.0.configs
    }

    async fn reconcile(&self, key: &Key, found: Option<Arc<Config>>) -> Reconciled {
        self.0.bring(key, found).await
    }

    /// The nodes keep the rule of one that does not fit its schema until it is gone.
    async fn release(&self, key: &Key, meta: &Meta, found: Option<Arc<Config>>) -> Reconciled {
        match found {
            Some(found) => self.0.bring(key, Some(found)).await,
            None => {
                let drop = self.0.configs.drop_finalizer(key, meta, CONFIG_FINALIZER);
                drop.await.map(|()| Next::Done)
            }
        }
    }
}

impl Decider {
    /// Brings one IPRuleConfig to what is wanted.
    async fn bring(&self, key: &Key, found: Option<Arc<Config>>) -> Reconciled {
        let Some(plan) = self.plan.lock().clone() else {
            return Ok(Next::Done);
        };
        let owner = found.as_ref().and_then(|found| found.owner());
        let held = owner.is_some_and(|owner| plan.held.contains(&owner.name));
        let nodes = self.node_map();
        let agents = self.agents.all();
        let scope = Scope {
            nodes: &nodes,
            rule: owner.and_then(|owner| plan.nodes.get(&owner.name)),
            agent: active(&agents).map(|agent| &agent.spec.node_selector),
            patience: self.patience(),
        };
        let wanted = plan.wanted.get(&key.name);
        let step = plan_change(
            &key.name,
            wanted,
            held,
            found.as_deref(),
            &scope,
            clock::now(),
        );
        let next = self.apply(key, step, found.as_deref()).await?;
        if let Some(owner) = owner {
            self.rules.queue.add(Key::new("", &owner.name));
        }
        Ok(next)
    }

    async fn apply(&self, key: &Key, step: ConfigChange, found: Option<&Config>) -> Reconciled {
        let target = CONFIG.target(key);
        let remote = &self.configs.remote;
        let merge = async |patch: Value| -> Reconciled<IPRuleConfig> {
            Ok(remote.patch_seen(&target, Patch::Merge, &patch).await?)
        };
        let written = match (step, found) {
            (ConfigChange::Create(object), _) => {
                let made: IPRuleConfig = remote.create_seen(&target, &object).await?;
                figures::KEPT.created.inc();
                if self.configs.objects.seen(key).is_none() {
                    self.configs.objects.set(key, observe::config(made.clone()));
                }
                made
            }
            (ConfigChange::Repair(patch), _) => {
                let made = merge(patch).await?;
                figures::KEPT.updated.inc();
                made
            }
            (ConfigChange::Retire(patch), Some(found)) => {
                self.trusted(found).await?;
                let made = merge(patch).await?;
                if found.is_present() {
                    figures::KEPT.marked_absent.inc();
                }
                made
            }
            (ConfigChange::Wait(nodes), _) => {
                tracing::debug!(
                    name = &*key.name,
                    ?nodes,
                    "waiting for nodes to remove the rule"
                );
                let patience = self.patience().unready;
                return Ok(Next::After(
                    WAIT.min(patience / 2 + Duration::from_millis(500)),
                ));
            }
            (ConfigChange::Delete(unheard), Some(found)) => {
                let (uid, version) = (&found.meta.uid, &found.meta.version);
                if !found.meta.is_terminating() {
                    remote.delete_version(&target, uid, version).await?;
                }
                self.disown(key, found).await?;
                self.tell_unheard(found, &unheard);
                return Ok(Next::Done);
            }
            (ConfigChange::Disown, Some(found)) => {
                self.disown(key, found).await?;
                return Ok(Next::Done);
            }
            (ConfigChange::Nothing, _)
            | (ConfigChange::Retire(_) | ConfigChange::Delete(_) | ConfigChange::Disown, None) => {
                return Ok(Next::Done);
            }
        };
        self.configs.objects.keep(key, observe::config(written));
        self.configs.queue.add(key.clone());
        Ok(Next::Done)
    }

    fn patience(&self) -> ConfigPatience {
        let settings = self.site.session.settings.of::<IpRuleSettings>();
        ConfigPatience {
            unready: settings.node_timeout,
            silent: settings.silent_timeout.max(settings.node_timeout),
        }
    }

    /// Nodes on which the rule may be left.
    fn tell_unheard(&self, config: &Config, unheard: &[Text]) {
        let (Some(owner), false) = (config.owner(), unheard.is_empty()) else {
            return;
        };
        let key = Key::new("", &owner.name);
        let note = status::unheard(&config.meta.name, unheard, self.patience().silent);
        tracing::warn!(name = &*config.meta.name, nodes = ?named(unheard), "{note}");
        self.rules.warn(&key, &owner.uid, "NodeSilent", note);
    }

    async fn disown(&self, key: &Key, found: &Config) -> Reconciled<()> {
        let configs = &self.configs;
        configs
            .drop_finalizer(key, &found.meta, CONFIG_FINALIZER)
            .await
    }

    /// That no wrong list makes rules go: the cluster must be the one that it was, and an IPRule that is in no list must
    /// not be there.
    async fn trusted(&self, config: &Config) -> Reconciled<()> {
        let verified = *self.verified.lock();
        if verified.is_none_or(|at| at.elapsed() > BELIEVED) {
            let verified = self.site.session.verify_identity().await;
            verified.map_err(|error| ReconcileError::internal(error.to_string()))?;
            *self.verified.lock() = Some(Instant::now());
        }
        let Some(owner) = config.owner() else {
            return Ok(());
        };
        let key = Key::new("", &owner.name);
        if self.rules.objects.seen(&key).is_some() {
            return Ok(());
        }
        let there: Option<IPRule> = self.rules.remote.get(&RULE.target(&key)).await?;
        let same = there.is_some_and(|rule| rule.metadata.uid.as_deref() == Some(&*owner.uid));
        match same {
            true => Err(ReconcileError::internal(format!(
                "IPRule {} is there and was in no list",
                owner.name
            ))),
            false => Ok(()),
        }
    }

    /// Says on an IPRuleConfig which nodes have it.
    pub async fn show(self: Arc<Self>, key: Key) -> Next {
        match self.try_show(&key).await {
            Ok(()) => Next::Done,
            Err(trouble) => trouble.next(CONFIG.kind, &key),
        }
    }

    async fn try_show(&self, key: &Key) -> Reconciled<()> {
        let (Some(plan), Some(config)) = (self.plan.lock().clone(), self.configs.objects.get(key))
        else {
            return Ok(());
        };
        if !config.is_ours() || config.meta.is_terminating() {
            return Ok(());
        }
        let nodes = self.node_map();
        let agents = self.agents.all();
        let owner = config.owner();
        let scope = Scope {
            nodes: &nodes,
            rule: owner.and_then(|owner| plan.nodes.get(&owner.name)),
            agent: active(&agents).map(|agent| &agent.spec.node_selector),
            patience: ConfigPatience::default(),
        };
        let after = status::of_config(&config, &scope, jiff::Timestamp::now());
        let (uid, change) = (&config.meta.uid, (&config.status, &after));
        let show = self.configs.show_status(key, uid, change, observe::config);
        show.await
    }
}
