//! Flags and variables of the originals, which count under `fipd serve --compat SYSTEM`.

mod setters;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::SocketAddr,
};

use fipd_core::Text;
use fipd_crds::names::is_object_name;

use super::{
    ClusterConfig, Config, HostRole, Serve, SightingMode, Source, SystemConfig, Systems, listener,
    systems::{TableOwner, Tables},
};

pub(super) use setters::address;
pub use setters::{context, level, listen, listen_with_tls, log_level, set};

/// A flag and a variable of a system's original, or one of the two.
#[derive(Clone, Copy, Debug)]
pub struct CompatFlag {
    /// Without dashes; empty: there is only the variable.
    pub flag: &'static str,
    /// Counts where the flag is not given; empty: there is only the flag.
    pub variable: &'static str,
    pub form: Form,
    /// Counts without `--compat` too.
    pub always: bool,
    /// What holds under `--compat` where nobody says anything, the file included; empty: nothing.
    pub default: &'static str,
    pub effect: Effect,
    /// For the documentation.
    pub about: &'static str,
}

/// What follows a flag on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Number,
    /// Nothing, which means `true`, or `=true` or `=false`.
    Switch,
}

/// What fipd does about a flag.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// Changes the configuration: the key, as the page of settings shows it, and how.
    Sets(
        &'static str,
        fn(&mut Config, &CompatValue) -> Result<(), String>,
    ),
    /// Accepts it; fipd does not need it.
    Nothing,
}

/// What the command line says in flags of originals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompatFlags {
    /// The value of `--compat`.
    pub system: Option<String>,
    /// Flags without dashes and their values.
    pub values: BTreeMap<&'static str, String>,
    /// Variables of originals that are set to something, and [`IN_POD`].
    pub variables: BTreeMap<&'static str, String>,
}

/// The value of a flag or a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompatValue {
    /// The system whose original has the flag.
    pub system: &'static str,
    /// `--flag` or the variable; empty: it is the default of the original.
    pub by: String,
    pub text: String,
}

