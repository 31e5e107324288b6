//! Keeps the configuration by which the API server of a cluster asks fipd before it stores objects of a system: made, repaired, and removed where it is switched off. Runs only where fipd leads. What the original left is
//! not touched.

mod plan;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use fipd_crds::labels::WEBHOOK_CONFIGURATION;
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::Value;
use tokio::task::JoinSet;

pub use self::plan::{Asks, IP_RULE, IP_RULE_VALIDATOR, RANCHER_FIP, RANCHER_FIP_VALIDATOR};
use self::plan::{Step, Wanted, certificates, is_so, original, repair, step};
use super::{rancher_fip::guests::Own, site::Site};
use crate::{
    config::{FailurePolicy, WEBHOOK_FAILS, Webhook},
    controllers::{
        events::Events,
        remote::{CallError, Patch, Remote, Target},
    },
    foreign_file,
};

/// How often it is looked at: a CA that is published is known to the API server by then.
const LOOK: Duration = Duration::from_secs(10);
/// How long nothing is tried where the API server refuses.
const REFUSED: Duration = Duration::from_secs(60);

struct Keeper {
    asks: &'static Asks,
    settings: Webhook,
    site: Arc<Site>,
    remote: Remote,
    events: Arc<Events>,
    own: Own,
    /// What was said in the log.
    said: BTreeSet<String>,
}

/// Why the configuration is not as it is to be.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{0}")]
    Ca(String),
}

/// Keeps it for as long as the session of the site goes on.
pub fn keep(
    asks: &'static Asks,
    settings: &Webhook,
    own: &Own,
    site: &Arc<Site>,
    events: &Arc<Events>,
    tasks: &mut JoinSet<()>,
) {
    let keeper = Keeper {
        asks,
        settings: settings.clone(),
        remote: Remote::new(site.session.client.clone()),
        site: Arc::clone(site),
        events: Arc::clone(events),
        own: own.clone(),
        said: BTreeSet::new(),
    };
    tasks.spawn(keeper.run());
}

impl Keeper {
    async fn run(mut self) {
        let cancel = self.site.cancel();
        self.introduce();
        loop {
            let pause = match self.look().await {
                Ok(()) => LOOK,
                Err(error) => {
                    let refused = matches!(error, Failed::Call(CallError::Rejected(..)));
                    self.say(format!(
                        "the admission webhook is not as it is to be: {error}"
                    ));
                    if refused { REFUSED } else { LOOK }
                }
            };
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn base(&self) -> Option<&str> {
        self.settings.base(self.own.url.as_deref())
    }

    fn introduce(&mut self) {
        let on = self.base().is_some();
        if !on && self.settings.enabled != Some(false) {
            self.say(
                "no admission webhook is installed: [api] advertise does not say where the API server reaches fipd; the \
                 controllers enforce the same rules"
                    .to_owned(),
            );
        }
        if on && self.settings.failure_policy == FailurePolicy::Fail {
            self.say(WEBHOOK_FAILS.to_owned());
        }
    }

    /// Says it once.
    fn say(&mut self, what: String) {
        if !self.said.contains(&what) {
            tracing::warn!(cluster = %self.site.name, "{what}");
            self.said.insert(what);
        }
    }

    /// Looks once, and writes what differs.
    async fn look(&mut self) -> Result<(), Failed> {
        let wanted = self.wanted().await?;
        let found: Option<Value> = self.remote.get(&target(self.asks.name)).await?;
        match step(wanted.as_ref(), found.as_ref()) {
            Step::Nothing => {}
            Step::Delete(uid) => {
                self.remote.delete(&target(self.asks.name), &uid).await?;
                tracing::info!(cluster = %self.site.name, name = self.asks.name, "removed the admission webhook");
            }
            Step::Apply(object) => {
                self.apply(&object).await?;
                let again = found.is_some();
                tracing::info!(cluster = %self.site.name, name = self.asks.name, again, "wrote the admission webhook");
            }
        }
        self.said
            .retain(|what| !what.contains("is not as it is to be"));
        if wanted.is_some() && self.asks == &RANCHER_FIP {
            self.look_at_original().await?;
        }
        Ok(())
    }

    async fn apply(&self, object: &Value) -> Result<(), CallError> {
        let target = target(self.asks.name);
        let now: Value = self
            .remote
            .patch_seen(&target, Patch::Apply, object)
            .await?;
        if is_so(&now, object) {
            return Ok(());
        }
        // Others own fields of it that an apply leaves alone.
        let whole = repair(&now, object);
        self.remote.patch(&target, Patch::Merge, &whole).await
    }

    async fn wanted(&self) -> Result<Option<Wanted>, Failed> {
        let settings = &self.settings;
        let Some(base) = self.base() else {
            return Ok(None);
        };
        let file = settings.ca_file.as_ref().or(self.own.ca_file.as_ref());
        let ca = match file {
            None => None,
            Some(file) => {
                let text = foreign_file::read_text(file, foreign_file::LONGEST).await;
                let text =
                    text.map_err(|error| Failed::Ca(format!("{}: {error}", file.display())))?;
                let found = certificates(&text);
                let found =
                    found.map_err(|what| Failed::Ca(format!("{}: {what}", file.display())))?;
                Some(found)
            }
        };
        Ok(Some(Wanted {
            asks: self.asks,
            base: base.to_owned(),
            cluster: self.site.name.to_string(),
            ca,
            failure_policy: settings.failure_policy,
            seconds: settings.timeout.0,
        }))
    }

    /// Says that the original's configuration is still there, if it may be in the way.
    async fn look_at_original(&mut self) -> Result<(), CallError> {
        let found = match self.remote.get(&target(WEBHOOK_CONFIGURATION)).await {
            Ok(found) => found,
            // Who may not look is not told of it.
            Err(CallError::Rejected(..)) => None,
            Err(error) => return Err(error),
        };
        let found: Value = found.unwrap_or_default();
        let text = original(&found, &self.site.name);
        let Some(text) = text.filter(|text| !self.said.contains(text)) else {
            return Ok(());
        };
        let uid = found.pointer("/metadata/uid").and_then(Value::as_str);
        let reference = ObjectReference {
            api_version: Some("admissionregistration.k8s.io/v1".to_owned()),
            kind: Some("ValidatingWebhookConfiguration".to_owned()),
            name: Some(WEBHOOK_CONFIGURATION.to_owned()),
            uid: uid.map(str::to_owned),
            ..ObjectReference::default()
        };
        self.events
            .warning(&reference, "OriginalWebhook", text.clone());
        self.say(text);
        Ok(())
    }
}

fn target(name: &str) -> Target {
    Target {
        api: "apis/admissionregistration.k8s.io/v1",
        plural: "validatingwebhookconfigurations",
        namespace: String::new(),
        name: name.to_owned(),
    }
}
