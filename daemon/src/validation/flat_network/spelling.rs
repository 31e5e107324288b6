//! The spelling of 2024, turned into the current one.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use fipd_crds::flat_network::{FlatNetworkIPSpec, FlatNetworkSubnetSpec, FlatRange, FlatRoute};

use super::mac::MacAddress;

/// The longest base64 of a hardware address.
const LONGEST: usize = 28;

/// The subnet in the current spelling; `None`: it is in that already. Where both spellings say something, the current one
/// counts.
pub fn current(spec: &FlatNetworkSubnetSpec) -> Option<FlatNetworkSubnetSpec> {
    let mut now = spec.clone();
    now.ranges.iter_mut().for_each(range);
    now.routes.iter_mut().for_each(route);
    if let Some(old) = now.pod_default_gateway.take() {
        let settings = &mut now.route_settings;
        settings.flat_network_default_gateway |= old.enable;
        settings.add_service_cidr |= !old.service_cidr.is_empty();
    }
    (now != *spec).then_some(now)
}

/// The same of the address of a pod, whose MACs were base64 of their bytes.
pub fn current_ip(spec: &FlatNetworkIPSpec) -> Option<FlatNetworkIPSpec> {
    let mut now = spec.clone();
    for text in &mut now.macs {
        if let Some(mac) = encoded_mac(text) {
            *text = mac.to_string();
        }
    }
    (now != *spec).then_some(now)
}

/// A hardware address in either spelling.
pub fn mac(text: &str) -> Option<MacAddress> {
    text.parse().ok().or_else(|| encoded_mac(text))
}

/// No text of the current spelling is base64.
fn encoded_mac(text: &str) -> Option<MacAddress> {
    let short = Some(text).filter(|text| text.len() <= LONGEST)?;
    MacAddress::of(&STANDARD.decode(short).ok()?)
}

fn range(range: &mut FlatRange) {
    rename(&mut range.end, &mut range.to);
}

fn route(route: &mut FlatRoute) {
    rename(&mut route.destination, &mut route.dst);
    rename(&mut route.gateway, &mut route.via);
    rename(&mut route.interface, &mut route.dev);
}

fn rename(former: &mut String, current: &mut String) {
    let text = std::mem::take(former);
    if current.is_empty() {
        *current = text;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(value: Value) -> FlatNetworkSubnetSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_spelling_of_2024_becomes_the_current_one_once() {
        let old = spec(json!({
            "flatMode": "macvlan", "cidr": "10.0.0.0/24",
            "ranges": [{ "from": "10.0.0.1", "end": "10.0.0.9" }, { "from": "10.0.0.20", "to": "10.0.0.30" }],
            "routes": [{ "destination": "10.1.0.0/16", "gateway": "10.0.0.2", "interface": "eth1", "priority": 3 }],
            "podDefaultGateway": { "enable": true, "serviceCIDR": "10.43.0.0/16" },
        }));
        let now = current(&old).unwrap();
        let wanted = spec(json!({
            "flatMode": "macvlan", "cidr": "10.0.0.0/24",
            "ranges": [{ "from": "10.0.0.1", "to": "10.0.0.9" }, { "from": "10.0.0.20", "to": "10.0.0.30" }],
            "routes": [{ "dst": "10.1.0.0/16", "via": "10.0.0.2", "dev": "eth1", "priority": 3 }],
            "routeSettings": { "flatNetworkDefaultGateway": true, "addServiceCIDR": true },
        }));
        assert_eq!(now, wanted);
        assert_eq!(current(&now), None);
        assert_eq!(current(&FlatNetworkSubnetSpec::default()), None);
    }

    #[test]
    fn what_is_off_stays_off_and_the_current_spelling_counts() {
        let off = spec(json!({ "podDefaultGateway": { "enable": false } }));
        assert_eq!(current(&off), Some(FlatNetworkSubnetSpec::default()));
        let both = spec(
            json!({ "ranges": [{ "from": "10.0.0.1", "to": "10.0.0.5", "end": "10.0.0.9" }] }),
        );
        let now = current(&both).unwrap();
        assert_eq!(
            now.ranges.first().map(|range| range.to.as_str()),
            Some("10.0.0.5")
        );
        let set = spec(json!({
            "routeSettings": { "addServiceCIDR": true }, "podDefaultGateway": { "enable": false },
        }));
        assert!(current(&set).unwrap().route_settings.add_service_cidr);
    }

    #[test]
    fn macs_were_base64_of_their_bytes() {
        let text = |bytes: &[u8]| STANDARD.encode(bytes);
        for length in [6, 8, 20] {
            let bytes = vec![2; length];
            assert_eq!(mac(&text(&bytes)).unwrap().bytes(), bytes);
        }
        for wrong in [text(&[2; 7]), "AAAA".into(), "=".repeat(300), String::new()] {
            assert_eq!(mac(&wrong), None, "{wrong}");
        }
        assert_eq!(
            mac("AA:bb:cc:dd:ef:01").unwrap().to_string(),
            "aa:bb:cc:dd:ef:01"
        );
        let old = FlatNetworkIPSpec {
            macs: vec![
                text(&[2, 0, 0, 0, 0, 1]),
                "AA:bb:cc:dd:ef:01".into(),
                "?".into(),
            ],
            ..FlatNetworkIPSpec::default()
        };
        let now = current_ip(&old).unwrap();
        assert_eq!(now.macs, ["02:00:00:00:00:01", "AA:bb:cc:dd:ef:01", "?"]);
        assert_eq!(current_ip(&now), None);
    }
}
