//! What attachments share of the host: VLANs, promiscuous masters and routes. The last user takes each away.

mod notes;
mod routes;
mod running;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use fipd_cni::{
    Ask,
    link::{KindOfLink, Link, Netlink},
};

use super::{
    board::CniBoard,
    host_route,
    journal::{CniJournal, CniJournalError},
    netns::{is_gone, is_seen},
    record::{AttachmentKey, AttachmentRecord, HostUse, PodOwner, VlanUse},
    refusal::{CallRefusal, kernel},
};
use crate::store::HostId;
pub use running::RunningContainer;
use running::RunningContainers;

/// The alias of VLANs that fipd makes, for people; the journal says which are.
const ALIAS: &str = "fipd-cni";
/// Of `linux/if_ether.h`.
const ETH_P_8021Q: u16 = 0x8100;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Why the host's part does not start.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error(transparent)]
    Journal(#[from] CniJournalError),
    #[error("{BOOT_ID}: {0}")]
    Boot(io::Error),
    #[error("the list of containers that run: {0}")]
    Running(io::Error),
    #[error("the task that opens the journal ended")]
    Ended,
}

/// The journal, and the interfaces and routes that it says are used. Its methods wait for disk and kernel.
pub struct HostState {
    journal: CniJournal,
    boot: String,
    /// Tags of routes: that of new ones first, then those of earlier settings.
    protocols: Vec<u8>,
    /// Of this host.
    boots: BTreeSet<String>,
    is_new_epoch: bool,
    running: RunningContainers,
    board: CniBoard,
}

impl HostState {
    /// `host`: where it is known; `epoch`: number of the address book's epoch, where it has one.
    pub fn open(
        path: &Path,
        host: Option<HostId>,
        protocol: u8,
        epoch: Option<u64>,
        board: CniBoard,
    ) -> Result<Self, HostError> {
        let boot = fs::read_to_string(BOOT_ID).map_err(HostError::Boot)?;
        let boot = boot.trim().to_owned();
        let mut journal = notes::open(path, host)?;
        let protocols = notes::protocols(&mut journal, protocol, &boot)?;
        let boots = notes::boots(&mut journal, &boot)?;
        let is_new_epoch = notes::is_new_epoch(&mut journal, epoch, &boot)?;
        let running = RunningContainers::open(path, &boot).map_err(HostError::Running)?;
        let host = Self {
            journal,
            boot,
            protocols,
            boots,
            is_new_epoch,
            running,
            board,
        };
        host.show();
        Ok(host)
    }

    /// Which boot of the host it is.
    pub fn boot(&self) -> &str {
        &self.boot
    }

    /// All boots of the host that are known.
    pub fn boots(&self) -> &BTreeSet<String> {
        &self.boots
    }

    /// Whether the address book was restored, or taken over, since the boot before this one: it may not know which of its
    /// containers run.
    pub fn is_new_epoch(&self) -> bool {
        self.is_new_epoch
    }

    /// The last entry of the spool that was done.
    pub fn replayed(&self) -> u64 {
        self.journal.replayed()
    }

    pub fn record(&self, key: &AttachmentKey) -> Option<AttachmentRecord> {
        self.journal.attachments().get(key).cloned()
    }

    /// The attachments of a network that it knows.
    pub fn attachments(&self, network: &str) -> BTreeSet<AttachmentKey> {
        let all = self.journal.attachments().keys();
        all.filter(|key| key.network == network).cloned().collect()
    }

    /// Deletions of the spool that are yet to be done.
    pub fn deferred(&self) -> &BTreeMap<AttachmentKey, Ask> {
        self.journal.deferred()
    }

    /// That an entry of the spool is done, or its deletion is to be done later.
    pub fn note_replayed(
        &mut self,
        number: u64,
        deferred: Option<(AttachmentKey, Ask)>,
    ) -> Result<(), CallRefusal> {
        let noted = self.journal.note_replayed(number, deferred);
        noted.map_err(journal)
    }

