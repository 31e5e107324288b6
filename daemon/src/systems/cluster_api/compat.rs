//! Flags of capi-vip-allocator, with the meaning that its README gives them.

use std::num::NonZeroU16;

use super::settings::ClusterApiSettings;
use crate::config::{
    Config, Serve, TypedSettings as _,
    compat::{self, CompatFlag, CompatValue, Form},
};

const METRICS: Serve = Serve::SystemMetrics(ClusterApiSettings::NAME);
const ZAP: &str = "The form of the log is `--log-format`.";

/// Those of its own, then those that every such program has.
pub(super) static FLAGS: &[CompatFlag] = &[
    CompatFlag::sets(
        "enable-reconciler",
        "cluster[*].cluster-api.vips",
        |config, value| {
            let on = value.switch()?;
            compat::set::<ClusterApiSettings, _>(config, on, |one| &mut one.vips)
        },
        "Whether Clusters get their addresses. They do by default, as the original's README says.",
    )
    .form(Form::Switch),
    CompatFlag::sets(
        "enable-runtime-extension",
        "cluster[*].cluster-api.hook",
        |config, value| {
            let on = value.switch()?;
            each(config, |settings| {
                settings.hook = on.then(|| settings.hook.take().unwrap_or_default());
            });
            Ok(())
        },
        "`true` registers fipd's own hook, which needs `[api] advertise`. There is none by default, as the original's README says.",
    )
    .form(Form::Switch),
    CompatFlag::sets(
        "runtime-extension-port",
        "listener[hooks].address",
        extension_port,
        "Where the hook is registered: one more port for it, with TLS; `[api] advertise` stays the URL that Cluster API calls.",
    )
    .form(Form::Number),
    CompatFlag::nothing(
        "runtime-extension-name",
        "fipd names its handler and its ExtensionConfig itself: `fipd-vip`.",
    ),
    CompatFlag::sets(
        "leader-elect",
        "cluster[*].cluster-api.leader-elect",
        |config, value| {
            let elect = value.switch()?;
            compat::set::<ClusterApiSettings, _>(config, elect, |one| &mut one.leader_elect)
        },
        "Also of the in-cluster provider's Lease. Held by default, which the original does only by this flag.",
    )
    .form(Form::Switch),
    CompatFlag::sets(
        "default-port",
        "cluster[*].cluster-api.default-port",
        |config, value| {
            let port = value.text.parse::<NonZeroU16>();
            let port = port.map_err(|_| "allowed is a port, 1 to 65535".to_owned())?;
            compat::set::<ClusterApiSettings, _>(config, port, |one| &mut one.default_port)
        },
        "Port of a control plane whose Cluster names none.",
    )
    .form(Form::Number),
    CompatFlag::sets(
        "metrics-bind-address",
        "listener[metrics:cluster-api].address",
        |config, value| compat::listen(config, value, &[METRICS], false),
        "`/metrics`, without TLS; `0` is none.",
    )
    .default(":8080"),
    compat::PROBES,
    CompatFlag::kubeconfig(
        "The cluster with `systems = [\"cluster-api\"]`, which is added where there is none.",
    )
    .or("KUBECONFIG"),
    compat::ZAP_LEVEL,
    CompatFlag::nothing("zap-devel", ZAP).form(Form::Switch),
    CompatFlag::nothing("zap-encoder", ZAP),
    CompatFlag::nothing("zap-stacktrace-level", "fipd logs no stack traces."),
    CompatFlag::nothing("zap-time-encoding", ZAP),
];

/// Changes the settings of each cluster that has them.
fn each(config: &mut Config, mut change: impl FnMut(&mut ClusterApiSettings)) {
    let clusters = config.clusters.iter_mut();
    let all = clusters.filter_map(|one| one.settings.get_mut::<ClusterApiSettings>());
    all.for_each(&mut change);
}

/// As the original, it listens only where its extension is on.
fn extension_port(config: &mut Config, value: &CompatValue) -> Result<(), String> {
    let mut hooked = false;
    each(config, |settings| hooked |= settings.hook.is_some());
    match hooked {
        true => compat::listen(config, value, &[Serve::Hooks], true),
        false => value.address().map(drop),
    }
}

#[cfg(test)]
#[path = "compat_tests.rs"]
mod tests;
