//! What is to be said of what was seen, and which rules are taken over.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use fipd_core::host::{
    Asked, Here, KernelRule, Refusal, Rule, RuleSet, Takeover, UNTAGGED, asked, check_table,
    take_over,
};
use fipd_crds::ip_rule::{ABSENT, IPRuleConfig, MANAGED_BY, OPERATOR, PRESENT};
use kube::ResourceExt as _;

use super::{RuleInventory, RuleReport};
use crate::{
    adopt::{FindingKind, leases::LeaseHolder},
    controller::leader_election::is_fipd,
    rules::{EngineState, View},
};

/// What an IPRuleConfig wants of the kernel.
struct ConfiguredRule<'a> {
    name: String,
    table: u32,
    /// 0: whichever the kernel chose.
    priority: u32,
    config: &'a IPRuleConfig,
}

/// Makes the report.
pub fn report(found: &RuleInventory) -> RuleReport {
    let mut report = RuleReport {
        wording: ("rules", "taken over"),
        ..RuleReport::default()
    };
    report.count("IPRules", found.rules.len());
    report.count("IPRuleConfigs", found.configs.len());
    programs(found, &mut report);
    let known = known(found, &mut report);
    if found.view.state == EngineState::Off {
        let what = "the rules of this host: it is not told to have any; add the section [host] to the configuration";
        report.unseen.push(what.to_owned());
        report.blockers.push(what.to_owned());
        return report;
    }
    report.blockers.extend(engine(&found.view));
    rules(found, &known, &mut report);
    report
}

/// Why the engine would not keep what is taken over.
fn engine(view: &View) -> Option<String> {
    match &view.state {
        EngineState::Starting(why) | EngineState::Degraded(why) => {
            Some(format!("rules of this host cannot be changed: {why}"))
        }
        EngineState::Paused => Some(
            "the rules of this host are paused after a flush: `fipd rules resume` first".to_owned(),
        ),
        EngineState::Off | EngineState::Active if view.node.is_none() => Some(
            "it is not told which Node this host is, so that no rule of the cluster is wanted here: set node in [host]"
                .to_owned(),
        ),
        EngineState::Off | EngineState::Active => None,
    }
}

fn programs(found: &RuleInventory, report: &mut RuleReport) {
    match &found.programs {
        Err(why) => {
            let unseen = format!("the programs of the original: {why}");
            report.unseen.push(unseen);
            let unknown = "it is not known whether the original still runs";
            report.blockers.push(unknown.to_owned());
        }
        Ok(programs) => {
            for program in programs {
                let runs = program.replicas > 0;
                let brings =
                    "it is to run and would bring its rules back; scale it to 0 or delete it";
                let says = if runs {
                    brings
                } else {
                    "it is not to run any more"
                };
                report.finding(FindingKind::Program, program.to_string(), !runs, says);
                if runs {
                    report.blockers.push(format!("{program} {says}"));
                }
            }
        }
    }
    match &found.lease {
        LeaseHolder::Missing | LeaseHolder::Nobody | LeaseHolder::Ours { .. } => {}
        // The fipd that decides for the cluster; it need not be that of this host.
        LeaseHolder::Other { by, .. } if is_fipd(by) => {}
        LeaseHolder::Other {
            by, alive: true, ..
        } => report.blockers.push(format!(
            "{by} renews the Lease of the original's controller: stop it"
        )),
        LeaseHolder::Other { by, .. } => {
            let says = "it holds the Lease of the original's controller and does not renew it";
            report.wrong(FindingKind::Program, by, says);
        }
        LeaseHolder::Unknown(why) => report
            .unseen
            .push(format!("the Lease of the original's controller: {why}")),
    }
}

/// Those that the original made, by their source. One that says nothing to be found in the kernel is told.
fn known<'a>(
    found: &'a RuleInventory,
    report: &mut RuleReport,
) -> BTreeMap<IpAddr, Vec<ConfiguredRule<'a>>> {
    let mut known: BTreeMap<IpAddr, Vec<ConfiguredRule<'a>>> = BTreeMap::new();
    for config in &found.configs {
        let (name, spec) = (config.name_any(), &config.spec);
        let made = config.labels().get(MANAGED_BY).map(String::as_str) == Some(OPERATOR);
        let source = spec.service_ip.parse::<IpAddr>();
        let table = check_table(spec.table);
        let priority = u32::try_from(spec.priority);
        let state = [PRESENT, ABSENT].contains(&&*spec.state);
        match (source, table, priority) {
            (Ok(source), Ok(table), Ok(priority)) if made && state => {
                known.entry(source).or_default().push(ConfiguredRule {
                    name,
                    table,
                    priority,
                    config,
                });
            }
            _ => report.wrong(
                FindingKind::Malformed,
                format!("IPRuleConfig {name}"),
                format!(
                    "no rule is its: label {MANAGED_BY}={OPERATOR} {}, serviceIP {:?}, table {}, priority {}, state {:?}",
                    if made { "is there" } else { "is missing" },
                    spec.service_ip,
                    spec.table,
                    spec.priority,
                    spec.state
                ),
            ),
        }
    }
    known
}

