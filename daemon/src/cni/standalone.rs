//! Containers without Kubernetes: their addresses are from pools of the address book.
//!
//! The identity is what CNI calls an attachment by. The instance is the boot of the host: no container outlives one, so that
//! what an earlier boot left is free once its runtime had the time to start it again.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use fipd_cni::{Code, NetConf, attachment::ProbeResult};
use fipd_core::{
    Adopt, Allocate, Answer, Family, Holder, Identity, Lease, LeaseFilter, LeaseKey, LeaseState,
    Ledger, NameError, Pool, ProbeVerdict, Probed, Refusal, RefusalClass, Release, ReleaseScope,
    Request, System, Text, Want,
};
use ipnet::IpNet;

use super::{attach::PoolAddress, record::AttachmentKey, refusal::CallRefusal};
use crate::{
    clock,
    ipam::{Ipam, IpamError},
};

/// Kind of the owner of such leases; its namespace is the name of the network.
const KIND: &str = "Container";
const ACTOR: &str = "cni";
/// Leases in one step through the address book.
const PAGE: usize = 500;
/// How long the leases of an earlier boot are kept for containers that are started again, after the boot and after fipd's start.
pub const RESTART_GRACE: Duration = Duration::from_secs(600);

/// The address book, for containers of this host.
#[derive(Clone)]
pub struct ContainerLeases {
    pub ipam: Ipam,
    /// Of the host.
    pub boot: Text,
    /// Whether pods of Kubernetes get some. Quotas of tenants do not count here.
    pub for_pods: bool,
}

impl ContainerLeases {
    /// The addresses of an attachment, one of each pool of the configuration; the same ones when asked again.
    pub async fn allocate(
        &self,
        key: &AttachmentKey,
        conf: &NetConf,
        asked: &[IpAddr],
    ) -> Result<Vec<PoolAddress>, CallRefusal> {
        let wants = self.ipam.read(|ledger| wants(ledger, conf, asked))?;
        let request = Request::Allocate(Allocate {
            holder: self.holder(key),
            tenant: None,
            wants,
            waiting_since: None,
            by_admin: false,
            share: None,
            probe: conf.probe,
            actor: ACTOR.into(),
        });
        let answer = self.ipam.submit(request).await;
        let answer = answer.map_err(|error| refused(&error))?;
        let Answer::Granted { leases, .. } = answer else {
            let why = format!("the address book answered {answer:?}");
            return Err(CallRefusal::later(why));
        };
        self.release_beyond(key, &leases).await?;
        Ok(self.ipam.read(|ledger| given(ledger, &leases)))
    }

    /// Gives back what the attachment has beyond what it was given now: an earlier `ADD` had other pools or addresses, which the
    /// interface does not have.
    async fn release_beyond(
        &self,
        key: &AttachmentKey,
        given: &[Arc<Lease>],
    ) -> Result<(), CallRefusal> {
        let identity = identity(key);
        let leases = self.ipam.read(|ledger| ledger.leases_of(&identity));
        let mut beyond = BTreeMap::<&Holder, Vec<LeaseKey>>::new();
        for lease in &leases {
            if given.iter().any(|one| one.key == lease.key) {
                continue;
            }
            let ours = lease.members.iter().map(|member| &member.holder);
            for holder in ours.filter(|holder| holder.identity == identity) {
                beyond.entry(holder).or_default().push(lease.key);
            }
        }
        for (holder, keys) in beyond {
            let scope = ReleaseScope::HolderAddresses(holder.clone(), keys);
            let reason = "CNI ADD with other pools or addresses";
            self.release_scope(scope, reason).await?;
        }
        Ok(())
    }

    /// Confirms what nobody else uses; what somebody does is given up.
    pub async fn probed(
        &self,
        key: &AttachmentKey,
        results: &[ProbeResult],
    ) -> Result<(), CallRefusal> {
        let identity = identity(key);
        let leases = self.ipam.read(|ledger| ledger.leases_of(&identity));
        for lease in leases
            .iter()
            .filter(|lease| lease.state == LeaseState::Probing)
        {
            let result = results.iter().find(|one| one.address == lease.key.address);
            let Some(result) = result else { continue };
            let verdict = match &result.user {
                None => ProbeVerdict::Free,
                Some(user) => ProbeVerdict::Taken {
                    by: user.as_str().into(),
                },
            };
            let probed = Request::Probed(Probed {
                key: lease.key,
                identity: identity.clone(),
                verdict,
                actor: ACTOR.into(),
            });
            let answer = self.ipam.submit(probed).await;
            answer.map_err(|error| refused(&error))?;
        }
        Ok(())
    }

    /// Gives back what the attachment has, whichever boot it is of.
    pub async fn release(&self, key: &AttachmentKey, reason: &str) -> Result<(), CallRefusal> {
        let identity = identity(key);
        let leases = self.ipam.read(|ledger| ledger.leases_of(&identity));
        let members = leases.iter().flat_map(|lease| &lease.members);
        let ours = members.filter(|member| member.holder.identity == identity);
        let holders: BTreeSet<Holder> = ours.map(|member| member.holder.clone()).collect();
        for holder in holders {
            let scope = ReleaseScope::Holder(holder);
            self.release_scope(scope, reason).await?;
        }
        Ok(())
    }

