//! Warnings of the store, its disk and its copies.

use fipd_core::{Ledger, Timestamp};
use fipd_web_ui::{Warning, links};

use super::{link, part};
use crate::{
    api::ui::{dashboard::size, views},
    backups::{BackupStatus, Schedule},
    ipam::Ipam,
    store::Condition,
};

/// Less than this is free on the disk, or less than the store takes.
pub(super) const DISK: u64 = 256 << 20;

/// That nothing is decided, and why.
pub fn store(ipam: &Ipam) -> Option<Warning> {
    let (what, next) = match ipam.reader().stats().condition {
        Condition::Serving => return None,
        Condition::OtherHost => (
            "The store belongs to another host, where fipd may still decide by it".to_owned(),
            "What is shown is right as of the copy; clusters, rules of this host, webhooks and backups are left alone. If the store \
             has moved here for good, stop fipd and run `fipd host claim --reason TEXT`.",
        ),
        Condition::Full { free, needed } => (
            format!(
                "The disk of the store is full: {} free, {} needed",
                size(free),
                size(needed)
            ),
            "Nothing new is decided; what is shown is right. Free some space in the data directory.",
        ),
        Condition::Reopening { error, attempts } => (
            format!("The store failed ({error}) and is being reopened, attempt {attempts}"),
            "Nothing new is decided meanwhile. Look at the disk if it goes on.",
        ),
        Condition::Stopped { reason } => (
            format!("The store has stopped: {reason}"),
            "Nothing is decided any more. Put it right and start fipd again.",
        ),
    };
    Some(Warning {
        urgent: true,
        what,
        next: next.to_owned(),
        link: link(links::SETTINGS, "See where it lies"),
        ..Warning::default()
    })
}

/// Bytes that the store takes, and bytes that are free.
pub(super) fn disk(known: Option<(u64, u64)>) -> Option<Warning> {
    let (used, free) = known?;
    (free < DISK.max(used)).then(|| Warning {
        what: format!("The disk of the store has only {} left", size(free)),
        next: "Once it is full nothing new is decided. Free some space, or move the data directory to a larger disk.".to_owned(),
        link: link(links::SETTINGS, "See where it lies"),
        ..Warning::default()
    })
}

/// That the time of the address book is not the host's.
pub(super) fn clock(ipam: &Ipam) -> Option<Warning> {
    let what = ipam.time().warning()?;
    Some(Warning {
        what: format!("Time: {what}"),
        next: "`fipd clock show` compares both times.".to_owned(),
        link: link(links::SETTINGS, "See the settings"),
        ..Warning::default()
    })
}

/// That a backup was brought back, or that a cluster knows more than the store, and free addresses are held.
pub(super) fn restore_hold(ledger: &Ledger) -> Option<Warning> {
    let hold = ledger.restore_hold()?;
    let what = if ledger.epoch().is_some_and(|epoch| epoch.hold.is_some()) {
        "A backup was brought back: free addresses are given to nobody new until about".to_owned()
    } else {
        let names = ledger.networks_held().map(|network| &*network.name);
        let names: Vec<&str> = names.take(5).collect();
        format!(
            "A cluster knows decisions that this store does not, so that it is an older one: free addresses of network {} are given \
             to nobody new until about",
            names.join(", ")
        )
    };
    Some(Warning {
        urgent: true,
        what,
        at: Some(views::moment(hold.until)),
        next: "Then that ends by itself. If nothing of the time after it can be in use:".into(),
        commands: vec!["fipd hold lift --reason TEXT".into()],
        link: link(links::BACKUP, "End it here"),
        ..Warning::default()
    })
}

pub(super) fn copies(
    schedule: &Schedule,
    standing: &BackupStatus,
    now: Timestamp,
) -> Option<Warning> {
    let open = || link(links::BACKUP, "Open the backups");
    if let Some((at, error)) = &standing.failure {
        return Some(Warning {
            what: "The last backup failed at".to_owned(),
            at: Some(views::moment(*at)),
            why: part(error),
            next: "Make room where backups are kept, or let fipd write there. Then make one:"
                .to_owned(),
            commands: vec!["fipd backup now".to_owned()],
            link: open(),
            ..Warning::default()
        });
    }
    let every = schedule.every?;
    let age = standing.last.map(|last| now.0.saturating_sub(last.0));
    let old = age.is_some_and(|age| u128::from(age) > every.as_millis() * 2);
    old.then(|| Warning {
        what: "The newest backup is of".to_owned(),
        at: standing.last.map(views::moment),
        next: "It should have been followed by others. Make one now, and look at the log of fipd for why not.".to_owned(),
        commands: vec!["fipd backup now".to_owned()],
        link: open(),
        ..Warning::default()
    })
}