fn rules(
    found: &RuleInventory,
    known: &BTreeMap<IpAddr, Vec<ConfiguredRule<'_>>>,
    report: &mut RuleReport,
) {
    let tables = found.rules.iter().map(|one| one.spec.table);
    let tables = tables.filter_map(|table| check_table(table).ok());
    let of_configs = known.values().flatten().map(|one| one.table);
    let tables: BTreeSet<u32> = tables.chain(of_configs).collect();
    let plan = plan(found, known);
    let mut seen = BTreeSet::new();
    for (rule, source, table) in found.view.kernel.iter().filter_map(untagged) {
        match fit(known, rule, source, table) {
            // Of several that are alike one is named: all of them go.
            Some(_) if !seen.insert(rule.clone()) => {}
            Some(one) if !is_kept(one, source, &found.view) => report.wrong(FindingKind::Unwanted, rule.to_string(), format!(
                    "IPRuleConfig {} is present, and yet no rule for it is wanted on this host: it is left alone. Look at \
                     the nodes that its IPRule selects, and at `fipd rules show`",
                    one.name
                )),
            Some(one) => match plan.refused.get(rule) {
                Some(why) => report.wrong(FindingKind::Refused, rule.to_string(), format!("IPRuleConfig {}: it is left alone: {why}", one.name)),
                None => report.act(
                    rule.to_string(),
                    does(one, rule, &plan, found.view.protocol),
                    rule.clone(),
                ),
            },
            None if tables.contains(&table) => report.wrong(FindingKind::Leftover, rule.to_string(), "no IPRuleConfig says so; it is left alone. If it is the original's: `fipd rules prune-foreign`"),
            None => {}
        }
    }
    report.count("rules without tag", report.changes.len());
}

/// The IPRuleConfig whose rule it is.
fn fit<'a, 'f>(
    known: &'a BTreeMap<IpAddr, Vec<ConfiguredRule<'f>>>,
    rule: &Rule,
    source: IpAddr,
    table: u32,
) -> Option<&'a ConfiguredRule<'f>> {
    let mut configs = known.get(&source).into_iter().flatten();
    configs.find(|one| one.table == table && (one.priority == 0 || one.priority == rule.priority))
}

/// Where each of them would have its own rule.
fn plan(found: &RuleInventory, known: &BTreeMap<IpAddr, Vec<ConfiguredRule<'_>>>) -> Takeover {
    let all = found.view.kernel.iter().filter_map(untagged);
    let all = all.filter(|(rule, source, table)| {
        let config = fit(known, rule, *source, *table);
        config.is_some_and(|one| is_kept(one, *source, &found.view))
    });
    let victims: BTreeSet<Rule> = all.map(|(rule, ..)| rule.clone()).collect();
    take_over(&victims, &here(&found.view, &asked(&found.sets)))
}

/// Why those of these rules stay that do.
pub fn refused(rules: &[Rule], sets: &[RuleSet], view: &View) -> BTreeMap<Rule, Refusal> {
    let there = view.kernel.iter().filter_map(untagged);
    let there = there.filter(|(rule, ..)| rules.contains(rule));
    let victims: BTreeSet<Rule> = there.map(|(rule, ..)| rule.clone()).collect();
    take_over(&victims, &here(view, &asked(sets))).refused
}

fn here<'a>(view: &'a View, asked: &'a BTreeMap<IpAddr, Asked>) -> Here<'a> {
    Here {
        list: &view.kernel,
        asked,
        places: &view.places,
        protocol: view.protocol,
        band: view.band,
    }
}

/// Whether its source has a rule afterwards, where it is to have one.
fn is_kept(one: &ConfiguredRule<'_>, source: IpAddr, view: &View) -> bool {
    one.config.spec.state == ABSENT || view.desired.owners.contains_key(&source)
}

fn does(one: &ConfiguredRule<'_>, rule: &Rule, plan: &Takeover, protocol: u8) -> String {
    let place = plan.taken.get(rule).filter(|at| **at != rule.priority);
    let place = place
        .map(|at| format!(" and priority {at}"))
        .unwrap_or_default();
    let then = match &*one.config.spec.state {
        ABSENT => "; both go, as it is to be absent",
        _ => "",
    };
    format!(
        "IPRuleConfig {}: one with tag {protocol}{place} is added, then this one is deleted{then}",
        one.name
    )
}

