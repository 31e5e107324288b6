//! Rules of others that go by an admin's word: the requests that remove exactly those. Pure.

use std::collections::{BTreeMap, HashMap};

use fipd_core::{
    Family,
    host::{KernelRule, Rule, is_own},
};

/// Own rules to add first, each behind those of its priority; then the victims to ask for, by their place in the list of
/// victims, one request each.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Removal {
    pub adds: Vec<Rule>,
    pub requests: Vec<usize>,
    /// What cannot go, and why.
    pub refused: Vec<String>,
}

/// Plans it on a list in the kernel's order. A request takes the first rule that is like it; where that is fipd's own, it is
/// added once more before. Where it is another's, the victim stays.
pub(super) fn plan(victims: &[KernelRule], list: &[KernelRule], protocol: u8) -> Removal {
    let mut places: BTreeMap<(u32, Family), Vec<Option<KernelRule>>> = BTreeMap::new();
    for one in list {
        let place = places.entry((one.rule.priority, one.rule.family));
        place.or_default().push(Some(one.clone()));
    }
    let mut removal = Removal::default();
    for (index, victim) in victims.iter().enumerate() {
        let place = places.get_mut(&(victim.rule.priority, victim.rule.family));
        let Some(place) = place.filter(|all| all.iter().flatten().any(|one| one == victim)) else {
            continue;
        };
        // Each turn takes one rule that was there before.
        let is_hit = |one: &KernelRule| {
            // What a victim says beyond a rule of fipd's is in the request.
            let own = victim.more.is_some() && is_own(one, protocol);
            !own && victim.rule.may_take(&one.rule)
        };
        while let Some(hit) = place
            .iter_mut()
            .find(|one| one.as_ref().is_some_and(is_hit))
        {
            let Some(taken) = hit.clone() else { break };
            let is_victim = taken == *victim;
            if !is_victim && !is_own(&taken, protocol) {
                removal.refused.push(format!(
                    "{victim} was not deleted: the kernel would take {taken} in its place"
                ));
                break;
            }
            *hit = None;
            removal.requests.push(index);
            if is_victim {
                break;
            }
            removal.adds.push(taken.rule.clone());
            place.push(Some(taken));
        }
    }
    removal
}

/// Those of `victims` that are in the list no more; of several that are alike, as many as there are fewer.
pub(super) fn gone(victims: &[KernelRule], list: &[KernelRule]) -> Vec<KernelRule> {
    let mut left: HashMap<&KernelRule, usize> = HashMap::with_capacity(list.len());
    for one in list {
        *left.entry(one).or_default() += 1;
    }
    let mut gone = Vec::new();
    for victim in victims {
        match left.get_mut(victim).filter(|count| **count > 0) {
            Some(count) => *count -= 1,
            None => gone.push(victim.clone()),
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use fipd_core::host::RuleAction;

    use super::*;

    const OWN: u8 = 200;

    fn rule(source: &str, protocol: u8) -> KernelRule {
        let source: ipnet::IpNet = source.parse().unwrap();
        Rule {
            priority: 1000,
            family: Family::of(source.addr()),
            source: Some(source),
            destination: None,
            input: None,
            output: None,
            mark: None,
            action: RuleAction::Table(100),
            protocol,
        }
        .into()
    }

    #[test]
    fn an_own_twin_that_would_be_taken_is_added_once_more_before() {
        let (own, victim) = (rule("10.0.0.1/32", OWN), rule("10.0.0.1/32", 0));
        let list = [own.clone(), victim.clone()];
        let removal = plan(std::slice::from_ref(&victim), &list, OWN);
        assert_eq!(removal.adds, std::slice::from_ref(&own.rule));
        assert_eq!(removal.requests, [0, 0], "the twin, then the victim");
        let behind = plan(std::slice::from_ref(&victim), &[victim.clone(), own], OWN);
        assert_eq!((behind.adds.len(), behind.requests), (0, vec![0]));
    }

    #[test]
    fn what_another_program_has_is_not_taken_in_the_place_of_a_victim() {
        let mut other = rule("10.0.0.1/32", 0);
        other.more = Some("ipproto tcp".into());
        let victim = rule("10.0.0.1/32", 0);
        let removal = plan(std::slice::from_ref(&victim), &[other, victim.clone()], OWN);
        assert!(removal.requests.is_empty());
        assert!(removal.refused[0].contains("in its place"), "{removal:?}");
        assert_eq!(
            plan(std::slice::from_ref(&victim), &[], OWN),
            Removal::default(),
            "it is gone"
        );
    }

    #[test]
    fn of_many_that_are_alike_each_is_asked_for_once_and_counted_once() {
        let victim = rule("10.0.0.1/32", 0);
        let victims = vec![victim.clone(); 3];
        let removal = plan(&victims, &victims, OWN);
        assert_eq!(removal.requests, [0, 1, 2]);
        assert_eq!(gone(&victims, std::slice::from_ref(&victim)).len(), 2);
        assert_eq!(gone(&victims, &[]).len(), 3);
        assert!(gone(&victims, &victims).is_empty());
    }

    #[test]
    fn a_request_with_a_tag_takes_no_rule_of_another_tag() {
        let (own, bird) = (rule("10.0.0.1/32", OWN), rule("10.0.0.1/32", 12));
        let removal = plan(std::slice::from_ref(&bird), &[own, bird.clone()], OWN);
        assert_eq!((removal.adds.len(), removal.requests), (0, vec![0]));
    }
}