    pub fn forget_deferred(&mut self, key: &AttachmentKey) -> Result<(), CallRefusal> {
        self.journal.forget_deferred(key).map_err(journal)
    }

    /// Writes an attachment down and has the host make what it uses, without what only its earlier record used. Answers the name
    /// of the interface of its VLAN.
    pub fn acquire(
        &mut self,
        key: AttachmentKey,
        record: AttachmentRecord,
    ) -> Result<Option<String>, CallRefusal> {
        self.settle()?;
        let uses = record.uses.clone();
        let before = self.record(&key).map(|before| before.uses);
        let before = before.unwrap_or_default();
        let counts = self.journal.uses();
        counts.check_ipvlan(&uses, &before)?;
        let mut unused = counts.unused_without(&before);
        unused.retain(|one| !uses.contains(one));
        self.take_away(&unused)?;
        self.journal.put(key, record).map_err(journal)?;
        self.show();
        let mut netlink = open()?;
        let mut parent = None;
        for one in &uses {
            match one {
                HostUse::Vlan(vlan) => parent = Some(self.ensure_vlan(&mut netlink, vlan)?),
                HostUse::Promiscuous(master) => self.ensure_promiscuous(&mut netlink, master)?,
                // Made once the container can be reached, and with its interface.
                HostUse::Route(_) | HostUse::Ipvlan(_) => {}
            }
        }
        Ok(parent)
    }

    /// Takes away what only these use, and crosses them out.
    pub fn release(&mut self, keys: &BTreeSet<AttachmentKey>) -> Result<(), CallRefusal> {
        self.settle()?;
        let known = self.journal.attachments();
        let ending: Vec<HostUse> = keys
            .iter()
            .filter_map(|key| known.get(key))
            .flat_map(|record| record.uses.clone())
            .collect();
        let unused = self.journal.uses().unused_without(&ending);
        self.take_away(&unused)?;
        self.journal.remove(keys).map_err(journal)?;
        keys.iter().for_each(|key| self.forget_running(key));
        self.show();
        Ok(())
    }

    /// Makes the masters promiscuous again that attachments need so: an admin may have switched that off.
    pub fn restore(&mut self) -> Result<(), CallRefusal> {
        let masters: Vec<String> = self.journal.uses().masters().map(str::to_owned).collect();
        if masters.is_empty() {
            return Ok(());
        }
        let mut netlink = open()?;
        let mut result = Ok(());
        for master in &masters {
            let restored = match netlink.find(master) {
                Ok(Some(_)) => self.ensure_promiscuous(&mut netlink, master),
                Ok(None) => Ok(()),
                Err(error) => Err(kernel(&format!("find {master}"), &error)),
            };
            result = result.and(restored);
        }
        result
    }

    /// Removes what is left of containers whose namespace is gone. Answers pods of which the namespace cannot be seen.
    pub fn sweep(&mut self) -> Vec<(AttachmentKey, PodOwner)> {
        let all = self.journal.attachments().iter();
        let boot = &self.boot;
        let gone =
            |record: &AttachmentRecord| record.boot != *boot || is_gone(Path::new(&record.netns));
        let (dead, alive): (Vec<_>, Vec<_>) = all.partition(|(_, record)| gone(record));
        let unsure = alive
            .into_iter()
            .filter(|(_, record)| !is_seen(Path::new(&record.netns)))
            .filter_map(|(key, record)| Some((key.clone(), record.pod.clone()?)))
            .collect();
        let dead: BTreeSet<_> = dead.into_iter().map(|(key, _)| key.clone()).collect();
        if dead.is_empty() {
            return unsure;
        }
        // All at once, and one by one where something of one cannot be removed.
        let mut failed = self.release(&dead).err();
        if failed.is_some() {
            let each = dead.iter().map(|key| [key.clone()].into());
            failed = each.fold(None, |failed, one| self.release(&one).err().or(failed));
        }
        match failed {
            None => tracing::info!(
                count = dead.len(),
                "what containers used that are gone is removed"
            ),
            Some(refusal) => tracing::warn!(
                error = refusal.why,
                "cannot clean up after removed containers; will retry"
            ),
        }
        unsure
    }

