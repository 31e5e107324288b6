//! What an Agent says of itself.

use fipd_crds::ip_rule::AgentStatus;
use k8s_openapi::jiff;

use super::{Obstacle, Running, standing::Standing};
use crate::{
    controller::conditions::{ConditionUpdate, set},
    systems::ip_rule::observe::Agent,
};

/// Copied from its DaemonSet. Equal to what is there where nothing changed, so that nothing is written then.
pub fn desired(
    agent: &Agent,
    standing: &Standing,
    running: Option<&Running>,
    obstacle: Option<&Obstacle>,
    now: jiff::Timestamp,
) -> AgentStatus {
    let mut status = agent.status.clone();
    let generation = agent.meta.generation;
    status.observed_generation = generation.unwrap_or_default();
    let counted = running.filter(|_| *standing == Standing::Active);
    let (desired, current, ready) =
        counted.map_or((0, 0, 0), |set| (set.desired, set.current, set.ready));
    status.desired_number_scheduled = desired;
    status.current_number_scheduled = current;
    status.number_ready = ready;
    let (is, reason, message) = match (standing, obstacle) {
        (_, Some(Obstacle { reason, text })) => (false, *reason, text.clone()),
        (Standing::InvalidName, None) => {
            let text = format!(
                "an Agent is called default or agent, not {}: nothing is run",
                agent.meta.name
            );
            (false, "InvalidName", text)
        }
        (Standing::Inactive(winner), None) => {
            let text = format!(
                "the Agent {}/{} counts; delete one of the two",
                winner.namespace, winner.name
            );
            (false, "InactiveInstance", text)
        }
        (Standing::Active, None) => {
            let all = ready > 0 && ready == desired;
            let reason = if all { "AllReady" } else { "Progressing" };
            (all, reason, format!("{ready} of {desired} pods are ready"))
        }
    };
    let says = ConditionUpdate::ready(is, reason, message);
    set(&mut status.conditions, &says, generation, now);
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::store::Key;

    fn at(second: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(second).unwrap()
    }

    fn running(ready: i64) -> Running {
        Running {
            desired: 2,
            current: 2,
            ready,
            ..Running::default()
        }
    }

    #[test]
    fn defect_14_a_status_is_written_only_when_it_says_something_else() {
        let mut agent = Agent::default();
        agent.status = desired(&agent, &Standing::Active, Some(&running(1)), None, at(10));
        assert_eq!(agent.status.conditions[0].reason, "Progressing");
        assert_eq!(
            desired(&agent, &Standing::Active, Some(&running(1)), None, at(20)),
            agent.status
        );
        let ready = desired(&agent, &Standing::Active, Some(&running(2)), None, at(20));
        assert_eq!(
            (ready.number_ready, ready.conditions[0].reason.as_str()),
            (2, "AllReady")
        );
        let other = Standing::Inactive(Key::new("a", "agent"));
        let inactive = desired(&agent, &other, Some(&running(2)), None, at(20));
        assert_eq!(
            (
                inactive.number_ready,
                inactive.conditions[0].reason.as_str()
            ),
            (0, "InactiveInstance")
        );
        let obstacle = Obstacle {
            reason: "NotApplied",
            text: "forbidden".into(),
        };
        let stuck = desired(
            &agent,
            &Standing::Active,
            Some(&running(2)),
            Some(&obstacle),
            at(20),
        );
        assert_eq!(
            stuck.conditions[0].reason, "NotApplied",
            "whatever the pods say"
        );
        assert_eq!(
            desired(&agent, &Standing::InvalidName, None, None, at(20)).conditions[0].reason,
            "InvalidName"
        );
    }
}
