//! Warnings of the rules of this host.

use fipd_web_ui::{Warning, count, links};

use super::{link, part, some};
use crate::rules::{EngineState, View};

pub(super) fn engine(view: &View) -> Vec<Warning> {
    let open = || link(links::RULES, "Open the rules");
    let state = match &view.state {
        EngineState::Off | EngineState::Active => None,
        EngineState::Starting(why) => Some((
            false,
            "The rules of this host were not brought into the kernel yet",
            why.as_str(),
            "Until then packets go by the main table. If that goes on, the log says more:",
            "journalctl --unit fipd --lines 50",
        )),
        EngineState::Paused => Some((
            true,
            "The rules of this host were removed by an admin",
            "",
            "Packets go by the main table until somebody brings the rules back:",
            "fipd rules resume",
        )),
        EngineState::Degraded(why) => Some((
            true,
            "The rules of this host cannot be kept",
            why.as_str(),
            "Once that is put right they are kept again. What fipd lacks on this host:",
            "fipd check",
        )),
    };
    let state = state.map(|(urgent, what, why, next, command)| Warning {
        urgent,
        what: what.to_owned(),
        why: part(why),
        next: next.to_owned(),
        commands: vec![command.to_owned()],
        link: open(),
        ..Warning::default()
    });
    let repaired = view.drift.removed + view.drift.added + view.drift.index;
    let drift = (repaired > 0).then(|| Warning {
        what: format!(
            "Something else changed the rules of this host: {} were repaired since the start",
            count(repaired)
        ),
        next: "Find the program that does, such as a network manager that flushes rules."
            .to_owned(),
        link: open(),
        ..Warning::default()
    });
    let notes = view.warnings.iter().map(|note| Warning {
        what: part(&note.text),
        next: "Rules are kept all the same. Put it right on this host or in its configuration."
            .to_owned(),
        link: open(),
        ..Warning::default()
    });
    state.into_iter().chain(drift).chain(some(notes)).collect()
}