    /// The interface of the VLAN, whoever has made it; made if there is none. Answers its name.
    fn ensure_vlan(
        &mut self,
        netlink: &mut Netlink,
        vlan: &VlanUse,
    ) -> Result<String, CallRefusal> {
        let what = format!("make {}", vlan.name);
        let master = existing(netlink, &vlan.master)?;
        let all = netlink.list().map_err(|error| kernel(&what, &error))?;
        let unfinished = unfinished(&master, vlan.id);
        if let Some(found) = all.iter().find(|link| is_vlan(link, &master, vlan.id)) {
            if found.name == unfinished {
                return self.finish_vlan(netlink, found.index, vlan);
            }
            if !found.up {
                let up = netlink.set_up(found.index, true);
                up.map_err(|error| kernel(&format!("set {} up", found.name), &error))?;
            }
            return Ok(found.name.clone());
        }
        if all.iter().any(|link| link.name == vlan.name) {
            let (name, id, master) = (&vlan.name, vlan.id, &vlan.master);
            let why = format!(
                "this host has an interface {name} which is not VLAN {id} on {master}; rename it"
            );
            return Err(CallRefusal::later(why));
        }
        let made = netlink.create_vlan(&unfinished, master.index, vlan.id);
        let made = made.map_err(|error| kernel(&what, &error))?;
        let found = netlink
            .find(&unfinished)
            .map_err(|error| kernel(&what, &error))?;
        let found = found.filter(|link| is_vlan(link, &master, vlan.id));
        let (Some(link), true) = (found, made) else {
            return Err(CallRefusal::later(format!(
                "{what}: somebody else did just now; ask again"
            )));
        };
        self.finish_vlan(netlink, link.index, vlan)
    }

    /// Notes the interface of a VLAN that fipd made, and gives it its name. Whoever dies before this is done leaves the name by
    /// which it is known.
    fn finish_vlan(
        &mut self,
        netlink: &mut Netlink,
        index: u32,
        vlan: &VlanUse,
    ) -> Result<String, CallRefusal> {
        let made = made_as(&self.boot, index);
        let noted = self.journal.note_made(&interface(&vlan.name), Some(&made));
        noted.map_err(journal)?;
        let finished = netlink
            .set_alias(index, ALIAS)
            .and_then(|()| netlink.rename(index, &vlan.name))
            .and_then(|()| netlink.set_up(index, true));
        finished.map_err(|error| kernel(&format!("make {}", vlan.name), &error))?;
        Ok(vlan.name.clone())
    }

    /// Only one that fipd has made.
    fn remove_vlan(&mut self, netlink: &mut Netlink, vlan: &VlanUse) -> Result<(), CallRefusal> {
        let thing = interface(&vlan.name);
        let noted = self.journal.made().get(&thing).cloned();
        let said = |error: io::Error| kernel(&format!("remove {}", vlan.name), &error);
        if let Some(master) = netlink.find(&vlan.master).map_err(said)? {
            let unfinished = unfinished(&master, vlan.id);
            // Another index is another interface, which somebody else made.
            let is_noted = |link: &Link| noted.as_ref() == Some(&made_as(&self.boot, link.index));
            let is_ours =
                |link: &Link| link.name == unfinished || link.name == vlan.name && is_noted(link);
            let all = netlink.list().map_err(said)?;
            let mut vlans = all.iter().filter(|link| is_vlan(link, &master, vlan.id));
            if let Some(link) = vlans.find(|link| is_ours(link)) {
                netlink.delete(link.index).map_err(said)?;
            }
        }
        self.journal.note_made(&thing, None).map_err(journal)
    }