/// What flags and variables of originals came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompatApplied {
    /// Keys that are set, their values as in a file, and by what.
    pub set: Vec<(&'static str, String, String)>,
    /// Variables of originals that are set and do not count.
    pub ignored: BTreeSet<&'static str>,
    /// Flags and variables that are accepted and change nothing, and why.
    pub unneeded: Vec<(String, &'static str)>,
}

impl CompatFlag {
    /// One that sets `key`.
    pub const fn sets(
        flag: &'static str,
        key: &'static str,
        set: fn(&mut Config, &CompatValue) -> Result<(), String>,
        about: &'static str,
    ) -> Self {
        Self {
            effect: Effect::Sets(key, set),
            ..Self::nothing(flag, about)
        }
    }

    /// One that is accepted and does nothing.
    pub const fn nothing(flag: &'static str, about: &'static str) -> Self {
        Self {
            flag,
            variable: "",
            form: Form::Text,
            always: false,
            default: "",
            effect: Effect::Nothing,
            about,
        }
    }

    /// The one that names the kubeconfig of the only cluster with the system.
    pub const fn kubeconfig(about: &'static str) -> Self {
        Self::sets(
            KUBECONFIG,
            "cluster[*].kubeconfig",
            setters::kubeconfig,
            about,
        )
    }

    /// The same, which the variable says too.
    #[must_use]
    pub const fn or(self, variable: &'static str) -> Self {
        Self { variable, ..self }
    }

    /// The same with another form.
    #[must_use]
    pub const fn form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// The same with a default.
    #[must_use]
    pub const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    /// The same, which counts without `--compat` too.
    #[must_use]
    pub const fn always(self) -> Self {
        Self {
            always: true,
            ..self
        }
    }
}

/// A truth value as Go's `strconv.ParseBool` reads it.
pub fn go_boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

impl CompatValue {
    /// `true` or `false`, as Go's flags are written.
    pub fn switch(&self) -> Result<bool, String> {
        go_boolean(&self.text).ok_or_else(|| "allowed are true and false".to_owned())
    }

    /// The name of an object.
    pub fn name(&self) -> Result<Text, String> {
        match is_object_name(&self.text) {
            true => Ok(self.text.as_str().into()),
            false => Err("allowed is the name of an object in Kubernetes".to_owned()),
        }
    }

    /// `ADDRESS:PORT`, or `:PORT` or a port for every address of the host; `None` for `0`, which is none.
    pub fn address(&self) -> Result<Option<SocketAddr>, String> {
        match &*self.text {
            "0" => Ok(None),
            text => address(text)
                .map(Some)
                .ok_or_else(|| "allowed are ADDRESS:PORT, :PORT and a port".to_owned()),
        }
    }

    fn wrong(&self, what: &str) -> String {
        format!("{} = {:?}: {what}", self.by, self.text)
    }
}

impl Systems {
    /// The flags of all originals, each with its form and the systems whose originals have it.
    pub fn compat_flags(self) -> BTreeMap<&'static str, (Form, Vec<&'static str>)> {
        let mut all = BTreeMap::<_, (Form, Vec<&str>)>::new();
        for system in self.0 {
            for row in system.compat.iter().filter(|row| !row.flag.is_empty()) {
                let found = all.entry(row.flag);
                let (_, systems) = found.or_insert_with(|| (row.form, Vec::new()));
                if !systems.contains(&system.name) {
                    systems.push(system.name);
                }
            }
        }
        all
    }

    /// The system of that name, whose original has flags.
    pub(super) fn original(self, name: &str) -> Result<&'static SystemConfig, String> {
        let found = self.get(name).filter(|one| !one.compat.is_empty());
        found.ok_or_else(|| {
            let with = self.0.iter().filter(|one| !one.compat.is_empty());
            let names: Vec<String> = with.map(|one| format!("{:?}", one.name)).collect();
            format!(
                "compat = {name:?}: allowed is a system with an original: {}",
                names.join(" or ")
            )
        })
    }

    /// The rows that count under `chosen`: its own, and those of others that always do and that it has no flag for.
    fn counting(
        self,
        chosen: Option<&'static SystemConfig>,
    ) -> Vec<(&'static str, &'static CompatFlag)> {
        let taken = move |row: &CompatFlag| {
            let mut rows = chosen.map_or(&[][..], |chosen| chosen.compat).iter();
            !row.flag.is_empty() && rows.any(|own| own.flag == row.flag)
        };
        let rows = self.0.iter().flat_map(|system| {
            let own = chosen.is_some_and(|chosen| chosen.name == system.name);
            let counts = move |row: &&CompatFlag| own || (row.always && !taken(row));
            let rows = system.compat.iter().filter(counts);
            rows.map(|row| (system.name, row))
        });
        rows.collect()
    }

    /// What the environment says in variables of originals.
    pub fn compat_variables(
        self,
        read: impl Fn(&str) -> Option<String>,
    ) -> BTreeMap<&'static str, String> {
        let names = self.0.iter().flat_map(|one| one.compat);
        let names = names.map(|row| row.variable).chain([IN_POD]);
        let names = names.filter(|name| !name.is_empty());
        let set = names.filter_map(|name| Some((name, read(name)?)));
        set.filter(|(_, value)| !value.is_empty()).collect()
    }

    /// The page of the documentation about them.
    pub fn compat_markdown(self) -> String {
        let mut page = String::from(COMPAT_PAGE);
        for system in self.0.iter().filter(|one| !one.compat.is_empty()) {
            // Writing to a String cannot fail.
            let _ = write!(
                page,
                "\n## {}\n\n| flag | variable | sets | |\n|---|---|---|---|\n",
                system.name
            );
            let code = |text: &str, before: &str| match text {
                "" => String::new(),
                text => format!("`{before}{text}`"),
            };
            for row in system.compat {
                let key = match row.effect {
                    Effect::Sets(key, _) => format!("`{key}`"),
                    Effect::Nothing => String::new(),
                };
                let always = if row.always {
                    "Counts without `--compat` too. "
                } else {
                    ""
                };
                let default = match row.default {
                    "" => String::new(),
                    default => format!(" Default `{default}`."),
                };
                let (flag, variable) = (code(row.flag, "--"), code(row.variable, ""));
                let about = row.about;
                let _ = writeln!(
                    page,
                    "| {flag} | {variable} | {key} | {always}{about}{default} |"
                );
            }
        }
        page
    }
}

const COMPAT_PAGE: &str = "\
# Flags and variables of the original programs

`fipd serve --compat SYSTEM` (or `compat = \"SYSTEM\"` in the file, or `FIPD_COMPAT`) reads the flags and variables of the
programs that fipd replaces for one system, so that a Deployment keeps its arguments when its image is exchanged. A flag wins
over its variable, both win over the file. `-flag` means `--flag`. An empty value counts as none. Without a `[[cluster]]` and
inside a pod, the cluster of the pod has the system. A port is opened only where its flag is given, unless its line has a default.

Without `--compat` a flag of this page is refused, and a variable is ignored: the log names it once at the start. The page of
settings shows what a flag or variable has set. This page is made by `fipd docs compat`.
";

impl Config {
    fn with_system(&mut self, system: &str) -> impl Iterator<Item = &mut ClusterConfig> {
        let clusters = self.clusters.iter_mut();
        clusters.filter(move |one| one.systems.iter().any(|one| one.as_str() == system))
    }

    /// A configuration's cluster that fipd runs in, with these systems.
    pub(super) fn in_cluster(known: Systems, name: &str, systems: &[String]) -> ClusterConfig {
        let name = name.into();
        let place = TableOwner::Cluster(&name);
        let settings = known.settings(systems, Tables::new(), place, SightingMode::default());
        let (systems, settings) = settings.unwrap_or_default();
        ClusterConfig {
            name,
            source: Source::InCluster,
            insecure_skip_tls_verify: false,
            identity_namespace: "kube-system".into(),
            same_as: None,
            systems,
            settings,
        }
    }

