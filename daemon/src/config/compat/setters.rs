//! What several originals' flags set.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, absolute},
};

use super::CompatValue;
use crate::config::{Config, Listener, Serve, Source, TypedSettings};

/// Reads `ADDRESS:PORT`, or `:PORT` or a port for every address of the host.
pub(in crate::config) fn address(text: &str) -> Option<SocketAddr> {
    let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse::<u16>() else {
        return text.parse().ok();
    };
    // A host without IPv6 has no such file.
    let six = Path::new("/proc/net/if_inet6").exists();
    Some(match six {
        true => (Ipv6Addr::UNSPECIFIED, port).into(),
        false => (Ipv4Addr::UNSPECIFIED, port).into(),
    })
}

/// A level as the originals' loggers name it, in letters of any case.
pub fn level(text: &str) -> Option<&'static str> {
    Some(match &*text.to_ascii_lowercase() {
        "panic" | "fatal" | "dpanic" | "error" => "error",
        "warn" | "warning" => "warn",
        "info" => "info",
        "debug" => "debug",
        "trace" => "trace",
        _ => return None,
    })
}

/// Sets `log-level`.
pub fn log_level(config: &mut Config, value: &CompatValue) -> Result<(), String> {
    let level = level(&value.text);
    let level = level.ok_or("allowed are error, warn, info, debug and trace")?;
    config.log_level = Some(level.to_owned());
    Ok(())
}

/// The same as zap reads it, which takes verbosities too.
pub fn zap_log_level(config: &mut Config, value: &CompatValue) -> Result<(), String> {
    let verbosity = value.text.parse::<u32>().ok().filter(|number| *number > 0);
    match verbosity {
        Some(number) => {
            let level = if number == 1 { "debug" } else { "trace" };
            config.log_level = Some(level.to_owned());
            Ok(())
        }
        None => log_level(config, value),
    }
}

/// Sets the kubeconfig of the only cluster with the system.
pub fn kubeconfig(config: &mut Config, value: &CompatValue) -> Result<(), String> {
    let path = absolute(&value.text).map_err(|error| error.to_string())?;
    let mut with = config.with_system(value.system);
    let (Some(cluster), None) = (with.next(), with.next()) else {
        return Err(format!(
            "several clusters have systems = [{:?}], and it is the kubeconfig of one. Name it in the file and remove it here",
            value.system
        ));
    };
    let context = match &mut cluster.source {
        Source::File { context, .. } => context.take(),
        Source::InCluster | Source::Text { .. } => None,
    };
    cluster.source = Source::File { path, context };
    Ok(())
}

/// Sets the context for kubeconfigs of management clusters for which the file names none.
pub fn context(config: &mut Config, value: &CompatValue) -> Result<(), String> {
    for cluster in config.with_system(value.system) {
        let managing = cluster.settings.all().any(|(_, one)| one.is_management());
        if let Source::File { context, .. } = &mut cluster.source
            && managing
            && context.is_none()
        {
            *context = Some(value.text.clone());
        }
    }
    Ok(())
}

/// Changes a setting of each cluster that has the system.
pub fn set<S: TypedSettings, T: Clone>(
    config: &mut Config,
    to: T,
    setting: impl Fn(&mut S) -> &mut T,
) -> Result<(), String> {
    let clusters = config.clusters.iter_mut();
    for settings in clusters.filter_map(|one| one.settings.get_mut::<S>()) {
        *setting(settings) = to.clone();
    }
    Ok(())
}

/// Sets the address of the listener that serves the first of `words`; without one, adds a listener for all of them. `0` leaves
/// the words out, also those of the file.
pub fn listen(
    config: &mut Config,
    value: &CompatValue,
    words: &[Serve],
    tls: bool,
) -> Result<(), String> {
    let Some(address) = value.address()? else {
        let first = words.first();
        let all = config.listeners.iter_mut();
        for listener in all.filter(|one| first.is_some_and(|word| one.serve.contains(word))) {
            listener.serve.retain(|word| !words.contains(word));
        }
        config.listeners.retain(|one| !one.serve.is_empty());
        return Ok(());
    };
    // A default takes no port that something else has.
    let port = address.port();
    let mut listeners = config.listeners.iter();
    let taken = config.api.listen.port() == port || listeners.any(|one| one.address.port() == port);
    let first = words.first();
    let serves = |one: &&mut Listener| first.is_some_and(|word| one.serve.contains(word));
    match config.listeners.iter_mut().find(serves) {
        Some(_) if value.by.is_empty() => {}
        Some(listener) => listener.address = address,
        None if taken && value.by.is_empty() => {}
        None => config.listeners.push(Listener {
            address,
            tls,
            serve: words.iter().copied().collect(),
        }),
    }
    Ok(())
}

/// Sets whether the listener that serves `word` has TLS; where there is none, none is added.
pub fn listen_with_tls(
    config: &mut Config,
    value: &CompatValue,
    word: Serve,
) -> Result<(), String> {
    let tls = value.switch()?;
    let mut listeners = config.listeners.iter_mut();
    if let Some(listener) = listeners.find(|one| one.serve.contains(&word)) {
        listener.tls = tls;
    }
    Ok(())
}
