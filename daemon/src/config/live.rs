//! Which parts of a configuration a running daemon takes over, and which count from the next start.

use super::Config;

impl Config {
    /// Parts that differ from `before` and are taken over while the daemon runs, unless they are among the
    /// [`restart_keys`](Self::restart_keys) since its start.
    pub fn live_keys(&self, before: &Self) -> Vec<&'static str> {
        let rules = |config: &Self| config.host.as_ref().map(|host| host.rules.clone());
        let parts = [
            ("cluster", self.clusters != before.clusters),
            ("discovery", self.discovery != before.discovery),
            ("network", self.networks != before.networks),
            ("compat", self.compat != before.compat),
            ("log-level", self.log_level != before.log_level),
            ("backup", self.backup != before.backup),
            ("audit", self.audit != before.audit),
            ("api.names", self.api.names != before.api.names),
            ("api.cert", self.api.cert != before.api.cert),
            ("api.key", self.api.key != before.api.key),
            (
                "host.rules",
                self.host.is_some() == before.host.is_some() && rules(self) != rules(before),
            ),
        ];
        changed(parts)
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
            ("api.cert", files(self) != files(before)),
            ("api.key", files(self) != files(before)),
            ("listener", self.listeners != before.listeners),
            ("clock", self.clock != before.clock),
            ("history", self.history != before.history),
            ("helm", self.helm != before.helm),
            ("fip-v1", self.fip_v1 != before.fip_v1),
            ("webhook", self.hooks != before.hooks),
            ("oidc", self.oidc != before.oidc),
            ("host", host(self) != host(before)),
        ];
        changed(parts)
    }
}

fn changed<const N: usize>(parts: [(&'static str, bool); N]) -> Vec<&'static str> {
    let changed = parts.into_iter().filter(|(_, changed)| *changed);
    changed.map(|(key, _)| key).collect()
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
            ("[helm]\nat-once = 1", "", "helm"),
            ("[history]\nkeep-days = 500", "", "history"),
            ("[clock]\ntrust = \"wall\"", "", "clock"),
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
