//! What the objects want of the kernel, written down once more, without any code of fipd.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

use fipd_crds::ip_rule::{IPRule, IPRuleSpec};
use fipd_tests::netlink::RawRule;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Service;

use fipd_tests::rule_site::TAG;

/// The first of the band in which rules are that name no priority.
const OWN_PRIORITY: u32 = 10_000;

/// A source goes where the most specific range says that has one of its addresses; of equal ones the lesser name counts.
pub fn expected(rules: &[IPRule], services: &[Service], labels: &[(&str, &str)]) -> Vec<RawRule> {
    let mut best: BTreeMap<IpAddr, (Reverse<u8>, &str, &IPRuleSpec)> = BTreeMap::new();
    for service in services {
        let spec = service.spec.as_ref().unwrap();
        let own = spec.cluster_ips.iter().flatten();
        let own: Vec<IpAddr> = own.filter_map(|ip| ip.parse().ok()).collect();
        for vip in vips(service) {
            for rule in rules {
                let name = rule.metadata.name.as_deref().unwrap();
                let Some(length) = longest(&rule.spec, vip) else {
                    continue;
                };
                let sources = match rule.spec.source.as_str() {
                    "vip" => vec![vip],
                    _ => own.clone(),
                };
                for source in sources.iter().filter(|ip| ip.is_ipv4() == vip.is_ipv4()) {
                    let claim = (Reverse(length), name, &rule.spec);
                    let there = best.entry(*source).or_insert(claim);
                    if (claim.0, claim.1) < (there.0, there.1) {
                        *there = claim;
                    }
                }
            }
        }
    }
    let here = best.into_iter().filter(|(_, (_, _, spec))| {
        let selector = spec.node_selector_label.as_str();
        selector.is_empty()
            || labels
                .iter()
                .any(|(key, value)| selector == *key || selector == format!("{key}={value}"))
    });
    let mut all: Vec<RawRule> = here
        .flat_map(|(source, (_, _, spec))| in_kernel(source, spec))
        .collect();
    all.sort();
    all
}

fn vips(service: &Service) -> Vec<IpAddr> {
    let status = service.status.as_ref();
    let balancer = status.and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref());
    let ips = ingress.into_iter().flatten();
    ips.filter_map(|one| one.ip.as_deref()?.parse().ok())
        .collect()
}

fn longest(spec: &IPRuleSpec, vip: IpAddr) -> Option<u8> {
    let all = spec.cidrs.iter().chain([&spec.cidr]);
    let all = all.filter_map(|cidr| cidr.parse::<IpNet>().ok());
    let those = all.filter(|range| range.contains(&vip));
    those.map(|range| range.prefix_len()).max()
}

fn in_kernel(source: IpAddr, spec: &IPRuleSpec) -> Vec<RawRule> {
    let priority = match u32::try_from(spec.priority).unwrap() {
        0 => OWN_PRIORITY,
        said => said,
    };
    let table = u32::try_from(spec.table).unwrap();
    let rule = RawRule::new(source, table, priority, TAG);
    let companion = RawRule {
        priority: priority + 1,
        table: None,
        ..rule.clone()
    };
    match spec.fail_closed {
        true => vec![rule, companion],
        false => vec![rule],
    }
}
