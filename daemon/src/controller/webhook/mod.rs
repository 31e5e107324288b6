//! Keeps the configuration by which the API server of a cluster asks fipd before it stores objects of a system: made, repaired, and removed where it is switched off. Runs only where fipd leads. What the original left is
//! not touched.

mod ca;
mod own_user;
mod plan;
mod proof;

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use rustls::{RootCertStore, pki_types::UnixTime};
use serde_json::Value;
use tokio::{task::JoinSet, time::Instant};

use self::ca::NoCa;
pub use self::own_user::OwnUser;
use self::own_user::whoami;
use self::plan::{Step, WantedWebhook, certificates, is_so, original, repair, step};
pub use self::proof::prove;
use self::proof::{Verdict, trouble, verdict};
use super::site::Site;
use crate::{
    admission::{Asks, proof::Proof},
    config::{FailurePolicy, WEBHOOK_FAILS, Webhook, host_of},
    controller::{
        client::{CallError, Patch, Remote, Target},
        endpoint::OwnEndpoint,
        events::Events,
        kind::{Kind, VALIDATING_WEBHOOK_CONFIGURATION},
        store::Key,
    },
    foreign_file,
};

/// How often it is looked at: a CA that is published is known to the API server by then.
const LOOK: Duration = Duration::from_secs(10);
/// How long nothing is tried where the API server refuses.
const REFUSED: Duration = Duration::from_secs(60);
/// How often a webhook that is in force is proved again.
const PROVE: Duration = Duration::from_secs(60);
/// The parts of the cluster's state that say what is wrong: of the object, and of what the API server makes of it.
const OBJECT: &str = "admission-webhook";
const POLICY: &str = "admission-webhook-policy";
const PROOF: &str = "admission-webhook-proof";

struct WebhookKeeper {
    asks: &'static Asks,
    settings: Webhook,
    site: Arc<Site>,
    remote: Remote,
    events: Arc<Events>,
    own: OwnEndpoint,
    /// What was said in the log.
    said: BTreeSet<String>,
    /// What the API server calls fipd; `None`: not known yet, or it does not say.
    user: Option<String>,
    /// The CA found for the certificate, and what it was found from.
    found: Option<(Material, Result<Option<String>, NoCa>)>,
    /// When the webhook was last seen in force.
    proved: Option<Instant>,
}

/// What decides about the CA: the certificate chain, and Rancher's `cacerts`.
type Material = (Vec<u8>, String);

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
    own: &OwnEndpoint,
    site: &Arc<Site>,
    events: &Arc<Events>,
    tasks: &mut JoinSet<()>,
) {
    let keeper = WebhookKeeper {
        asks,
        settings: settings.clone(),
        remote: Remote::new(site.session.client.clone()),
        site: Arc::clone(site),
        events: Arc::clone(events),
        own: own.clone(),
        said: BTreeSet::new(),
        user: None,
        found: None,
        proved: None,
    };
    tasks.spawn(keeper.run());
}

