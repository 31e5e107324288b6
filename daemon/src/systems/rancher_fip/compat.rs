//! Flags and variables of the five programs of the rancher-fip family.

use std::path::absolute;

use fipd_core::Text;
use fipd_crds::labels::{API_SERVER_LEASE, MANAGER_LEASE};

use super::settings::RancherFipSettings;
use crate::config::{
    Config, Listener, Rate, Serve, SystemSettings as _, TypedSettings as _,
    compat::{self, CompatFlag, CompatValue, Form},
};

/// Each guest has its own, which fipd leaves to the LB controller there.
const LB_CONTROLLER_LEASE: &str = "rancher-fip-lb-controller-lock";
const METRICS: Serve = Serve::SystemMetrics(RancherFipSettings::NAME);

/// All of them.
pub(super) static FLAGS: &[CompatFlag] = &[
    CompatFlag::kubeconfig(
        "Of all programs; the cluster with `systems = [\"rancher-fip\"]`, which is added where there is none.",
    )
    .or("KUBECONFIG"),
    CompatFlag::sets(
        "kubecontext",
        "cluster[*].context",
        compat::context,
        "Management clusters whose kubeconfig has no `context` in the file. It had no effect in the originals.",
    )
    .or("FIPD_KUBECONTEXT")
    .always(),
    CompatFlag::sets(
        "context",
        "cluster[*].context",
        compat::context,
        "The manager's name for the same.",
    )
    .or("KUBECONTEXT"),
    CompatFlag::sets(
        "app-namespace",
        "cluster[*].rancher-fip.app-namespace",
        |config, value| set(config, value.name()?, |one| &mut one.app_namespace),
        "Of management clusters.",
    )
    .or("FIPD_APP_NAMESPACE")
    .always(),
    CompatFlag::sets(
        "leader-elect",
        "cluster[*].rancher-fip.leader-elect",
        |config, value| set(config, value.switch()?, |one| &mut one.leader_elect),
        "Of management clusters.",
    )
    .or("FIPD_LEADER_ELECT")
    .form(Form::Switch)
    .always(),
    CompatFlag::sets(
        "lease-lock-name",
        "cluster[*].rancher-fip.lease-lock-name",
        lease_lock_name,
        "The cluster manager's Lease. The names that the other programs' Leases have by default change nothing; leave the flag out where such a Lease has a name of its own.",
    )
    .or("FIPD_LEASE_LOCK_NAME")
    .always(),
    CompatFlag::sets(
        "lease-lock-namespace",
        "cluster[*].rancher-fip.lease-lock-namespace",
        |config, value| set(config, value.name()?, |one| &mut one.lease_lock_namespace),
        "Of management clusters.",
    )
    .or("FIPD_LEASE_LOCK_NAMESPACE")
    .always(),
    CompatFlag::sets("", "log-level", compat::log_level, "`--log-level` is fipd's own flag.")
        .or("LOGLEVEL"),
    CompatFlag::sets(
        "http-service-port",
        "listener[ipam].address",
        |config, value| compat::listen(config, value, &[Serve::Ipam, METRICS], false),
        "The manager's port: `/ipam` and `/metrics`, without TLS; `0` is none.",
    )
    .form(Form::Number),
    CompatFlag::sets(
        "http-server-port",
        "listener[health].address",
        |config, value| compat::listen(config, value, &[Serve::Health], false),
        "The LB controller's port: health, without TLS; `0` is none.",
    )
    .form(Form::Number),
    CompatFlag::sets(
        "enable-http-server",
        "listener[health]",
        |config, value| {
            let enabled = value.switch()?;
            let alone = |one: &Listener| one.serve.iter().eq([&Serve::Health]);
            config.listeners.retain(|one| enabled || !alone(one));
            Ok(())
        },
        "`false` leaves the LB controller's port out.",
    )
    .form(Form::Switch),
    CompatFlag::sets(
        "listen-address",
        "listener[fip-v1].address",
        |config, value| compat::listen(config, value, &[Serve::FipV1], false),
        "The API server's port, without TLS unless `--tls-enabled`.",
    ),
    CompatFlag::sets(
        "tls-enabled",
        "listener[fip-v1].tls",
        |config, value| {
            let listens = config.listeners.iter().any(|one| one.serve.contains(&Serve::FipV1));
            if value.switch()? && !listens {
                let default = CompatValue { text: ":8080".to_owned(), ..value.clone() };
                compat::listen(config, &default, &[Serve::FipV1], true)?;
            }
            compat::listen_with_tls(config, value, Serve::FipV1)
        },
        "Of that port; `true` opens it at the original's `:8080` where nothing says another.",
    )
    .form(Form::Switch),
    CompatFlag::sets(
        "tls-cert-file",
        "api.cert",
        |config, value| {
            config.api.cert = Some(absolute(&value.text).map_err(|error| error.to_string())?);
            Ok(())
        },
        "The certificate of all ports of fipd with TLS.",
    ),
    CompatFlag::sets(
        "tls-key-file",
        "api.key",
        |config, value| {
            config.api.key = Some(absolute(&value.text).map_err(|error| error.to_string())?);
            Ok(())
        },
        "Its key.",
    ),
    CompatFlag::sets(
        "rate-limit-per-second",
        "fip-v1.rate-limit-per-second",
        |config, value| {
            config.fip_v1.rate_limit_per_second = rate(value)?;
            Ok(())
        },
        "Calls of one project.",
    )
    .form(Form::Number),
    CompatFlag::sets(
        "rate-limit-burst",
        "fip-v1.rate-limit-burst",
        |config, value| {
            config.fip_v1.rate_limit_burst = rate(value)?;
            Ok(())
        },
        "Of these, at once.",
    )
    .form(Form::Number),
    CompatFlag::nothing("jwt-generate-key", "fipd makes its key for tokens and keeps it in the store.")
        .form(Form::Switch),
    CompatFlag::nothing(
        "jwt-secret-name",
        "`fipd adopt rancher-fip` takes the original's key over, from the Secret `jwt-private-key`.",
    ),
    CompatFlag::nothing("jwt-secret-namespace", "As `--jwt-secret-name`."),
    CompatFlag::nothing("", "fipd renews the certificate of its webhook by itself.")
        .or("CERTRENEWALPERIOD"),
];

/// Changes a setting of all management clusters.
fn set<T: Clone>(
    config: &mut Config,
    to: T,
    setting: impl Fn(&mut RancherFipSettings) -> &mut T,
) -> Result<(), String> {
    let clusters = config.clusters.iter_mut();
    let all = clusters.filter_map(|one| one.settings.get_mut::<RancherFipSettings>());
    for settings in all.filter(|one| one.is_management()) {
        *setting(settings) = to.clone();
    }
    Ok(())
}

fn rate(value: &CompatValue) -> Result<Rate, String> {
    let number: u32 = value.text.parse().map_err(|_| "allowed is a number")?;
    number.try_into()
}

fn lease_lock_name(config: &mut Config, value: &CompatValue) -> Result<(), String> {
    let name: Text = value.name()?;
    match [MANAGER_LEASE, API_SERVER_LEASE, LB_CONTROLLER_LEASE].contains(&&*name) {
        true => Ok(()),
        false => set(config, name, |one| &mut one.lease_lock_name),
    }
}

#[cfg(test)]
#[path = "compat_tests.rs"]
mod tests;
