//! The certificates that guests are given.

use fipd_crds::labels::CA_SECRET;

use super::{Guests, settings::Settings};
use crate::controllers::{Trouble, objects::Key};

impl Guests {
    /// What guests with these settings trust, PEM.
    pub(super) async fn ca(&self, settings: &Settings) -> Result<String, Trouble> {
        let site = self.seen.ca.get(&Key::new(self.app_namespace(), CA_SECRET));
        let own = self.own.ca().await?;
        let serves = self.own.url.as_deref().is_some_and(|url| {
            let asked = settings.api_url.as_deref();
            asked.is_some_and(|asked| asked.starts_with(url.trim_end_matches('/')))
        });
        let site = site.as_ref().map_or("", |site| site.as_str());
        Ok(chain(site, &own, serves))
    }
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
    fn a_guest_trusts_the_site_and_fipd_and_nobody_new_where_it_is_served_by_another() {
        assert_eq!(chain("A\n", "B\n", false), "A\nB\n");
        assert_eq!(chain("A\nB", "B\n", true), "A\nB\n");
        assert_eq!(chain("", "B", true), "B\n");
        assert_eq!(chain("", "B", false), "");
        assert_eq!(chain("A", "", true), "A\n");
        assert_eq!(chain("", "", true), "");
    }
}
