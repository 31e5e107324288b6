//! Which parts of a configuration a running daemon takes over, and which count from the next start.

use super::{Config, HostRule};

/// Whether a part is another one now than before.
type Differs = fn(&Config, &Config) -> bool;

/// Parts that are taken over while the daemon runs, and whether they differ.
pub const LIVE: [(&str, Differs); 11] = [
    ("cluster", |now, was| now.clusters != was.clusters),
    ("discovery", |now, was| now.discovery != was.discovery),
    ("network", |now, was| now.networks != was.networks),
    ("compat", |now, was| now.compat != was.compat),
    ("log-level", |now, was| now.log_level != was.log_level),
    ("backup", |now, was| now.backup != was.backup),
    ("audit", |now, was| now.audit != was.audit),
    ("api.names", |now, was| now.api.names != was.api.names),
    ("api.cert", |now, was| now.api.cert != was.api.cert),
    ("api.key", |now, was| now.api.key != was.api.key),
    ("host.rules", |now, was| {
        now.host.is_some() == was.host.is_some() && now.host_rules() != was.host_rules()
    }),
];

impl Config {
    fn host_rules(&self) -> Option<&[HostRule]> {
        self.host.as_ref().map(|host| &*host.rules)
    }

    /// Parts of [`LIVE`] that differ from `before`, unless they are among the [`restart_keys`](Self::restart_keys) since its
    /// start.
    pub fn live_keys(&self, before: &Self) -> Vec<&'static str> {
        let changed = LIVE.iter().filter(|(_, differs)| differs(self, before));
        changed.map(|(key, _)| *key).collect()
    }

    /// Parts that differ from `before` and count from the next start only. What the command line may say as well is not among
    /// them.
    pub fn restart_keys(&self, before: &Self) -> Vec<&'static str> {
        // Where clusters are the reason that a new certificate is needed, that follows by itself.
        let files = |config: &Self| config.api.cert.is_some();
        let host = |config: &Self| {
            let host = config.host.clone();
            host.map(|host| super::Host {
                rules: Vec::new(),
                ..host
            })
        };
        let parts = [
            ("role", self.role != before.role),
            ("log-socket", self.log_socket != before.log_socket),
            ("api.cert", files(self) != files(before)),
            ("api.key", files(self) != files(before)),
            ("listener", self.listeners != before.listeners),
            ("clock", self.clock != before.clock),
            ("cni", self.cni != before.cni),
            ("history", self.history != before.history),
            ("helm", self.helm != before.helm),
            ("fip-v1", self.fip_v1 != before.fip_v1),
            ("webhook", self.hooks != before.hooks),
            ("oidc", self.oidc != before.oidc),
            ("host", host(self) != host(before)),
        ];
        let changed = parts.into_iter().filter(|(_, changed)| *changed);
        changed.map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text, Path::new("/etc/fipd")).unwrap()
    }

    #[test]
    fn what_changed_is_either_taken_over_or_needs_a_restart() {
        let before = config("");
        let rules = "[host]\nnode = \"n\"\n";
        for (text, live, restart) in [
            ("log-level = \"debug\"", "log-level", ""),
            ("[audit]\nkeep = 1000", "audit", ""),
            ("[backup]\nkeep = 3", "backup", ""),
            (
                "[[network]]\nname = \"a\"\nmatch = [{ pool = \"x\" }]",
                "network",
                "",
            ),
            (
                "[[cluster]]\nname = \"a\"\nkubeconfig = \"a\"",
                "cluster",
                "",
            ),
            ("log-socket = \"log.sock\"", "", "log-socket"),
            ("[helm]\nat-once = 1", "", "helm"),
            ("[history]\nkeep-days = 500", "", "history"),
            ("[clock]\ntrust = \"wall\"", "", "clock"),
            ("[cni]\npods-use-pools = true", "", "cni"),
            (rules, "", "host"),
            (
                "[[listener]]\naddress = \"127.0.0.1:9\"\nserve = [\"health\"]",
                "",
                "listener",
            ),
        ] {
            let after = config(text);
            assert_eq!(after.live_keys(&before).join(","), live, "{text}");
            assert_eq!(after.restart_keys(&before).join(","), restart, "{text}");
        }
    }

    #[test]
    fn other_files_of_a_certificate_are_taken_over_and_the_first_ones_need_a_restart() {
        let of = |cert: &str| config(&format!("[api]\ncert = \"{cert}\"\nkey = \"k\"\n"));
        let (before, after) = (of("a"), of("b"));
        assert_eq!(after.live_keys(&before), ["api.cert"]);
        assert_eq!(after.restart_keys(&before), [""; 0]);
        let restart = ["api.cert", "api.key"];
        assert_eq!(after.restart_keys(&config("")), restart);
        assert_eq!(config("").restart_keys(&after), restart);
    }
}
