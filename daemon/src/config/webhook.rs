//! `[cluster.SYSTEM.webhook]`: whether the API server of a cluster asks fipd before it stores an object.

use std::path::{Path, PathBuf};

use fipd_core::Text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    ClusterConfig, Config,
    checked::{checked, time},
    error::shown,
};

/// The section.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Webhook {
    /// `None`: where there is a URL by which the API server reaches fipd.
    pub enabled: Option<bool>,
    /// What the API server does with a write while fipd does not answer.
    pub failure_policy: FailurePolicy,
    /// How long the API server waits.
    pub timeout: Patience,
    /// That URL, where it is not `[api] advertise`.
    pub url: Option<Address>,
    /// PEM file of the CAs that the certificate at the URL may be of. `None`: fipd's own, or those of the API server's
    /// system where `[api] cert` is somebody else's.
    pub ca_file: Option<PathBuf>,
}

/// What the API server does with a write when fipd does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailurePolicy {
    /// It stores the object; the controllers enforce the same rules.
    #[default]
    Ignore,
    /// It refuses the write. Needs two hosts that serve, which cannot exist yet: `ignore` is used instead.
    Fail,
}

/// Whole seconds that an API server can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct Patience(pub u8);

/// `https://HOST[:PORT][/PATH]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct Address(pub Text);

const MOST: u8 = 10;

checked!(Patience(String) = 3, |text| {
    let words = format!("1s to {MOST}s, in whole seconds");
    let key = "[cluster.SYSTEM.webhook] timeout";
    let given = time(key, &text, 1..=MOST.into(), &words)?;
    Ok(u8::try_from(given.as_secs()).unwrap_or(MOST))
});

checked!(Address(String), |text| {
    let wrong = |why: &str| {
        Err(format!(
            "[cluster.SYSTEM.webhook] url = {:?} {why}; allowed is https://HOST[:PORT][/PATH]",
            shown(&text)
        ))
    };
    let Ok(uri) = text.parse::<http::Uri>() else {
        return wrong("is no URL");
    };
    let user = uri
        .authority()
        .is_some_and(|one| one.as_str().contains('@'));
    if uri.scheme_str() != Some("https") {
        wrong("does not start with https://")
    } else if uri.host().is_none_or(str::is_empty) {
        wrong("names no host")
    } else if user || uri.query().is_some() || text.contains('#') {
        wrong("has a user, a query or a fragment, with which no API server calls")
    } else {
        Ok(text.trim_end_matches('/').into())
    }
});

impl Webhook {
    pub(super) fn resolve_paths(&mut self, base: &Path) {
        if let Some(path) = &mut self.ca_file {
            *path = base.join(&*path);
        }
    }

    /// The URL that paths are put behind, where API servers are to ask; `advertise` is that of the whole daemon.
    pub fn base<'a>(&'a self, advertise: Option<&'a str>) -> Option<&'a str> {
        let own = self.url.as_ref().map(|Address(url)| &**url);
        let base = own.or(advertise).filter(|_| self.enabled != Some(false));
        base.map(|url| url.trim_end_matches('/'))
    }
}

impl Config {
    fn webhooks(&self) -> impl Iterator<Item = (&ClusterConfig, &'static str, &Webhook)> {
        self.clusters.iter().flat_map(|cluster| {
            let all = cluster.settings.all();
            all.filter_map(move |(system, one)| Some((cluster, system, one.webhook()?)))
        })
    }

    /// Whether all webhooks that are wanted can be asked, where others reach the daemon at `advertise`.
    ///
    /// # Errors
    /// Which cannot.
    pub fn check_webhooks(&self, advertise: Option<&str>) -> Result<(), String> {
        let lost = |(_, _, webhook): &(&ClusterConfig, &str, &Webhook)| {
            webhook.enabled == Some(true) && webhook.base(advertise).is_none()
        };
        match self.webhooks().find(lost) {
            None => Ok(()),
            Some((cluster, system, _)) => Err(format!(
                "[[cluster]] {:?}, [cluster.{system}.webhook]: enabled = true needs a URL by which the cluster's API server \
                 reaches fipd: set [api] advertise (or --advertise), or url here",
                cluster.name
            )),
        }
    }

    /// The URLs of their own that webhooks have; the certificate must be of their hosts.
    pub fn webhook_urls(&self) -> Vec<String> {
        self.webhooks()
            .filter_map(|(_, _, webhook)| Some(webhook.url.as_ref()?.0.to_string()))
            .collect()
    }

