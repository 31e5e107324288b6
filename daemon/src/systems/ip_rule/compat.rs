//! Flags and variables of ip-rule-operator's manager and agent.

use super::settings::IpRuleSettings;
use crate::config::{
    Serve, TypedSettings as _,
    compat::{self, CompatFlag, Form},
};

const METRICS: Serve = Serve::SystemMetrics(IpRuleSettings::NAME);
const CERTIFICATE: &str = "The metrics have the certificate of `[api]`.";
const WEBHOOK: &str =
    "fipd makes the certificate of its webhook and keeps the webhook's CA up to date.";
const ZAP: &str = "The form of the log is `--log-format`.";

/// All of them.
pub(super) static FLAGS: &[CompatFlag] = &[
    CompatFlag::kubeconfig(
        "The cluster with `systems = [\"ip-rule\"]`, which is added where there is none.",
    )
    .or("KUBECONFIG"),
    CompatFlag::sets(
        "leader-elect",
        "cluster[*].ip-rule.leader-elect",
        |config, value| {
            compat::set::<IpRuleSettings, _>(config, value.switch()?, |one| &mut one.leader_elect)
        },
        "The Lease `fed43742.brtrm.dev`; held by default, which the original does only by this flag.",
    )
    .form(Form::Switch),
    CompatFlag::sets(
        "metrics-bind-address",
        "listener[metrics:ip-rule].address",
        |config, value| compat::listen(config, value, &[METRICS], true),
        "With TLS, without the login that the original asks for: listen where only those come who may. `0` is none.",
    ),
    CompatFlag::sets(
        "metrics-secure",
        "listener[metrics:ip-rule].tls",
        |config, value| compat::listen_with_tls(config, value, METRICS),
        "`false`: without TLS.",
    )
    .form(Form::Switch),
    compat::PROBES,
    compat::ZAP_LEVEL,
    CompatFlag::nothing("zap-devel", ZAP).form(Form::Switch),
    CompatFlag::nothing("zap-encoder", ZAP),
    CompatFlag::nothing("zap-stacktrace-level", "fipd logs no stack traces."),
    CompatFlag::nothing("zap-time-encoding", ZAP),
    CompatFlag::nothing("metrics-cert-path", CERTIFICATE),
    CompatFlag::nothing("metrics-cert-name", CERTIFICATE),
    CompatFlag::nothing("metrics-cert-key", CERTIFICATE),
    CompatFlag::nothing("webhook-cert-path", WEBHOOK),
    CompatFlag::nothing("webhook-cert-name", WEBHOOK),
    CompatFlag::nothing("webhook-cert-key", WEBHOOK),
    CompatFlag::nothing("enable-http2", "Client and server agree on it.").form(Form::Switch),
    CompatFlag::nothing("", IMAGE)
        .or("RELATED_IMAGE_AGENT_IMAGE")
        .always(),
    CompatFlag::nothing("", IMAGE).or("AGENT_IMAGE").always(),
    CompatFlag::nothing("", AGENT).or("NODE_NAME").always(),
    CompatFlag::nothing("", AGENT).or("RECONCILE_PERIOD").always(),
    CompatFlag::nothing("", AGENT).or("METRICS_ADDR").always(),
];
const IMAGE: &str = "Is `[cluster.ip-rule] agent-image` where that is left out.";
const AGENT: &str = "Of the agent: read with `role = \"agent\"`, where the file does not say it.";

#[cfg(test)]
#[path = "compat_tests.rs"]
mod tests;
