//! What the journal notes beside what fipd makes of the host: tags of its routes, and the epoch of the address book.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{
    cni::journal::{CniJournal, CniJournalError},
    store::HostId,
};

/// Boots that are remembered: what containers of one that is forgotten have waits for an admin.
const BOOTS: usize = 100;

/// The journal of this host. One that came here with the data directory of another says what that one has and which deletions of its
/// spool are done: it is put aside, and another is begun. `None`: which host it is, nobody knows.
pub(super) fn open(path: &Path, host: Option<HostId>) -> Result<CniJournal, CniJournalError> {
    const NOTE: &str = "host";
    let mut journal = CniJournal::open(path)?;
    let Some(host) = host.map(|host| host.text()) else {
        return Ok(journal);
    };
    if journal.made().get(NOTE).is_some_and(|noted| *noted != host) {
        drop(journal);
        let aside = path.with_extension("of-another-host");
        fs::rename(path, &aside).map_err(redb::Error::Io)?;
        tracing::warn!(
            aside = %aside.display(),
            "the journal of attachments is of another host; it is put aside, and an empty one begun"
        );
        journal = CniJournal::open(path)?;
    }
    journal.note_made(NOTE, Some(&host))?;
    Ok(journal)
}

/// The boots of this host that the journal knows, with that of now. Where the address book comes from another host, those of its
/// containers are not among them.
pub(super) fn boots(
    journal: &mut CniJournal,
    boot: &str,
) -> Result<BTreeSet<String>, CniJournalError> {
    const NOTE: &str = "boot/";
    journal.note_made(&format!("{NOTE}{boot}"), Some(boot))?;
    let noted = journal.made().keys();
    let noted = noted.filter_map(|thing| thing.strip_prefix(NOTE));
    let mut boots: BTreeSet<String> = noted.map(str::to_owned).collect();
    let too_many = boots.len().saturating_sub(BOOTS);
    let earlier = boots.iter().filter(|one| *one != boot);
    let forgotten: Vec<String> = earlier.take(too_many).cloned().collect();
    for one in forgotten {
        journal.note_made(&format!("{NOTE}{one}"), None)?;
        boots.remove(&one);
    }
    Ok(boots)
}

/// The tag of new routes, and those of earlier settings that attachments may have: the journal notes each. Without attachments
/// none of the earlier ones is there any more.
pub(super) fn protocols(
    journal: &mut CniJournal,
    own: u8,
    boot: &str,
) -> Result<Vec<u8>, CniJournalError> {
    const NOTE: &str = "route-protocol/";
    let noted = journal.made().keys();
    let earlier = noted.filter_map(|thing| thing.strip_prefix(NOTE)?.parse().ok());
    let earlier: Vec<u8> = earlier.filter(|one| *one != own).collect();
    let mut protocols = vec![own];
    for protocol in earlier {
        match journal.attachments().is_empty() {
            true => journal.note_made(&format!("{NOTE}{protocol}"), None)?,
            false => protocols.push(protocol),
        }
    }
    journal.note_made(&format!("{NOTE}{own}"), Some(boot))?;
    Ok(protocols)
}

/// Whether this boot is the first in which the address book has this epoch. The journal notes the boot: when an epoch began is a
/// time of the restored file, which may be long before.
pub(super) fn is_new_epoch(
    journal: &mut CniJournal,
    epoch: Option<u64>,
    boot: &str,
) -> Result<bool, CniJournalError> {
    const NOTE: &str = "epoch/";
    let Some(epoch) = epoch else {
        return Ok(false);
    };
    let own = format!("{NOTE}{epoch}");
    if !journal.made().contains_key(&own) {
        journal.note_made(&own, Some(boot))?;
    }
    let noted = journal.made().keys();
    let earlier = noted.filter(|thing| thing.starts_with(NOTE) && **thing != own);
    for thing in earlier.cloned().collect::<Vec<_>>() {
        journal.note_made(&thing, None)?;
    }
    Ok(journal.made().get(&own).map(String::as_str) == Some(boot))
}
