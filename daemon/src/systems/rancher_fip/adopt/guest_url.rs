//! Whether the guests are sent to fipd: the originals' ConfigMap goes on to say where the API for addresses is.

use std::collections::BTreeMap;

use fipd_crds::labels::CONFIG_NAME;

use super::{api_service::ApiService, inventory::SiteInventory, report::SiteReport};
use crate::adopt::{ChangeBy, FindingKind};
use crate::systems::rancher_fip::api_service::plan::{TLS_PORT, names};

/// Key of the ConfigMap.
const KEY: &str = "RancherFipApiServerURL";
/// Key of fipd's configuration that goes before it.
const OWN_KEY: &str = "api-server-url";

/// Where the cluster manager sends guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestUrl {
    pub url: String,
    /// Whether fipd's own configuration says so.
    pub own: bool,
}

/// What somebody said; `None`: nobody, so that guests are sent to `[api] advertise`.
pub fn given(over: Option<&str>, map: &BTreeMap<String, String>) -> Option<GuestUrl> {
    let said = |url: Option<&str>, own: bool| {
        let url = url.map(str::trim).filter(|url| !url.is_empty())?;
        Some(GuestUrl {
            url: url.to_owned(),
            own,
        })
    };
    said(over, true).or_else(|| said(map.get(KEY).map(String::as_str), false))
}

/// Says where it leads.
pub fn judge(found: &SiteInventory, report: &mut SiteReport) {
    let given = match &found.guest_url {
        None => return,
        Some(Err(why)) => return report.unseen.push(why.clone()),
        Some(Ok(given)) => given,
    };
    let (name, key) = match given.own {
        true => ("[cluster.rancher-fip.cluster-manager]".to_owned(), OWN_KEY),
        false => {
            let namespace = &found.duties.app_namespace;
            (format!("ConfigMap {namespace}/{CONFIG_NAME}"), KEY)
        }
    };
    let url = &given.url;
    if leads_here(found, url) {
        return report.fine(
            FindingKind::Leftover,
            name,
            format!("{key} is {url}, which is fipd"),
        );
    }
    let says = format!(
        "{key} is {url}: guests are sent there, and that is neither [api] advertise nor a name of the Service that api-service keeps"
    );
    report.wrong(FindingKind::Leftover, &name, says);
    let does = match &found.duties.api_url {
        Some(own) => format!("set {key} to {own}, unless DNS or an Ingress leads {url} to fipd"),
        None => format!("set [api] advertise to the URL of fipd, and {key} to the same with /v1"),
    };
    report.change(ChangeBy::You, name, does);
}

/// Whether the URL is that of fipd, or an in-cluster name that fipd keeps.
fn leads_here(found: &SiteInventory, url: &str) -> bool {
    let Some((scheme, host, port)) = place(url) else {
        return false;
    };
    let own = found.duties.api_url.as_deref().and_then(place);
    if own == Some((scheme.clone(), host.clone(), port)) {
        return true;
    }
    let Some(Ok(ApiService {
        want: Some(Ok(want)),
        ..
    })) = &found.service
    else {
        return false;
    };
    let names = names(&found.duties.app_namespace);
    let port = i32::from(port);
    let fits = (port == TLS_PORT) == (scheme == "https");
    fits && names.contains(&host) && want.ports.contains_key(&port)
}

/// Scheme, host and port of a URL.
fn place(url: &str) -> Option<(String, String, u16)> {
    let uri: http::Uri = url.parse().ok()?;
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let usual = match &*scheme {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    let host = uri.host()?.trim_end_matches('.').to_ascii_lowercase();
    Some((scheme, host, uri.port_u16().unwrap_or(usual)))
}