    /// Whether fipd has made the thing since the host was started.
    fn has_made(&self, thing: &str) -> bool {
        self.journal.made().get(thing) == Some(&self.boot)
    }

    /// Made so and noted as fipd's, unless it is so already.
    fn ensure_promiscuous(
        &mut self,
        netlink: &mut Netlink,
        master: &str,
    ) -> Result<(), CallRefusal> {
        let link = existing(netlink, master)?;
        if link.promiscuous {
            return Ok(());
        }
        let noted = self
            .journal
            .note_made(&promiscuity(master), Some(&self.boot));
        noted.map_err(journal)?;
        netlink
            .set_promiscuous(link.index, true)
            .map_err(|error| kernel(&format!("make {master} promiscuous"), &error))
    }

    fn take_away(&mut self, unused: &[HostUse]) -> Result<(), CallRefusal> {
        if unused.is_empty() {
            return Ok(());
        }
        let mut netlink = open()?;
        for one in unused {
            match one {
                HostUse::Route(address) => {
                    host_route::remove(&mut netlink, *address, &self.protocols)?
                }
                HostUse::Vlan(vlan) => self.remove_vlan(&mut netlink, vlan)?,
                HostUse::Promiscuous(master) => self.undo_promiscuous(&mut netlink, master)?,
                // Goes with the last interface.
                HostUse::Ipvlan(_) => {}
            }
        }
        Ok(())
    }

    /// Only where fipd has made it so, and in this boot.
    fn undo_promiscuous(&mut self, netlink: &mut Netlink, master: &str) -> Result<(), CallRefusal> {
        let thing = promiscuity(master);
        if self.has_made(&thing)
            && let Some(link) = netlink
                .find(master)
                .map_err(|error| kernel(&format!("find {master}"), &error))?
        {
            netlink
                .set_promiscuous(link.index, false)
                .map_err(|error| kernel(&format!("make {master} no longer promiscuous"), &error))?;
        }
        self.journal.note_made(&thing, None).map_err(journal)
    }

    /// A write that failed may be in the file all the same, and with it another user of what is taken away now.
    fn settle(&mut self) -> Result<(), CallRefusal> {
        self.journal.settle().map_err(journal)
    }

    fn show(&self) {
        let attachments = self.journal.attachments().len();
        let kept = self.journal.uses().len();
        self.board.show_host(attachments, kept);
    }
}

/// That it was made in this boot, and the index it has.
fn made_as(boot: &str, index: u32) -> String {
    format!("{boot}/{index}")
}

/// What the journal calls them.
fn promiscuity(master: &str) -> String {
    format!("promiscuity/{master}")
}

fn interface(name: &str) -> String {
    format!("interface/{name}")
}

/// The name of the interface of a VLAN until it has its alias and is noted; nobody else uses such a name. At most 15 bytes.
fn unfinished(master: &Link, id: u16) -> String {
    format!("fv{:x}.{id:x}", master.index)
}

fn is_vlan(link: &Link, master: &Link, wanted: u16) -> bool {
    let tagged = Some(KindOfLink::Vlan {
        id: wanted,
        protocol: ETH_P_8021Q,
    });
    link.kind == tagged && link.parent == Some(master.index) && !link.parent_is_elsewhere
}

fn existing(netlink: &mut Netlink, name: &str) -> Result<Link, CallRefusal> {
    let found = netlink.find(name);
    let found = found.map_err(|error| kernel(&format!("find {name}"), &error))?;
    found.ok_or_else(|| {
        let why =
            format!("this host has no interface {name}, which the network names as its master");
        CallRefusal::later(why)
    })
}

fn open() -> Result<Netlink, CallRefusal> {
    Netlink::open().map_err(|error| kernel("be asked", &error))
}

fn journal(error: CniJournalError) -> CallRefusal {
    CallRefusal::later(error.to_string())
}

#[cfg(test)]
mod tests;