    /// Gives back what containers of earlier boots of this host have; goes on after errors. A container that was started again has
    /// its leases as one of this boot. Answers those of other boots: they may run on another host.
    pub async fn release_earlier_boots(
        &self,
        boots: &BTreeSet<String>,
    ) -> Result<Vec<Holder>, CallRefusal> {
        let all = self.holders(None).into_iter();
        let earlier = all.filter(|holder| holder.instance != self.boot);
        let (ended, others): (Vec<Holder>, Vec<Holder>) =
            earlier.partition(|holder| boots.contains(&*holder.instance));
        let mut result = Ok(());
        for holder in ended {
            let reason = "the host was started again, and the container was not";
            let scope = ReleaseScope::Holder(holder);
            result = self.release_scope(scope, reason).await.and(result);
        }
        result.map(|()| others)
    }

    async fn release_scope(&self, scope: ReleaseScope, reason: &str) -> Result<(), CallRefusal> {
        let release = Request::Release(Release {
            scope,
            actor: ACTOR.into(),
            reason: reason.into(),
        });
        let answer = self.ipam.submit(release).await;
        answer.map(drop).map_err(|error| refused(&error))
    }

    /// Takes in what a container of this host uses, whatever holds new addresses back. What is refused is logged.
    ///
    /// # Errors
    /// It is to be tried again.
    pub async fn adopt(&self, key: &AttachmentKey, lease: LeaseKey) -> Result<(), CallRefusal> {
        let adopt = Request::Adopt(Adopt {
            key: lease,
            length: None,
            holder: self.holder(key),
            tenant: None,
            since: clock::now(),
            actor: ACTOR.into(),
        });
        let (container, address) = (&key.container_id, lease.address);
        let why = match self.ipam.submit(adopt).await {
            Ok(Answer::Contended { lease }) => {
                let owner = lease.owner().map(|owner| owner.identity.to_string());
                format!("{} has it", owner.unwrap_or_default())
            }
            Ok(_) => return Ok(()),
            Err(error @ (IpamError::Store(_) | IpamError::Stopping)) => {
                return Err(refused(&error));
            }
            Err(error) => error.to_string(),
        };
        tracing::error!(
            container,
            %address,
            why,
            "a container uses an address that the restored address book does not have as its own"
        );
        Ok(())
    }

    /// The leases that the attachment has.
    pub fn held(&self, key: &AttachmentKey) -> Vec<LeaseKey> {
        let leases = self.ipam.read(|ledger| ledger.leases_of(&identity(key)));
        leases.iter().map(|lease| lease.key).collect()
    }

    /// Their addresses.
    pub fn addresses(&self, key: &AttachmentKey) -> Vec<IpAddr> {
        self.held(key).iter().map(|lease| lease.address).collect()
    }

    /// The attachments of a network that have addresses.
    pub fn attachments(&self, network: &str) -> BTreeSet<AttachmentKey> {
        let holders = self.holders(Some(network)).into_iter();
        holders.map(|holder| key_of(&holder.identity)).collect()
    }

    /// Containers that have addresses, of one network or of all.
    fn holders(&self, network: Option<&str>) -> BTreeSet<Holder> {
        let filter = LeaseFilter {
            system: Some(System::own()),
            namespace: network.map(Into::into),
            ..LeaseFilter::default()
        };
        let mut found = BTreeSet::new();
        let mut after = None;
        loop {
            let page = self.ipam.read(|ledger| ledger.leases(&filter, after, PAGE));
            let members = page.leases.iter().flat_map(|lease| &lease.members);
            let ours = members.filter(|member| {
                let owner = &member.holder.identity;
                // Owners that people name have no interface.
                owner.cluster.is_none() && &*owner.kind == KIND && !owner.interface.is_empty()
            });
            found.extend(ours.map(|member| member.holder.clone()));
            after = page.next;
            if after.is_none() {
                return found;
            }
        }
    }

    /// Whether `ADD` would be given addresses now.
    pub fn status(&self, conf: &NetConf) -> Result<(), CallRefusal> {
        self.ipam.read(|ledger| {
            wants(ledger, conf, &[])?;
            let pools = pools(ledger, conf)?;
            let mut refused = pools.iter().filter_map(|pool| gives_nothing(ledger, pool));
            let first = refused.next();
            first.map_or(Ok(()), |why| Err(CallRefusal::new(Code::NotAvailable, why)))
        })
    }

    fn holder(&self, key: &AttachmentKey) -> Holder {
        Holder {
            identity: identity(key),
            instance: Text::clone(&self.boot),
        }
    }
}

fn identity(key: &AttachmentKey) -> Identity {
    Identity {
        system: System::own(),
        cluster: None,
        kind: KIND.into(),
        namespace: key.network.as_str().into(),
        name: key.container_id.as_str().into(),
        interface: key.ifname.as_str().into(),
    }
}

