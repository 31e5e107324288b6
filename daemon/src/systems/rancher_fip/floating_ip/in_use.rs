//! Who keeps the address of a FloatingIP that is deleted. Pure.

use std::net::IpAddr;

use fipd_core::{ClusterId, Holder};

use super::observe::Fip;
use crate::{
    controller::store::Key,
    systems::rancher_fip::names::{self, KIND_SERVICE, ServiceRef},
};

/// Reason of the condition and the Event.
pub const REASON: &str = "AddressKept";

/// What is known of the use of an address in the cluster that the object names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    Shows(ServiceRef),
    /// It answers, or Rancher has no such cluster any more.
    ShowsNowhere,
    /// It is connected and does not answer.
    Silent(ClusterId),
    /// fipd is not connected to it: only the object tells who uses the address.
    Unconnected,
}

/// Rancher's id of the cluster whose Services may use the address of the object; `None`: nobody does. One that fipd wrote for
/// a Service has a lease of its own only once that Service gave it up.
pub fn cluster<'a>(key: &Key, fip: &'a Fip) -> Option<&'a str> {
    let ours = fip
        .holder
        .as_ref()
        .is_some_and(|service| service.made(&key.name));
    fip.cluster.as_deref().filter(|_| !ours)
}

/// Who keeps the address; `None`: it is free.
pub fn keeper(management: &ClusterId, key: &Key, fip: &Fip, word: Word) -> Option<Holder> {
    let called = cluster(key, fip)?;
    let services = fip.users();
    match word {
        Word::Shows(service) => Some(service.holder()),
        Word::ShowsNowhere => None,
        Word::Silent(cluster) => {
            let service = services.first()?;
            Some(names::holder(&cluster, KIND_SERVICE, service, "".into()))
        }
        Word::Unconnected => match services.as_slice() {
            [] => None,
            [service] => Some(names::reported_service(management, called, service)),
            // No Service of this name gives it up for the others.
            [_, _, ..] => Some(names::reported_service(management, called, key)),
        },
    }
}

/// What is said of an address that outlives its object.
pub fn note(address: IpAddr, fip: &Fip, to: &Holder) -> String {
    let identity = &to.identity;
    let cluster = fip.cluster.as_deref().unwrap_or_default();
    let end = if identity.interface.is_empty() {
        "until that cluster shows it no more"
    } else {
        "fipd is not connected to that cluster; where nobody uses the address, `fipd lease release` frees it"
    };
    format!(
        "{address} stays with Service {}/{} of cluster {cluster}, which uses it: {end}",
        identity.namespace, identity.name
    )
}

#[cfg(test)]
mod tests {
    use fipd_crds::floating_ip::{FloatingIP, ServiceRef as Assignee};

    use super::*;
    use crate::systems::rancher_fip::floating_ip::observe::slim;

    fn fip(cluster: Option<&str>, services: &[&str]) -> Fip {
        let mut fip = slim(FloatingIP::default());
        fip.cluster = cluster.map(str::to_owned);
        let assignee = |name: &&str| Assignee {
            service_namespace: "shop".into(),
            service_name: (*name).into(),
        };
        fip.services = services.iter().map(assignee).collect();
        fip
    }

    fn shown() -> ServiceRef {
        ServiceRef::parse("Service/g/shop/web/u").expect("a Service")
    }

    fn end(fip: &Fip, name: &str, word: Word) -> Option<String> {
        let kept = keeper(&ClusterId("m".into()), &Key::new("c-m-a", name), fip, word);
        kept.map(|holder| format!("{} {}", holder.identity, holder.instance))
    }

    #[test]
    fn an_address_that_a_service_shows_stays_with_it() {
        let fip = fip(Some("c-m-a"), &["web"]);
        let own = Some("rancher-fip/g/Service/shop/web u".to_owned());
        assert_eq!(end(&fip, "a", Word::Shows(shown())), own);
        assert_eq!(end(&fip, "a", Word::ShowsNowhere), None);
    }

    #[test]
    fn a_cluster_that_does_not_answer_loses_nothing() {
        let used = fip(Some("c-m-a"), &["web"]);
        let silent = || Word::Silent(ClusterId("g".into()));
        let kept = Some("rancher-fip/g/Service/shop/web ".to_owned());
        assert_eq!(end(&used, "a", silent()), kept);
        let reported = Some("rancher-fip/m/Service/shop/web@c-m-a ".to_owned());
        assert_eq!(end(&used, "a", Word::Unconnected), reported);
        let shared = fip(Some("c-m-a"), &["web", "api"]);
        let by_name = Some("rancher-fip/m/Service/c-m-a/a@c-m-a ".to_owned());
        assert_eq!(end(&shared, "a", Word::Unconnected), by_name);
    }

    #[test]
    fn an_address_that_no_service_has_is_free() {
        for one in [fip(None, &["web"]), fip(Some("c-m-a"), &[])] {
            assert_eq!(end(&one, "a", Word::Unconnected), None);
            assert_eq!(end(&one, "a", Word::Silent(ClusterId("g".into()))), None);
        }
        let nameless = fip(Some("c-m-a"), &[""]);
        assert_eq!(end(&nameless, "a", Word::Unconnected), None);
        let service = shown();
        let made = service.floating_ip_name(fipd_core::Family::V4);
        let given_up = Fip {
            holder: Some(service),
            ..fip(Some("c-m-a"), &["web"])
        };
        assert_eq!(end(&given_up, &made, Word::Unconnected), None);
        let kept = end(&given_up, "fip-abc12", Word::Unconnected);
        assert!(kept.is_some(), "another program made it");
    }

    #[test]
    fn what_is_said_names_the_user_and_the_way_out() {
        let fip = fip(Some("c-m-a"), &["web"]);
        let address = IpAddr::from([10, 0, 0, 5]);
        let text = note(address, &fip, &shown().holder());
        assert!(
            text.starts_with("10.0.0.5 stays with Service shop/web of cluster c-m-a"),
            "{text}"
        );
        let reported =
            names::reported_service(&ClusterId("m".into()), "c-m-a", &Key::new("shop", "web"));
        assert!(note(address, &fip, &reported).contains("`fipd lease release`"));
    }
}