    /// What should be thought over about webhooks, by cluster.
    pub fn webhook_warnings(&self) -> Vec<(Text, &'static str)> {
        let fails = |webhook: &Webhook| {
            webhook.failure_policy == FailurePolicy::Fail && webhook.enabled != Some(false)
        };
        let failing = self.webhooks().filter(|(_, _, webhook)| fails(webhook));
        failing
            .map(|(cluster, ..)| (Text::clone(&cluster.name), FAIL))
            .collect()
    }
}

/// Why `fail` is not used.
pub const FAIL: &str = "failure-policy = \"fail\" needs two hosts that serve, and fipd runs on one: \"ignore\" is used, and the \
     controllers enforce the same rules afterwards; set failure-policy = \"ignore\"";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::rancher_fip::settings::RancherFipSettings;

    fn webhook(text: &str) -> Result<Webhook, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn by_default_it_is_on_where_there_is_a_url_and_never_in_the_way() {
        let plain = webhook("").unwrap();
        assert_eq!(plain.failure_policy, FailurePolicy::Ignore);
        assert_eq!(plain.timeout, Patience(3));
        assert_eq!(plain.base(None), None);
        assert_eq!(plain.base(Some("https://a:8443/")), Some("https://a:8443"));
        assert_eq!(
            webhook("enabled = false").unwrap().base(Some("https://a")),
            None
        );
        let own = webhook("url = \"https://b/behind/\"").unwrap();
        assert_eq!(own.base(Some("https://a")), Some("https://b/behind"));
    }

    #[test]
    fn values_that_an_api_server_would_not_take_are_refused_with_what_is_allowed() {
        for (text, words) in [
            ("timeout = \"0s\"", "1s to 10s"),
            ("timeout = \"11s\"", "1s to 10s"),
            ("timeout = \"1500ms\"", "1s to 10s"),
            ("timeout = \"soon\"", "1s to 10s"),
            ("failure-policy = \"deny\"", "`ignore` or `fail`"),
            ("url = \"http://a\"", "https://HOST[:PORT][/PATH]"),
            ("url = \"https://u@a\"", "has a user"),
            ("url = \"https://a?x=1\"", "has a user, a query"),
            ("url = \"a\"", "https://"),
            ("on = true", "unknown field"),
        ] {
            let error = webhook(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert_eq!(webhook("timeout = \"10s\"").unwrap().timeout, Patience(10));
    }

    fn config(section: &str) -> Result<Config, String> {
        let text = format!(
            "[[cluster]]\nname = \"rancher\"\nin-cluster = true\nsystems = [\"rancher-fip\"]\n[cluster.rancher-fip]\n{section}"
        );
        Config::parse(&text, Path::new("/etc/fipd"))
    }

    #[test]
    fn who_wants_it_must_say_where_fipd_is() {
        let wanted = config("[cluster.rancher-fip.webhook]\nenabled = true\n").unwrap();
        let error = wanted.check_webhooks(None).unwrap_err();
        assert!(
            error.contains("\"rancher\"") && error.contains("[api] advertise"),
            "{error}"
        );
        wanted.check_webhooks(Some("https://a")).unwrap();
        let quiet = config("[cluster.rancher-fip.webhook]\ntimeout = \"2s\"\n").unwrap();
        quiet.check_webhooks(None).unwrap();
    }

    #[test]
    fn fail_is_read_and_warned_of() {
        let fail = config("[cluster.rancher-fip.webhook]\nfailure-policy = \"fail\"\n").unwrap();
        let warnings = fail.webhook_warnings();
        assert_eq!(warnings, [("rancher".into(), FAIL)]);
        assert!(config("").unwrap().webhook_warnings().is_empty());
    }

    #[test]
    fn it_is_for_management_clusters_and_its_paths_start_at_the_file() {
        let file = config("[cluster.rancher-fip.webhook]\nca-file = \"ca.pem\"\n").unwrap();
        let webhook = &file
            .clusters
            .first()
            .unwrap()
            .settings
            .of::<RancherFipSettings>()
            .webhook;
        assert_eq!(
            webhook.ca_file.as_deref(),
            Some(Path::new("/etc/fipd/ca.pem"))
        );
        let section = "role = \"downstream\"\n[cluster.rancher-fip.webhook]\nenabled = true\n";
        let error = config(section).unwrap_err();
        assert!(
            error.contains("webhook is for role = \"management\""),
            "{error}"
        );
    }
}