impl WebhookKeeper {
    async fn run(mut self) {
        let cancel = self.site.cancel();
        self.introduce();
        loop {
            let pause = match self.look().await {
                // What is gone stays so.
                Ok(()) if self.base().is_none() => return cancel.cancelled().await,
                Ok(()) => LOOK,
                Err(error) => {
                    let refused = matches!(error, Failed::Call(CallError::Rejected(..)));
                    let text =
                        format!("the admission webhook is not in its intended state: {error}");
                    self.report(OBJECT, Some(text));
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
        let fails = on && self.settings.failure_policy == FailurePolicy::Fail;
        self.report(POLICY, fails.then(|| WEBHOOK_FAILS.to_owned()));
    }

    /// Shows in the cluster's state, the log and an Event that a part is wrong; `None`: it is right.
    fn report(&mut self, part: &'static str, what: Option<String>) {
        let text = what.as_deref().map(Into::into);
        let changed = self.site.session.troubled(part, text);
        let Some(what) = what.filter(|_| changed) else {
            return;
        };
        tracing::warn!(cluster = %self.site.name, "{what}");
        self.events.warning(
            &VALIDATING_WEBHOOK_CONFIGURATION.reference(&Key::new("", self.asks.name), ""),
            "WebhookNotInForce",
            what,
        );
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
        if self.user.is_none() && self.base().is_some() {
            self.user = whoami(&self.remote).await.ok().flatten();
        }
        let wanted = self.wanted().await?;
        let found: Option<Value> = match self.remote.get(&target(self.asks.name)).await {
            // Sites without it need no right to read it.
            Err(CallError::Rejected(..)) if wanted.is_none() => None,
            found => found?,
        };
        match step(wanted.as_ref(), found.as_ref()) {
            Step::Nothing => {
                if let Some(wanted) = &wanted {
                    self.prove(&wanted.base).await;
                }
            }
            Step::Delete(uid) => {
                self.remote.delete(&target(self.asks.name), &uid).await?;
                tracing::info!(cluster = %self.site.name, name = self.asks.name, "removed the admission webhook");
            }
            Step::Apply(object) => {
                self.apply(&object).await?;
                self.proved = None;
                let again = found.is_some();
                tracing::info!(cluster = %self.site.name, name = self.asks.name, again, "wrote the admission webhook");
            }
        }
        self.report(OBJECT, None);
        if wanted.is_none() {
            self.report(PROOF, None);
        }
        if let (Some(_), Some(original)) = (&wanted, &self.asks.original) {
            self.look_at_original(original.name).await?;
        }
        Ok(())
    }

    async fn apply(&self, object: &Value) -> Result<(), CallError> {
        let target = target(self.asks.name);
        let now: Value = (self.remote.patch_seen(&target, Patch::Apply, object)).await?;
        if is_so(&now, object) {
            return Ok(());
        }
        // Others own fields of it that an apply leaves alone.
        let whole = repair(&now, object);
        self.remote.patch(&target, Patch::Merge, &whole).await
    }

    async fn wanted(&mut self) -> Result<Option<WantedWebhook>, Failed> {
        let Some(base) = self.base().map(str::to_owned) else {
            return Ok(None);
        };
        let file = self.settings.ca_file.as_ref();
        let file = file.or(self.own.ca_file.as_ref()).cloned();
        let ca = match (file, self.own.cert_file.clone()) {
            (Some(file), _) => {
                let unusable = |what: &str| Failed::Ca(format!("{}: {what}", file.display()));
                let text = read(&file).await?;
                let text = String::from_utf8_lossy(&text);
                Some(certificates(&text).map_err(unusable)?)
            }
            (None, Some(file)) => {
                let chain = read(&file).await?;
                // It may be proxied: whether the API server believes what answers is proved.
                self.ca_of(chain, &base).await.unwrap_or_default()
            }
            (None, None) => None,
        };
        Ok(Some(WantedWebhook {
            asks: self.asks,
            base,
            cluster: self.site.name.to_string(),
            ca,
            user: self.user.clone(),
            seconds: self.settings.timeout.0,
        }))
    }

    /// The CA of a certificate that is not fipd's own; `None`: the systems of hosts know it.
    async fn ca_of(&mut self, chain: Vec<u8>, base: &str) -> Result<Option<String>, NoCa> {
        // The CAs of Rancher's site; who may not read the setting does without.
        let setting = SETTING.named("", "cacerts");
        let setting: Option<Value> = self.remote.get(&setting).await.unwrap_or_default();
        let setting = setting.unwrap_or_default();
        let cacerts = setting.get("value").and_then(Value::as_str);
        let material = (chain, cacerts.unwrap_or_default().to_owned());
        if let Some((before, found)) = &self.found
            && *before == material
        {
            return found.clone();
        }
        let host = host_of(base).unwrap_or_default();
        let of = material.clone();
        let finding = tokio::task::spawn_blocking(move || {
            let mut system = RootCertStore::empty();
            // One that cannot be read is as if it were not there.
            system.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            ca::of_chain(&of.0, &host, &[&of.1], &system, UnixTime::now())
        });
        let found = finding.await;
        let found = found.unwrap_or_else(|error| Err(NoCa::Certificate(error.to_string())));
        self.found = Some((material, found.clone()));
        found
    }

    /// Has the API server show that it asks this fipd.
    async fn prove(&mut self, base: &str) {
        if self.proved.is_some_and(|at| at.elapsed() < PROVE) {
            return;
        }
        let Some(own) = Proof::own() else {
            return;
        };
        let sample = &self.asks.sample;
        let (target, object) = (sample.target(&own), sample.object(&own));
        let result = self.remote.create_dry(&target, &object).await;
        let verdict = verdict(result, &own, sample);
        self.proved = (verdict == Verdict::InForce).then(Instant::now);
        if verdict != Verdict::Nothing {
            let mut text = trouble(&verdict, self.asks, base);
            if let (Some(text), Some((_, Err(no_ca)))) = (&mut text, &self.found) {
                text.push_str(&format!(". {no_ca}"));
            }
            self.report(PROOF, text);
        }
    }

    /// Says that the original's configuration is still there, if it may be in the way.
    async fn look_at_original(&mut self, name: &str) -> Result<(), CallError> {
        let found = match self.remote.get(&target(name)).await {
            Ok(found) => found,
            // Who may not look is not told of it.
            Err(CallError::Rejected(..)) => None,
            Err(error) => return Err(error),
        };
        let found: Value = found.unwrap_or_default();
        let text = original(self.asks, &found, &self.site.name);
        let Some(text) = text.filter(|text| !self.said.contains(text)) else {
            return Ok(());
        };
        let uid = found.pointer("/metadata/uid").and_then(Value::as_str);
        let reference = VALIDATING_WEBHOOK_CONFIGURATION
            .reference(&Key::new("", name), uid.unwrap_or_default());
        self.events
            .warning(&reference, "OriginalWebhook", text.clone());
        self.say(text);
        Ok(())
    }
}

fn target(name: &str) -> Target {
    VALIDATING_WEBHOOK_CONFIGURATION.named("", name)
}

async fn read(file: &Path) -> Result<Vec<u8>, Failed> {
    let read = foreign_file::read(file, foreign_file::LONGEST).await;
    read.map_err(|error| Failed::Ca(format!("{}: {error}", file.display())))
}

/// Rancher's.
const SETTING: Kind = Kind::cluster("apis/management.cattle.io/v3", "settings", "Setting");

#[cfg(test)]
mod tests {
    use fipd_core::System;
    use fipd_crds::labels::{FIELD_MANAGER, MANAGED_BY};
    use serde_json::json;

    use super::*;
    use crate::{
        admission::Sample,
        clock,
        clusters::testing,
        controller::{client::testing::serving, fake_api_tests::client},
        ipam::Ipam,
    };

    static ASKS: Asks = Asks {
        system: "test",
        name: "fipd-validator",
        kinds: &[],
        versions: &[],
        sample: Sample {
            api: "",
            kind: "",
            plural: "",
            namespace: "",
            spec: "{}",
            role: "",
        },
        original: None,
    };

    /// One of a webhook that is switched off.
    async fn keeper(remote: Remote, ipam: &Ipam) -> WebhookKeeper {
        let session = testing::session(client(&Arc::default()), ipam).await;
        let site = Arc::new(Site::new(session.clone(), System::cluster_api()));
        let quiet = || std::future::ready(());
        let events = Events::start(session.recorder.clone(), site.cancel(), quiet);
        WebhookKeeper {
            asks: &ASKS,
            settings: Webhook {
                enabled: Some(false),
                ..Webhook::default()
            },
            site,
            remote,
            events: Arc::new(events),
            own: OwnEndpoint::default(),
            said: BTreeSet::new(),
            user: None,
            found: None,
            proved: None,
        }
    }

    #[tokio::test]
    async fn what_is_not_asked_for_is_removed_where_it_is_fipds() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let own = json!({ "metadata": { "uid": "u", "labels": { MANAGED_BY: FIELD_MANAGER } } });
        let other = json!({ "metadata": { "uid": "u" } });
        for (code, body, calls) in [
            (200, own, 2),
            (200, other, 1),
            (403, json!("forbidden"), 1),
            (404, json!("not found"), 1),
        ] {
            let (remote, asked) = serving(move |_| (code, body.clone()));
            let removed = keeper(remote, &ipam).await.look().await;
            removed.expect("it is not there");
            assert_eq!(asked.lock().len(), calls, "{code}");
        }
        let (remote, _) = serving(|_| (503, json!("down")));
        let removed = keeper(remote, &ipam).await.look().await;
        assert!(removed.is_err(), "it is looked for again");
    }
}
