//! Warnings of the configuration, the certificate and the receivers of events.

use std::time::Duration;

use fipd_core::Timestamp;
use fipd_web_ui::{Warning, count, links};

use super::link;
use crate::{api::ui::views, reload::ReloadStatus, webhooks::HookView};

/// A certificate that ends sooner.
pub(super) const CERTIFICATE: Duration = Duration::from_secs(30 * 24 * 3600);

/// What keeps the daemon from being as the configuration says.
pub(super) fn configuration(standing: &ReloadStatus) -> Vec<Warning> {
    let failed = standing.failed.as_ref().map(|error| Warning {
        urgent: true,
        what: format!("The configuration file was changed and cannot be used: {error}"),
        next: "The last good configuration stays in force until the file is right.".to_owned(),
        commands: vec!["fipd check".to_owned()],
        link: link(links::SETTINGS, "See what is in force"),
        ..Warning::default()
    });
    let restart = (!standing.needs_restart.is_empty()).then(|| Warning {
        what: format!(
            "Changes of the configuration wait for a restart: {}",
            standing.needs_restart.join(", ")
        ),
        next: "Until then fipd runs with what they were.".to_owned(),
        commands: vec!["sudo systemctl restart fipd".to_owned()],
        link: link(links::SETTINGS, "See what is in force"),
        ..Warning::default()
    });
    failed.into_iter().chain(restart).collect()
}

pub(super) fn certificate(ends: Option<Timestamp>, now: Timestamp) -> Option<Warning> {
    let ends = ends?;
    let over = ends <= now;
    let near = u128::from(ends.0.saturating_sub(now.0)) < CERTIFICATE.as_millis();
    near.then(|| Warning {
        urgent: over,
        what: format!(
            "The certificate of this page {} at",
            if over { "ended" } else { "ends" }
        ),
        at: Some(views::moment(ends)),
        next: "Put a new one where [api] cert and key point to, then have it read:".to_owned(),
        commands: vec!["sudo systemctl reload fipd".to_owned()],
        link: link(links::SETTINGS, "See where that is"),
        ..Warning::default()
    })
}

/// Receivers of events that take none, and what they will never hear.
pub(super) fn silent(hooks: impl IntoIterator<Item = HookView>) -> Vec<Warning> {
    let warning = |view: &HookView, what, next| Warning {
        what,
        next,
        commands: vec![format!("fipd webhooks test {}", view.name)],
        link: link(links::SETTINGS, "See where it is"),
        ..Warning::default()
    };
    let of = |view: HookView| {
        let name = &view.name;
        if let Some((why, ..)) = &view.failing {
            let what = format!("Webhook {name} takes no events: {why}");
            let next = format!(
                "{} entries wait. They are sent again by themselves; to try at once:",
                count(view.pending)
            );
            return Some(warning(&view, what, next));
        }
        (view.missed > 0).then(|| {
            let what = format!(
                "Webhook {name} missed {} entries of the audit log",
                count(view.missed)
            );
            let next = "They were trimmed before it could be told. Raise [audit] keep, and see that it can be reached:";
            warning(&view, what, next.to_owned())
        })
    };
    hooks.into_iter().filter_map(of).collect()
}
