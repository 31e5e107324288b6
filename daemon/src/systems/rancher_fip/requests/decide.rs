//! Which FloatingIP a Service gets: pure.
//!
//! A Service that has one gets it again, so that a retry is the same question. Objects that we make have names that
//! follow from what is asked, so that an end at any point leaves at most one.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use fipd_core::{NetworkId, Refusal, RefusalClass, Text};
use fipd_crds::labels::{add_service, remove_all_services, services};
use http::StatusCode;
use sha2::{Digest, Sha256};

use crate::{
    fip_v1::{Asker, Denied, Service},
    ipam::IpamError,
    systems::rancher_fip::{
        floating_ip::observe::Fip,
        names::{CLUSTER, GROUP, PROJECT, hex},
    },
};

/// A FloatingIP of the project, as it was read just now.
#[derive(Clone, Debug)]
pub struct Known {
    pub name: Text,
    pub labels: BTreeMap<String, String>,
    pub fip: Fip,
    /// Of its pool; `None`: that is not known.
    pub network: Option<NetworkId>,
    /// The address it has.
    pub address: Option<IpAddr>,
    /// Whether the address book says so; else it is what the object shows.
    pub held: bool,
    /// Somebody else was found using the address as well.
    pub contended: bool,
    /// Which Services were taken off it last.
    pub left: String,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct AddressRequest<'a> {
    pub asker: &'a Asker,
    pub service: &'a Service,
    /// The real name of the pool.
    pub pool: &'a str,
    /// Of the pool; `None`: it is not known yet.
    pub network: Option<NetworkId>,
    pub address: Option<IpAddr>,
    pub group: Option<&'a str>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The Service has this one.
    Has(Text),
    /// This one is to name the Service.
    Attach(Text),
    /// One of this name is to be made.
    Create(String),
    Refuse(Denied),
}

/// What is done with an object for which the address book gives nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    Nothing,
    /// It was made for this alone.
    Delete,
    /// It is to be as it was before it was given to the Service.
    Restore,
}

/// Decides, given all FloatingIPs of the project. `taken`: names that objects of others have.
pub fn decide(ask: &AddressRequest<'_>, known: &[Known], taken: &BTreeSet<String>) -> Decision {
    // Another network may have the same address.
    let other_pool = |one: &&Known| one.fip.pool != ask.pool;
    let own = living(known).filter(|one| ask.has(one));
    if let Some(one) = own.min_by_key(other_pool) {
        return Decision::Has(Text::clone(&one.name));
    }
    let at = |address| living(known).filter(move |one| one.is_at(address) && ask.is_near(one));
    match ask.address {
        Some(address) => match at(address).min_by_key(other_pool) {
            Some(one) => ask.join(one),
            None => ask.create(known, taken),
        },
        None => ask.any(known, taken),
    }
}

