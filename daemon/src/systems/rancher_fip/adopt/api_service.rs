//! The Service of the original API server: what there is, and where it is to lead. And whether the guests are sent to fipd: the
//! originals' ConfigMap goes on to say where the API for addresses is.

use std::collections::BTreeMap;

use fipd_crds::labels::{API_SERVICE, CONFIG_NAME};
use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::util::intstr::IntOrString};

use super::{SiteReport, inventory::SiteInventory, some};
use crate::{
    adopt::{ChangeBy, FindingKind},
    systems::rancher_fip::api_service::plan::{
        self, ServiceTarget, TAKEN_OFF, TLS_PORT, mend, names, node_port, selector,
    },
};

/// What was seen of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiService {
    /// `None`: there is none.
    pub found: Option<Service>,
    /// Where it is to lead, or why it cannot; `None`: fipd is not told to keep it.
    pub want: Option<Result<ServiceTarget, plan::Unreachable>>,
}

/// Says where it leads.
pub fn judge(found: &SiteInventory, report: &mut SiteReport) {
    let name = format!(
        "Service {}/{API_SERVICE}",
        found.duties.settings.app_namespace
    );
    let Some(seen) = report.seen(&name, &found.service) else {
        return;
    };
    match (&seen.want, &seen.found) {
        (None, None) => {}
        (None, Some(service)) => left(found, name, service, report),
        (Some(Err(wrong)), None) => report.wrong(FindingKind::Leftover, name, wrong.to_string()),
        (Some(Err(wrong)), Some(service)) => {
            let says = format!("{}; it stays so: {wrong}", there(service));
            report.wrong(FindingKind::Leftover, name, says);
        }
        (Some(Ok(want)), service) => kept(found, name, (service.as_ref(), want), report),
    }
}

/// Nobody keeps it.
fn left(found: &SiteInventory, name: String, service: &Service, report: &mut SiteReport) {
    let there = there(service);
    let leads = match selector(service) {
        Ok(_) => "leads nowhere once the original is stopped",
        Err(Some(_)) => "leads where fipd last let it, which nobody keeps in step",
        Err(None) => "leads where its EndpointSlices say, which fipd does not keep",
    };
    let says = format!("{there}; {leads}, and with it every Ingress and node port on it");
    report.wrong(FindingKind::Leftover, &name, says);
    let url = found.duties.api_url.as_deref();
    let url = url.unwrap_or("the URL that [api] advertise is to say, with /v1");
    let mut does = format!(
        "set api-service = true in [cluster.rancher-fip] of the cluster, or see that all clients use {url}"
    );
    if let (Err(Some(_)), Some(back)) = (selector(service), plan::back(service)) {
        let namespace = &found.duties.settings.app_namespace;
        does += &format!(
            "; to let it lead to the original again: `kubectl -n {namespace} patch service {API_SERVICE} --type merge -p \
             '{back}'`, and delete its EndpointSlices of fipd"
        );
    }
    report.change(ChangeBy::You, name, does);
}

/// fipd keeps it.
fn kept(
    found: &SiteInventory,
    name: String,
    (service, want): (Option<&Service>, &ServiceTarget),
    report: &mut SiteReport,
) {
    let changes = service.is_none_or(|service| mend(service, want).is_some());
    let says = match (service, changes) {
        (None, _) => format!("is not there; is to lead to {}", wanted(want)),
        (Some(service), true) => {
            format!("{}; is to lead to {}", there(service), wanted(want))
        }
        (Some(_), false) => format!("leads to {}", wanted(want)),
    };
    let wrongs = wrongs(found, service, want);
    report.judge(FindingKind::Leftover, &name, says, wrongs);
    let slices = format!("EndpointSlices of {name}");
    let strangers = report.seen(&slices, &found.strangers);
    if let Some(strangers) = strangers.filter(|all| !all.is_empty()) {
        let does = format!("delete {} unless they lead to fipd", some(strangers));
        report.change(ChangeBy::You, &name, does);
    }
    if let Some(why) = &found.unseen_ingresses {
        report
            .unseen
            .push(format!("Ingresses that lead to {name}: {why}"));
    }
    if changes {
        let does = match service.map(selector) {
            None => "makes it and keeps its EndpointSlices".to_owned(),
            Some(Ok(_)) => format!(
                "takes its selector off, notes it in the annotation {TAKEN_OFF}, and keeps its EndpointSlices"
            ),
            Some(Err(_)) => "sets its ports and keeps its EndpointSlices".to_owned(),
        };
        report.change(ChangeBy::Itself, name, does);
    }
}

fn wrongs(found: &SiteInventory, service: Option<&Service>, want: &ServiceTarget) -> Vec<String> {
    let mut wrongs = Vec::new();
    if let Some(Ok(strangers)) = &found.strangers
        && !strangers.is_empty()
    {
        wrongs.push(format!("leads also where others say: {}", some(strangers)));
    }
    wrongs.extend(found.duties.closed.map(plan::closed));
    if let Some(port) = service.and_then(|service| node_port(service, want)) {
        wrongs.push(format!(
            "{port} is a node port of it, too: on a node of the cluster that leads back to it"
        ));
    }
    wrongs
}

/// What the Service says at present.
fn there(service: &Service) -> String {
    let selector = match selector(service) {
        Ok(selector) => format!("selector {selector}"),
        Err(Some(taken_off)) => format!("no selector ({taken_off} was taken off)"),
        Err(None) => "no selector".to_owned(),
    };
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
    let ports = ports.into_iter().flatten().map(|one| {
        let to = match &one.target_port {
            Some(IntOrString::Int(to)) => to.to_string(),
            Some(IntOrString::String(to)) => to.clone(),
            None => one.port.to_string(),
        };
        let node = one.node_port.filter(|port| *port != 0);
        let node = node.map_or_else(String::new, |port| format!(" (node port {port})"));
        format!("{} to {to}{node}", one.port)
    });
    match &*ports.collect::<Vec<_>>() {
        [] => format!("{selector}, no ports"),
        ports => format!("{selector}, {}", some(ports)),
    }
}

fn wanted(want: &ServiceTarget) -> String {
    let addresses: Vec<String> = want.addresses.iter().map(ToString::to_string).collect();
    let ports = want.ports.iter();
    let ports: Vec<String> = ports.map(|(port, to)| format!("{port} to {to}")).collect();
    let plain = match want.ports.len() {
        1 => "; 8080 leads nowhere: no [[listener]] with tls = false serves fip-v1 to others",
        _ => "",
    };
    format!("{}, {}{plain}", some(&addresses), ports.join(", "))
}

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
pub fn judge_url(found: &SiteInventory, report: &mut SiteReport) {
    let given = match &found.guest_url {
        None => return,
        Some(Err(why)) => return report.unseen.push(why.clone()),
        Some(Ok(given)) => given,
    };
    let (name, key) = match given.own {
        true => ("[cluster.rancher-fip.cluster-manager]".to_owned(), OWN_KEY),
        false => {
            let namespace = &found.duties.settings.app_namespace;
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
    let names = names(&found.duties.settings.app_namespace);
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