    /// The configuration under flags and variables of the originals.
    ///
    /// # Errors
    /// A flag that does not count or a value that is not allowed.
    pub fn under(mut self, given: &CompatFlags) -> Result<(Self, CompatApplied), String> {
        let known = self.known;
        let named = given.system.as_ref().filter(|name| !name.is_empty());
        let chosen = named.or(self.compat.as_ref());
        let chosen = chosen.map(|name| known.original(name)).transpose()?;
        let rows = known.counting(chosen);
        for flag in given.values.keys() {
            if !rows.iter().any(|(_, row)| row.flag == *flag) {
                let all = known.compat_flags();
                let systems = all.get(flag).map(|(_, systems)| systems.join(" or "));
                return Err(format!(
                    "--{flag} is a flag of an original program: allowed with --compat {}",
                    systems.unwrap_or_default()
                ));
            }
        }
        let defaults = chosen.is_some() && self.role == HostRole::Standalone;
        let values = rows.iter().filter_map(|(system, row)| {
            let (by, text) = given.value(row).or_else(|| {
                let holds = defaults && !row.default.is_empty();
                holds.then(|| (String::new(), row.default.to_owned()))
            })?;
            Some((*row, CompatValue { system, by, text }))
        });
        let values: Vec<_> = values.collect();
        if let Some(chosen) = chosen {
            self.add_cluster_of(chosen, given)?;
        }
        let counts = |name: &str| rows.iter().any(|(_, row)| row.variable == name);
        let ignored = given.variables.keys().copied();
        let mut applied = CompatApplied {
            set: Vec::new(),
            ignored: ignored
                .filter(|name| *name != IN_POD && !counts(name))
                .collect(),
            unneeded: Vec::new(),
        };
        for (row, value) in values {
            self.apply(row, value, &mut applied)?;
        }
        super::check_api(&self.api)?;
        listener::check_distinct(&self.listeners)?;
        Ok((self, applied))
    }

    /// Does what a row says about a value.
    fn apply(
        &mut self,
        row: &CompatFlag,
        value: CompatValue,
        applied: &mut CompatApplied,
    ) -> Result<(), String> {
        let Effect::Sets(key, set) = row.effect else {
            // Some of those that always count are read elsewhere.
            if !row.always {
                applied.unneeded.push((value.by, row.about));
            }
            return Ok(());
        };
        let before = self.clone();
        set(self, &value).map_err(|what| value.wrong(&what))?;
        if *self != before && !value.by.is_empty() {
            let shown = match row.form {
                Form::Text => toml::Value::from(value.text).to_string(),
                Form::Number | Form::Switch => value.text,
            };
            applied.set.push((key, shown, value.by));
        }
        Ok(())
    }

    /// Inside a pod, or where a kubeconfig is given, the originals need no file to know their cluster.
    fn add_cluster_of(
        &mut self,
        chosen: &'static SystemConfig,
        given: &CompatFlags,
    ) -> Result<(), String> {
        let mut rows = chosen.compat.iter();
        let kubeconfig = rows.find(|row| row.flag == KUBECONFIG);
        let named = kubeconfig.is_some_and(|row| given.value(row).is_some());
        let in_pod = given.variables.contains_key(IN_POD);
        let here = in_pod && self.discovery.is_none() && self.clusters.is_empty();
        if self.with_system(chosen.name).next().is_some() || !(named || here) {
            return Ok(());
        }
        if self.cluster(chosen.name).is_some() {
            return Err(format!(
                "compat = {0:?}: the cluster of the original would be named {0:?}, which is another [[cluster]] of the file. Rename \
                 that one, or give it systems = [{0:?}]",
                chosen.name
            ));
        }
        let systems = [chosen.name.to_owned()];
        let cluster = Self::in_cluster(self.known, chosen.name, &systems);
        self.clusters.push(cluster);
        super::together::default_nodes(self.known, &mut self.clusters);
        Ok(())
    }
}

impl CompatFlags {
    /// What is said of a row, and by what. Empty values count as none.
    fn value(&self, row: &CompatFlag) -> Option<(String, String)> {
        let flag = self.values.get(row.flag).filter(|text| !text.is_empty());
        let flag = flag.map(|text| (format!("--{}", row.flag), text.clone()));
        let variable = || self.variables.get(row.variable);
        flag.or_else(|| Some((row.variable.to_owned(), variable()?.clone())))
    }
}

/// The flag of the originals that says where their cluster is.
const KUBECONFIG: &str = "kubeconfig";
/// The port for probes of programs that are made with controller-runtime.
pub const PROBES: CompatFlag = CompatFlag::sets(
    "health-probe-bind-address",
    "listener[health].address",
    |config, value| listen(config, value, &[Serve::Health], false),
    "`/healthz` and `/readyz`, without TLS; `0` is none.",
)
.default(":8081");
/// The level of programs that log by zap.
pub const ZAP_LEVEL: CompatFlag = CompatFlag::sets(
    "zap-log-level",
    "log-level",
    setters::zap_log_level,
    "Also a number: `1` is `debug`, more is `trace`. `--log-level` is fipd's own flag.",
);
/// Kubernetes sets it in every pod.
const IN_POD: &str = "KUBERNETES_SERVICE_HOST";

#[cfg(test)]
pub(crate) mod tests;