/// A rule as the original made them: its source a host, a table, and nothing else.
fn untagged(one: &KernelRule) -> Option<(&Rule, IpAddr, u32)> {
    let rule = &one.rule;
    let plain = one.more.is_none() && rule.protocol == UNTAGGED && rule.is_by_source();
    let (host, table) = rule.host().zip(rule.action.table())?;
    plain.then_some((rule, host, table))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fipd_core::{
        Family,
        host::{Desired, FwMark, Mode},
    };
    use serde_json::json;

    use fipd_core::host::RuleAction;

    use super::*;
    use crate::adopt::OriginalWorkload;

    fn config(source: &str, table: i64, priority: i64, state: &str) -> IPRuleConfig {
        let name = format!("iprc-{}", source.replace(['.', ':'], "-"));
        serde_json::from_value(json!({
            "apiVersion": "api.operator.brtrm.dev/v1alpha1", "kind": "IPRuleConfig",
            "metadata": { "name": name, "labels": { "managed-by": "ip-rule-operator" } },
            "spec": { "serviceIP": source, "table": table, "priority": priority, "state": state },
        }))
        .unwrap()
    }

    fn rule(priority: u32, source: &str, table: u32) -> Rule {
        let source: ipnet::IpNet = source.parse().unwrap();
        Rule {
            priority,
            family: Family::of(source.addr()),
            source: Some(source),
            destination: None,
            input: None,
            output: None,
            mark: None,
            action: RuleAction::Table(table),
            protocol: 0,
        }
    }

    fn found(configs: Vec<IPRuleConfig>, kernel: Vec<Rule>) -> RuleInventory {
        let wanted = configs.iter().filter(|one| one.spec.state == PRESENT);
        let wanted = wanted.filter_map(|one| one.spec.service_ip.parse().ok());
        let desired = Desired {
            owners: wanted.map(|source| (source, "c/lb".into())).collect(),
            ..Desired::default()
        };
        let sets = configs.iter().filter(|one| one.spec.state == PRESENT);
        let sets = sets.filter_map(|one| {
            Some(RuleSet {
                name: "c/lb".into(),
                sources: [one.spec.service_ip.parse().ok()?].into(),
                table: u32::try_from(one.spec.table).ok()?,
                priority: u32::try_from(one.spec.priority).ok().filter(|one| *one > 0),
                fail_closed: false,
                mode: Mode::Auto,
            })
        });
        let sets = sets.collect();
        RuleInventory {
            rules: Vec::new(),
            configs,
            sets,
            programs: Ok(Vec::new()),
            lease: LeaseHolder::Missing,
            view: Arc::new(View {
                state: EngineState::Active,
                node: Some("n1".into()),
                protocol: 200,
                band: 10_000,
                desired: Arc::new(desired),
                kernel: Arc::new(kernel.into_iter().map(Into::into).collect()),
                ..View::default()
            }),
        }
    }

    #[test]
    fn only_rules_that_are_an_ipruleconfigs_in_full_are_taken_over() {
        let ours = rule(1000, "10.96.0.1/32", 100);
        let chosen = rule(32_765, "fd00::1/128", 100);
        let marked = Rule {
            mark: Some(FwMark { value: 1, mask: 1 }),
            ..ours.clone()
        };
        let tagged = Rule {
            protocol: 3,
            ..ours.clone()
        };
        let kernel = vec![
            ours.clone(),
            ours.clone(),
            rule(1001, "10.96.0.1/32", 100),
            rule(1002, "10.96.0.1/32", 7),
            rule(1000, "10.96.0.0/24", 100),
            rule(1000, "10.96.0.9/32", 100),
            marked,
            tagged,
            chosen.clone(),
        ];
        let configs = vec![
            config("10.96.0.1", 100, 1000, "present"),
            config("fd00::1", 100, 0, "present"),
        ];
        let report = report(&found(configs, kernel));
        let taken: Vec<&Rule> = report
            .changes
            .iter()
            .filter_map(|one| one.action.as_ref())
            .collect();
        assert_eq!(taken, [&ours, &chosen]);
        assert!(
            report.changes[0]
                .does
                .contains("iprc-10-96-0-1: one with tag 200")
        );
        let left: Vec<&str> = report.findings.iter().map(|one| &*one.name).collect();
        let expected = [
            "1001: from 10.96.0.1 lookup 100 proto 0",
            "1000: from 10.96.0.9 lookup 100 proto 0",
        ];
        assert_eq!(
            left, expected,
            "those of tables that nobody names are no leftovers"
        );
        assert!(report.blockers.is_empty(), "{report:?}");
    }

    #[test]
    fn an_original_that_leads_is_in_the_way_and_a_fipd_that_leads_is_not() {
        let blockers = |by: &str| {
            let mut found = found(Vec::new(), Vec::new());
            found.lease = LeaseHolder::Other {
                by: by.to_owned(),
                renewed: None,
                alive: true,
            };
            report(&found).blockers
        };
        assert_eq!(blockers("fipd_host-1_0a1b2c3d_fd00_1"), [""; 0]);
        assert_eq!(
            blockers("controller-0_5f6a"),
            ["controller-0_5f6a renews the Lease of the original's controller: stop it"]
        );
    }

    #[test]
    fn a_rule_whose_packets_would_change_their_table_is_left_alone_with_the_reason() {
        let foreign = |priority, destination: &str| Rule {
            source: None,
            destination: Some(destination.parse().unwrap()),
            protocol: 4,
            ..rule(priority, "10.0.0.0/8", 55)
        };
        let kernel = vec![
            rule(998, "10.96.0.1/32", 100),
            foreign(1000, "192.0.2.0/24"),
            rule(3000, "10.96.0.2/32", 100),
            foreign(3000, "198.51.100.0/24"),
        ];
        let configs = vec![
            config("10.96.0.1", 100, 0, "present"),
            config("10.96.0.2", 100, 3000, "present"),
        ];
        let report = report(&found(configs, kernel));
        assert_eq!(report.changes.len(), 1, "{report:?}");
        assert!(report.changes[0].does.contains("tag 200 and priority 999"));
        assert_eq!(report.findings[0].kind, FindingKind::Refused);
        let says = &report.findings[0].says;
        assert!(
            says.contains("let the IPRule state a priority of 1000 to 2999"),
            "{says}"
        );
    }

    #[test]
    fn no_rule_is_taken_over_that_this_host_would_not_keep() {
        let kernel = vec![
            rule(1000, "10.96.0.1/32", 100),
            rule(1000, "10.96.0.2/32", 100),
        ];
        let configs = vec![
            config("10.96.0.1", 100, 1000, "present"),
            config("10.96.0.2", 100, 1000, "absent"),
        ];
        let mut seen = found(configs, kernel);
        let with = |seen: &mut RuleInventory, change: &dyn Fn(&mut View)| {
            let mut view = View::clone(&seen.view);
            change(&mut view);
            seen.view = Arc::new(view);
            report(seen)
        };
        assert_eq!(report(&seen).changes.len(), 2);
        let out_of_scope = with(&mut seen, &|view| view.desired = Arc::default());
        assert_eq!(out_of_scope.changes.len(), 1, "what is to be absent goes");
        assert_eq!(out_of_scope.findings[0].kind, FindingKind::Unwanted);
        let paused = with(&mut seen, &|view| view.state = EngineState::Paused);
        assert!(paused.blockers[0].contains("resume"), "{paused:?}");
        let nobody = with(&mut seen, &|view| {
            view.state = EngineState::Active;
            view.node = None;
        });
        assert!(nobody.blockers[0].contains("node in [host]"), "{nobody:?}");
    }

    fn workload(kind: &'static str, name: &str, replicas: i32) -> OriginalWorkload {
        let (namespace, name) = ("a".to_owned(), name.to_owned());
        OriginalWorkload {
            kind,
            namespace,
            name,
            replicas,
        }
    }

    #[test]
    fn what_still_runs_and_what_is_not_known_keeps_it_from_being_done() {
        let mut seen = found(vec![config("10.96.0.1", 0, 0, "present")], Vec::new());
        seen.programs = Ok(vec![
            workload("DaemonSet", "iprule-agent", 3),
            workload("Deployment", "gone", 0),
        ]);
        seen.lease = LeaseHolder::Other {
            by: "manager_1".into(),
            renewed: None,
            alive: true,
        };
        let told = report(&seen);
        assert_eq!(told.blockers.len(), 2, "{told:?}");
        assert!(told.blockers[0].contains("DaemonSet a/iprule-agent"));
        assert_eq!(told.findings[2].kind, FindingKind::Malformed);
        seen.programs = Err("forbidden".into());
        seen.lease = LeaseHolder::Nobody;
        assert_eq!(report(&seen).blockers.len(), 1);
        seen.programs = Ok(Vec::new());
        seen.view = Arc::default();
        let off = report(&seen);
        assert!(off.blockers[0].contains("[host]"), "{off:?}");
    }
}