impl AddressRequest<'_> {
    /// Whether the Service has it already, and it is what is asked for.
    fn has(&self, one: &Known) -> bool {
        let fits = match self.address {
            Some(address) => one.is_at(address) && self.is_near(one),
            None => one.fip.pool == self.pool,
        };
        let group = self
            .group
            .is_none_or(|group| one.fip.group.as_deref() == Some(group));
        fits && group && one.is_of(&self.asker.cluster) && one.names(self.service)
    }

    /// Whether an address of its network is the same address in ours.
    fn is_near(&self, one: &Known) -> bool {
        let networks = self.network.zip(one.network);
        one.fip.pool == self.pool || networks.is_none_or(|(own, other)| own == other)
    }

    /// The address it names is that of `one`.
    fn join(&self, one: &Known) -> Decision {
        let conflict = |message: &str| Decision::Refuse(Denied::new(StatusCode::CONFLICT, message));
        let Some(cluster) = &one.fip.cluster else {
            if one.fip.pool != self.pool {
                let Known { fip, .. } = one;
                let at = self.address.map(|at| at.to_string()).unwrap_or_default();
                return Decision::Refuse(denied(format!(
                    "{at} is kept for the project in pool {}, not in pool {}; ask for that pool or delete it first",
                    fip.pool, self.pool
                )));
            }
            if one.contended {
                return conflict(TAKEN);
            }
            return Decision::Attach(Text::clone(&one.name));
        };
        let Some(group) = one
            .fip
            .group
            .as_deref()
            .filter(|_| one.fip.holder.is_none())
        else {
            return conflict(TAKEN);
        };
        if self.group.is_some_and(|wanted| wanted != group) {
            return conflict("FloatingIPGroup does not match the assigned FloatingIPGroup");
        }
        if *cluster != self.asker.cluster {
            return conflict("FloatingIP is already in use by another cluster");
        }
        Decision::Attach(Text::clone(&one.name))
    }

    /// Any address of the pool will do.
    fn any(&self, known: &[Known], taken: &BTreeSet<String>) -> Decision {
        let open = |one: &&Known| one.fip.pool == self.pool && one.fip.holder.is_none();
        let shared = living(known).filter(open).find(|one| {
            self.group.is_some()
                && one.fip.group.as_deref() == self.group
                && one.is_of(&self.asker.cluster)
        });
        let kept = || {
            living(known)
                .filter(open)
                .find(|one| one.fip.cluster.is_none() && one.held && !one.contended)
        };
        match shared.or_else(kept) {
            Some(one) => Decision::Attach(Text::clone(&one.name)),
            None => self.create(known, taken),
        }
    }

    fn create(&self, known: &[Known], taken: &BTreeSet<String>) -> Decision {
        let taken =
            |name: &String| taken.contains(name) || known.iter().any(|one| *one.name == **name);
        let mut names = (0_u32..).map(|number| self.name(number));
        names
            .find(|name| !taken(name))
            .map_or_else(|| Decision::Refuse(Denied::late()), Decision::Create)
    }

    /// The name of the object that is made for this: the same for the Services of a group, and always the same. The
    /// number counts up where another Service has come to use what was made for this one.
    fn name(&self, number: u32) -> String {
        let Asker {
            project, cluster, ..
        } = self.asker;
        let Service { namespace, name } = self.service;
        let whom = match self.group {
            Some(group) => ["group", group, ""],
            None => ["service", namespace, name],
        };
        let mut hash = Sha256::new();
        for part in [project, cluster, self.pool].into_iter().chain(whom) {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        hash.update(number.to_be_bytes());
        format!("fip-{}", hex(hash, 8))
    }

    /// Whether the object was made for this and for nothing else.
    pub fn made(&self, one: &Known) -> bool {
        let mut names = (0..8).map(|number| self.name(number));
        names.any(|name| *name == *one.name) && services(&one.labels).len() == 1
    }

    /// What a refusal leaves to do with the object that was to have an address; `attached`: it was given to the Service just
    /// now. Where nothing is `certain` the client asks again, and finds it.
    pub fn undo(&self, one: &Known, attached: bool, certain: bool) -> Undo {
        if !certain {
            Undo::Nothing
        } else if one.address.is_none() && self.made(one) {
            Undo::Delete
        } else if attached {
            Undo::Restore
        } else {
            Undo::Nothing
        }
    }

    /// The labels of an object that the Service uses.
    pub fn labels(&self, mut labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
        if !labels.contains_key(CLUSTER) {
            // Who had it last may have left these behind; they would share the address with the next.
            remove_all_services(&mut labels);
            labels.remove(GROUP);
        }
        labels.insert(PROJECT.to_owned(), self.asker.project.clone());
        labels.insert(CLUSTER.to_owned(), self.asker.cluster.clone());
        add_service(&mut labels, &self.service.namespace, &self.service.name);
        if let Some(group) = self.group {
            labels.insert(GROUP.to_owned(), group.to_owned());
        }
        labels
    }
}

impl Known {
    pub fn is_at(&self, address: IpAddr) -> bool {
        match self.address {
            Some(own) => own == address,
            None => self.fip.wanted.parse() == Ok(address),
        }
    }

    pub fn is_of(&self, cluster: &str) -> bool {
        self.fip.cluster.as_deref() == Some(cluster)
    }

    pub fn names(&self, service: &Service) -> bool {
        self.fip.services.iter().any(|one| {
            one.service_namespace == service.namespace && one.service_name == service.name
        })
    }
}

/// Somebody has the address.
pub const TAKEN: &str = "IP address is already assigned";

/// A request that stays wrong until somebody changes something: the stock client tells its user, and does not ask again.
pub fn denied(why: impl std::fmt::Display) -> Denied {
    let message = format!("fipd denied the request: {why}");
    Denied::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}

fn living(known: &[Known]) -> impl Iterator<Item = &Known> {
    known.iter().filter(|one| one.fip.meta.deleted.is_none())
}

/// Why an object has no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct No {
    pub said: Denied,
    /// It will get none by what was asked so far; else that may be under way.
    pub certain: bool,
}

impl From<Denied> for No {
    fn from(said: Denied) -> Self {
        let open = [Denied::late(), Denied::elsewhere()];
        let certain = !open.contains(&said);
        Self { said, certain }
    }
}

impl From<&IpamError> for No {
    fn from(why: &IpamError) -> Self {
        Self {
            said: error(why),
            certain: matches!(why, IpamError::Refused(_)),
        }
    }
}

/// The address book said no, or nothing.
pub fn error(error: &IpamError) -> Denied {
    match error {
        IpamError::Refused(refusal) => refused(refusal),
        IpamError::Store(_)
        | IpamError::Forbidden(_)
        | IpamError::Stale(_)
        | IpamError::Stopping => {
            tracing::warn!(%error, "a request of an LB controller was not decided");
            Denied::late()
        }
    }
}

/// Only what does not pass by itself says `denied the request`, after which the client does not ask again; and it hears nothing of
/// other projects.
fn refused(refusal: &Refusal) -> Denied {
    let class = refusal.class();
    if let RefusalClass::AddressTaken(_) = class {
        Denied::new(StatusCode::CONFLICT, TAKEN)
    } else if matches!(class, RefusalClass::Held | RefusalClass::RestoreHeld) {
        tracing::info!(why = %refusal, "an LB controller is told to ask later");
        Denied::late()
    } else if class == RefusalClass::Exhausted {
        Denied::new(StatusCode::INTERNAL_SERVER_ERROR, refusal.to_string())
    } else {
        denied(refusal)
    }
}

#[cfg(test)]
mod tests;
