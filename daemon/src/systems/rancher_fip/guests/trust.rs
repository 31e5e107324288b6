//! The certificates that guests are given.

use fipd_crds::labels::CA_SECRET;

use super::{Guests, settings::Settings};
use crate::{
    config::host_of,
    controller::{ReconcileError, endpoint::OwnEndpoint, store::Key},
};

impl Guests {
    /// What guests with these settings trust, PEM.
    pub(super) async fn ca(&self, settings: &Settings) -> Result<String, ReconcileError> {
        let site = self.seen.ca.get(&Key::new(self.app_namespace(), CA_SECRET));
        let own = self.own.ca().await?;
        let asked = settings.api_url.as_deref();
        let serves = asked.is_some_and(|asked| serves(&self.own, asked));
        let site = site.as_ref().map_or("", |site| site.as_str());
        Ok(chain(site, &own, serves))
    }
}

/// Whether TLS with who asks this URL ends at fipd.
fn serves(own: &OwnEndpoint, asked: &str) -> bool {
    let url = own.url.as_deref().unwrap_or_default();
    let below = !url.is_empty() && asked.starts_with(url.trim_end_matches('/'));
    below || host_of(asked).is_some_and(|host| own.names.contains(&host))
}

/// The certificates that a guest trusts: those of the site, and fipd's own. A guest that is given any trusts no
/// others, so without those of the site fipd's is given only where it `serves` the guest.
fn chain(site: &str, own: &str, serves: bool) -> String {
    let (site, own) = (site.trim(), own.trim());
    if own.is_empty() || site.contains(own) || (site.is_empty() && !serves) {
        return if site.is_empty() {
            String::new()
        } else {
            format!("{site}\n")
        };
    }
    let parts = [site, own].into_iter().filter(|part| !part.is_empty());
    parts.map(|part| format!("{part}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_served_under_every_name_that_the_certificate_is_of() {
        let own = OwnEndpoint {
            url: Some("https://fipd.example.net:8443/".into()),
            names: ["rancher-fip-api.example.net".to_owned()].into(),
            ..OwnEndpoint::default()
        };
        for asked in [
            "https://fipd.example.net:8443/v1",
            "https://rancher-fip-api.example.net:30001/v1",
        ] {
            assert!(serves(&own, asked), "{asked}");
        }
        for asked in [
            "https://elsewhere.example.net/v1",
            "http://rancher-fip-api.example.net/v1",
            "",
        ] {
            assert!(!serves(&own, asked), "{asked}");
        }
        assert!(!serves(
            &OwnEndpoint::default(),
            "https://fipd.example.net:8443/v1"
        ));
    }

    #[test]
    fn a_guest_trusts_the_site_and_fipd_and_nobody_new_where_it_is_served_by_another() {
        assert_eq!(chain("A\n", "B\n", false), "A\nB\n");
        assert_eq!(chain("A\nB", "B\n", true), "A\nB\n");
        assert_eq!(chain("", "B", true), "B\n");
        assert_eq!(chain("", "B", false), "");
        assert_eq!(chain("A", "", true), "A\n");
        assert_eq!(chain("", "", true), "");
    }
}