fn key_of(identity: &Identity) -> AttachmentKey {
    AttachmentKey {
        network: identity.namespace.to_string(),
        container_id: identity.name.to_string(),
        ifname: identity.interface.to_string(),
    }
}

fn pools<'l>(ledger: &'l Ledger, conf: &NetConf) -> Result<Vec<&'l Arc<Pool>>, CallRefusal> {
    let names = conf.ipam.pools.iter();
    let found = names.map(|name| {
        ledger.find_pool(name).map_err(|error: NameError| {
            CallRefusal::new(Code::InvalidConfig, format!("ipam.pools: {error}"))
        })
    });
    found.collect()
}

/// One address of each pool; those that the runtime asks for go to the pool whose family they are of.
fn wants(ledger: &Ledger, conf: &NetConf, asked: &[IpAddr]) -> Result<Vec<Want>, CallRefusal> {
    let pools = pools(ledger, conf)?;
    if pools.len() > Allocate::MAX_WANTS {
        let why = format!(
            "ipam.pools: at most {} pools are allowed",
            Allocate::MAX_WANTS
        );
        return Err(CallRefusal::new(Code::InvalidConfig, why));
    }
    let mut asked = asked.to_vec();
    let mut wants = Vec::new();
    for pool in pools {
        let of_pool = |ip: &IpAddr| {
            pool.spec
                .addresses
                .iter()
                .any(|one| one.span().contains(*ip))
        };
        let mtu = conf.link.mtu;
        if (1..1_280).contains(&mtu) && pool.spec.family() == Some(Family::V6) {
            let name = &pool.spec.name;
            let why =
                format!("mtu: {mtu}; allowed: 1280 bytes or more, which IPv6 needs (pool {name})");
            return Err(CallRefusal::new(Code::InvalidConfig, why));
        }
        let at = asked.iter().position(of_pool);
        wants.push(Want {
            pool: pool.id.into(),
            address: at.map(|at| asked.swap_remove(at)),
            count: 1,
        });
    }
    match asked.first() {
        None => Ok(wants),
        Some(ip) => {
            let why = format!("ips: none of the pools of the configuration has {ip}");
            Err(CallRefusal::new(Code::InvalidConfig, why))
        }
    }
}

/// Why a pool gives nobody a new address now.
fn gives_nothing(ledger: &Ledger, pool: &Pool) -> Option<String> {
    let spec = &pool.spec;
    let name = &spec.name;
    if !ledger.holds(spec.network).is_empty() {
        let why = format!("pool {name} gives no address until its network has been adopted");
        return Some(why);
    }
    if spec.closed {
        return Some(Refusal::PoolClosed(Text::clone(name)).to_string());
    }
    if let Some(hold) = ledger.network_hold(spec.network) {
        let until = hold.until;
        return Some(format!("pool {name}: {}", Refusal::RestoreHeld { until }));
    }
    let free = ledger.usage(pool.id).map_or(0, |usage| usage.free);
    (free == 0).then(|| format!("pool {name} has no address available; widen it, or release some"))
}

fn given(ledger: &Ledger, leases: &[Arc<Lease>]) -> Vec<PoolAddress> {
    let all = leases.iter().filter_map(|lease| {
        let pool = lease.pool.and_then(|id| ledger.pool(id));
        Some(PoolAddress {
            address: IpNet::new(lease.key.address, ledger.prefix_len(lease)).ok()?,
            gateway: pool.and_then(|pool| pool.spec.gateway),
            is_probing: lease.state == LeaseState::Probing,
        })
    });
    all.collect()
}

/// The code by what helps: another configuration, another address, or time.
fn refused(error: &IpamError) -> CallRefusal {
    let code = match error {
        IpamError::Refused(refusal) => code_of(refusal),
        IpamError::Store(_) | IpamError::Stopping => Code::TryAgain,
        IpamError::Forbidden(_) | IpamError::Stale(_) => Code::InvalidConfig,
    };
    CallRefusal::new(code, error.to_string())
}

fn code_of(refusal: &Refusal) -> Code {
    match refusal.decisive().class() {
        RefusalClass::AddressTaken(_) => Code::AddressConflict,
        RefusalClass::NotAssignable | RefusalClass::PoolNotFound | RefusalClass::Invalid => {
            Code::InvalidConfig
        }
        RefusalClass::Exhausted
        | RefusalClass::OverQuota(_)
        | RefusalClass::Ambiguous
        | RefusalClass::Held
        | RefusalClass::RestoreHeld
        | RefusalClass::PoolClosed
        | RefusalClass::InvalidPool
        | RefusalClass::NotFound
        | RefusalClass::Exists
        | RefusalClass::PoolInUse
        | RefusalClass::WouldOrphan
        | RefusalClass::Collision
        | RefusalClass::Stale
        | RefusalClass::ChangedHands
        | RefusalClass::Conflict => Code::TryAgain,
    }
}
