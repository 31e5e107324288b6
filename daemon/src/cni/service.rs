//! Answers what plugins ask.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use fipd_cni::{
    Answer, Ask, AskStep, CniError, Code, NEWEST, NetConf, Reply, Verb,
    attachment::{Attachment, LinkKind, Made},
    frame::Mac,
    named_args, version,
};
use tokio::sync::Mutex;

use super::{
    attach,
    board::CniBoard,
    deletion::ReplayTries,
    host::{HostState, RunningContainer},
    pod_name::PodName,
    pods::{self, PodSites},
    question::PluginQuestion,
    record::{AttachmentKey, AttachmentRecord, HostUse, PodOwner},
    refusal::CallRefusal,
    standalone::ContainerLeases,
    turns::Turns,
};

/// The most results of probes in a question: an attachment has as many addresses at most.
const PROBES: usize = 8;

/// What this host is to plugins.
pub struct CniService {
    /// `None`: this host decides nothing, and gives no addresses of pools.
    pub(super) leases: Option<ContainerLeases>,
    pub(super) sites: PodSites,
    /// Of the host.
    boot: String,
    /// One change of the host's interfaces and routes at a time.
    pub(super) host: Arc<Mutex<HostState>>,
    pub(super) spool: PathBuf,
    pub(super) turns: Turns,
    /// Held by who does what the spool has: a deletion must not be done again after its container was added again.
    pub(super) replaying: Mutex<()>,
    /// Attachments of pods that had no object at the last sweep, and whose namespaces cannot be seen.
    absent: Mutex<BTreeSet<AttachmentKey>>,
    /// The address book knows what containers have that ran before this start.
    pub(super) is_readopted: AtomicBool,
    pub(super) tries: parking_lot::Mutex<ReplayTries>,
    pub(super) board: CniBoard,
}

impl CniService {
    pub fn new(
        leases: Option<ContainerLeases>,
        sites: PodSites,
        host: HostState,
        spool: PathBuf,
        board: CniBoard,
    ) -> Self {
        Self {
            leases,
            sites,
            boot: host.boot().to_owned(),
            host: Arc::new(Mutex::new(host)),
            spool,
            turns: Turns::default(),
            replaying: Mutex::default(),
            absent: Mutex::default(),
            is_readopted: AtomicBool::default(),
            tries: parking_lot::Mutex::default(),
            board,
        }
    }

    /// The answer to what a plugin sent.
    pub async fn answer(&self, text: &[u8]) -> Answer {
        let reply = match serde_json::from_slice::<Ask>(text) {
            Ok(ask) => self.timed(&ask).await,
            Err(error) => Reply::Error(CniError::new(
                NEWEST,
                Code::DecodingFailure,
                "fipd does not take the call",
                error.to_string(),
            )),
        };
        let replayed = self.host.lock().await.replayed();
        Answer { reply, replayed }
    }

    async fn timed(&self, ask: &Ask) -> Reply {
        let began = Instant::now();
        self.board.asked_by(&ask.version);
        match &ask.step {
            AskStep::Failed(failure) => {
                let (container, code) = (&ask.container_id, failure.code);
                tracing::warn!(container, code, error = %failure, "a CNI plugin could not make an interface");
                self.board.failed(Verb::Add, failure);
            }
            AskStep::Report(failure) => {
                let (container, code) = (&ask.container_id, failure.code);
                tracing::warn!(command = %ask.command, container, code, error = %failure, "a CNI plugin refuses a call");
                self.board.failed(ask.command, failure);
                return done();
            }
            AskStep::Begin | AskStep::Probed(_) | AskStep::Made(_) => {}
        }
        let reply = self.reply(ask).await.unwrap_or_else(Reply::Error);
        if let Reply::Error(error) = &reply {
            let (container, code) = (&ask.container_id, error.code);
            tracing::warn!(command = %ask.command, container, code, %error, "a CNI call is refused");
        }
        self.board.note(ask.command, &reply, began.elapsed());
        reply
    }

    async fn reply(&self, ask: &Ask) -> Result<Reply, CniError> {
        if ask.command == Verb::Version {
            return version(ask.config.get()).map(Reply::Output);
        }
        let conf = NetConf::parse(ask.config.get(), ask.command)?;
        // What was to be deleted while fipd was away comes before everything else.
        self.replay().await.map_err(|refusal| {
            let is_status = ask.command == Verb::Status;
            let code = if is_status {
                Code::NotAvailable
            } else {
                refusal.code
            };
            CallRefusal { code, ..refusal }.to_error(&conf.cni_version)
        })?;
        let call = PluginQuestion::new(conf, ask);
        tracing::debug!(command = %ask.command, network = call.conf.name, container = ask.container_id, "a CNI plugin asks");
        // A deletion that overtakes what it deletes would leave that behind.
        let _turn = match ask.command {
            Verb::Add | Verb::Del | Verb::Check => Some(self.turns.wait(&call.key).await),
            // They are about no attachment, or about many.
            Verb::Gc | Verb::Status | Verb::Version => None,
        };
        let done = match ask.command {
            Verb::Add => self.add(&call).await,
            Verb::Del => self.delete_asked(&call).await.map(|()| done()),
            Verb::Check => self.check(&call).await.map(|()| done()),
            Verb::Gc => self.collect(&call.conf).await.map(|()| done()),
            Verb::Status => self.status(&call.conf).map(|()| done()),
            Verb::Version => Ok(done()),
        };
        done.map_err(|refusal| refusal.to_error(&call.conf.cni_version))
    }

    async fn add(&self, call: &PluginQuestion<'_>) -> Result<Reply, CallRefusal> {
        match &call.ask.step {
            AskStep::Begin => self.begin(call).await,
            AskStep::Probed(results) => {
                let leases = self.pools()?;
                if results.len() > PROBES {
                    let why = format!("at most {PROBES} results of probes are taken");
                    return Err(CallRefusal::new(Code::DecodingFailure, why));
                }
                leases.probed(&call.key, results).await?;
                self.begin(call).await
            }
            AskStep::Made(made) => self.made(call, made).await.map(|()| done()),
            AskStep::Failed(_) | AskStep::Report(_) => {
                let why = "the step `failed` is of DEL alone";
                Err(CallRefusal::new(Code::DecodingFailure, why))
            }
        }
    }

    /// Says what the plugin is to make, once the host has what that needs. A call that fails leaves nothing that was not there.
    async fn begin(&self, call: &PluginQuestion<'_>) -> Result<Reply, CallRefusal> {
        self.forget_deferred(&call.key).await?;
        let known = self.host.lock().await.record(&call.key).is_some()
            || self
                .leases
                .as_ref()
                .is_some_and(|leases| !leases.addresses(&call.key).is_empty());
        let begun = self.attachment(call).await;
        if begun.is_err() && !known {
            self.warn_about("a failed ADD", &call.key, self.delete(&call.key).await);
        }
        begun.map(|attachment| Reply::Attachment(Box::new(attachment)))
    }

    async fn attachment(&self, call: &PluginQuestion<'_>) -> Result<Attachment, CallRefusal> {
        let (mut attachment, record) = match call.conf.is_standalone() {
            true => self.of_pools(call).await?,
            false => self.of_pod(call).await?,
        };
        if let Some(record) = record {
            let key = call.key.clone();
            let parent = self.on_host(move |host| host.acquire(key, record)).await?;
            attachment.link.parent = parent.unwrap_or(attachment.link.parent);
        }
        Ok(attachment)
    }

    async fn of_pools(
        &self,
        call: &PluginQuestion<'_>,
    ) -> Result<(Attachment, Option<AttachmentRecord>), CallRefusal> {
        let leases = self.pools()?;
        let named = named_args(&call.ask.args);
        let named = named.map_err(|why| CallRefusal::new(Code::InvalidEnvironment, why))?;
        let is_pod = named.keys().any(|key| key.starts_with("K8S_POD_"));
        if is_pod && !leases.for_pods {
            let why = "ipam.pools: pods of Kubernetes have their addresses from FlatNetworkIPs; leave it out, or write pods-use-pools = true in [cni] of this host's fipd.toml";
            return Err(CallRefusal::new(Code::InvalidConfig, why));
        }
        let asked = call.conf.wanted(named.get("IP").copied());
        let asked = asked.map_err(|ip| {
            let why = format!("IP of CNI_ARGS has {ip:?}; write addresses, separated by commas");
            CallRefusal::new(Code::InvalidEnvironment, why)
        })?;
        let mac = named.get("MAC").copied();
        if let Some(mac) = mac.filter(|mac| Mac::of_station(mac).is_none()) {
            let why =
                format!("MAC of CNI_ARGS is {mac:?}; write six bytes such as 02:00:00:00:00:01");
            return Err(CallRefusal::new(Code::InvalidEnvironment, why));
        }
        // Checked before the allocation: an address released again may stay quarantined.
        let kind = kind(&call.conf)?;
        let given = leases.allocate(&call.key, &call.conf, &asked).await?;
        let running = RunningContainer {
            netns: call.ask.netns.clone(),
            leases: leases.held(&call.key),
        };
        let key = call.key.clone();
        self.on_host(move |host| host.note_running(&key, running))
            .await?;
        let (attachment, uses) = attach::of_pools(&call.conf, kind, mac, &given);
        let master = &call.conf.link.master;
        let record = (!uses.is_empty()).then(|| self.record(call, master, uses, None));
        Ok((attachment, record))
    }

    async fn of_pod(
        &self,
        call: &PluginQuestion<'_>,
    ) -> Result<(Attachment, Option<AttachmentRecord>), CallRefusal> {
        let pod = PodName::read(&call.ask.args)?;
        let (found, owner) = pods::find(&self.sites, &pod, &call.ask.ifname).await?;
        let asked = call.conf.wanted(None).unwrap_or_default();
        let all = || found.addresses();
        if let Some(other) = asked.iter().find(|ip| all().all(|one| one.address != **ip)) {
            let why = format!("runtimeConfig.ips: the pod's FlatNetworkIP does not have {other}");
            return Err(CallRefusal::new(Code::InvalidConfig, why));
        }
        let asked = Mac::of_station(&call.conf.runtime_config.mac);
        // An ipvlan interface has the MAC of its master, whatever is asked.
        let is_macvlan = matches!(found.first.subnet.kind, LinkKind::Macvlan(_));
        if let (Some(asked), Some(mac)) = (asked.filter(|_| is_macvlan), &found.first.mac)
            && Mac::of_station(mac) != Some(asked)
        {
            let why = format!("runtimeConfig.mac: {asked}, and the pod's FlatNetworkIP has {mac}");
            return Err(CallRefusal::new(Code::InvalidConfig, why));
        }
        let (attachment, uses) = attach::of_pod(&call.conf, &call.ask.ifname, &found);
        let record = self.record(call, &found.first.subnet.master, uses, Some(owner));
        Ok((attachment, Some(record)))
    }

    /// What the journal keeps of the attachment.
    fn record(
        &self,
        call: &PluginQuestion<'_>,
        master: &str,
        uses: Vec<HostUse>,
        pod: Option<PodOwner>,
    ) -> AttachmentRecord {
        AttachmentRecord {
            boot: self.boot.clone(),
            netns: call.ask.netns.clone(),
            master: master.to_owned(),
            uses,
            pod,
        }
    }

    /// The interface is there: the host routes to it, and the cluster hears of it.
    async fn made(&self, call: &PluginQuestion<'_>, made: &Made) -> Result<(), CallRefusal> {
        let record = self.host.lock().await.record(&call.key);
        let Some(record) = record else {
            // Without a record nothing of the host is used.
            return match call.conf.is_standalone() {
                true => Ok(()),
                false => Err(CallRefusal::later(
                    "the attachment is not known; add it again",
                )),
            };
        };
        let pod = record.pod.clone();
        if record.uses.iter().any(HostUse::is_route) {
            let via = made.first_interface.clone();
            self.on_host(move |host| host.route(&record, &via)).await?;
        }
        match &pod {
            Some(owner) => pods::activate(&self.sites, owner, &made.mac).await,
            None => Ok(()),
        }
    }

    /// Whether the attachment still has what it was given, and was given what it has.
    async fn check(&self, call: &PluginQuestion<'_>) -> Result<(), CallRefusal> {
        let gone = |what: String| Err(CallRefusal::new(Code::NotAsMade, what));
        let (addresses, wanted) = match call.conf.is_standalone() {
            true => {
                let pools = call.conf.ipam.pools.len();
                (self.pools()?.addresses(&call.key), pools)
            }
            false => {
                let owner = self.owner(call).await?;
                match pods::held(&self.sites, &owner).await? {
                    Some(addresses) => (addresses, owner.objects.len()),
                    None => return gone("the FlatNetworkIP is not this pod's any more".to_owned()),
                }
            }
        };
        let count = addresses.len();
        if count < wanted {
            return gone(format!(
                "fipd has {count} of {wanted} addresses of this attachment"
            ));
        }
        let shown = call
            .shown()
            .map_err(|why| CallRefusal::new(Code::InvalidConfig, format!("prevResult: {why}")))?;
        match addresses.iter().find(|address| !shown.contains(address)) {
            None => Ok(()),
            Some(address) => gone(format!("prevResult does not have {address}, its address")),
        }
    }

    /// The pod of the attachment.
    async fn owner(&self, call: &PluginQuestion<'_>) -> Result<PodOwner, CallRefusal> {
        let record = self.host.lock().await.record(&call.key);
        if let Some(owner) = record.and_then(|record| record.pod) {
            return Ok(owner);
        }
        // The original's plugin made it, the journal is lost, or fipd has cleaned up after it already.
        let pod = PodName::read(&call.ask.args)?;
        let found = pods::owner(&self.sites, &pod, &call.ask.ifname).await;
        found.ok_or_else(|| {
            let why = "fipd has no record of the attachment, and no connected cluster has a FlatNetworkIP of the pod";
            CallRefusal::later(why)
        })
    }

    /// Takes away what is not among the valid attachments of the network; goes on after errors.
    async fn collect(&self, conf: &NetConf) -> Result<(), CallRefusal> {
        // libcni leaves an empty list out.
        let valid = conf.valid().unwrap_or_default();
        let valid: BTreeSet<(&str, &str)> = valid
            .iter()
            .map(|one| (&*one.container_id, &*one.ifname))
            .collect();
        let network = conf.name.clone();
        let mut known = self.host.lock().await.attachments(&network);
        if let Some(leases) = &self.leases {
            known.extend(leases.attachments(&network));
        }
        known.retain(|key| !valid.contains(&(&*key.container_id, &*key.ifname)));
        let mut failed = Vec::new();
        for key in &known {
            if let Err(refusal) = self.delete_in_turn(key).await {
                failed.push(format!(
                    "{}/{}: {}",
                    key.container_id, key.ifname, refusal.why
                ));
            }
        }
        match failed.first() {
            None => Ok(()),
            Some(first) => {
                let count = failed.len();
                Err(CallRefusal::later(format!(
                    "{count} attachments are left; the first: {first}"
                )))
            }
        }
    }

    fn status(&self, conf: &NetConf) -> Result<(), CallRefusal> {
        match (&self.leases, conf.is_standalone()) {
            (Some(leases), true) => {
                kind(conf)?;
                leases.status(conf)
            }
            (None, true) => Err(Self::decides_nothing(Code::NotAvailable)),
            (_, false) => match pods::only(&self.sites) {
                Ok(_) => Ok(()),
                Err(refusal) => Err(CallRefusal::new(Code::NotAvailable, refusal.why)),
            },
        }
    }

    /// Removes what is left of containers that are gone.
    pub async fn sweep(&self) {
        let swept = self.on_host(|host| Ok(host.sweep())).await;
        if let Err(refusal) = self.on_host(HostState::restore).await {
            let error = refusal.why;
            tracing::warn!(error, "a master may not be promiscuous; will retry");
        }
        // One answer may be wrong, and it would take away what a pod uses.
        let mut absent = self.absent.lock().await;
        let before = std::mem::take(&mut *absent);
        for (key, owner) in swept.unwrap_or_default() {
            if !matches!(pods::held(&self.sites, &owner).await, Ok(None)) {
                continue;
            }
            if !before.contains(&key) {
                absent.insert(key);
                continue;
            }
            let deleted = self.delete_in_turn(&key).await;
            self.warn_about("a pod that is gone", &key, deleted);
        }
        self.delete_deferred().await;
    }

    pub(super) fn warn_about(
        &self,
        whose: &str,
        key: &AttachmentKey,
        done: Result<(), CallRefusal>,
    ) {
        let (network, container) = (&key.network, &key.container_id);
        match done {
            Ok(()) => tracing::debug!(network, container, "cleaned up after {whose}"),
            Err(refusal) => {
                let error = refusal.why;
                tracing::warn!(
                    network,
                    container,
                    error,
                    "cannot clean up after {whose}; the next DEL, GC or sweep tries again"
                );
            }
        }
    }

    pub(super) async fn on_host<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut HostState) -> Result<T, CallRefusal> + Send + 'static,
    ) -> Result<T, CallRefusal> {
        let host = Arc::clone(&self.host);
        let done = tokio::task::spawn_blocking(move || work(&mut host.blocking_lock()));
        done.await
            .unwrap_or_else(|_| Err(CallRefusal::later("fipd is stopping; ask again")))
    }

    fn pools(&self) -> Result<&ContainerLeases, CallRefusal> {
        self.leases
            .as_ref()
            .ok_or_else(|| Self::decides_nothing(Code::InvalidConfig))
    }

    fn decides_nothing(code: Code) -> CallRefusal {
        let why = "ipam.pools: fipd has role = \"agent\" on this host and gives no addresses of pools; name none";
        CallRefusal::new(code, why)
    }
}

/// Which interface containers on pools get.
fn kind(conf: &NetConf) -> Result<LinkKind, CallRefusal> {
    attach::kind(conf)
        .map_err(|(field, why)| CallRefusal::new(Code::InvalidConfig, format!("{field}: {why}")))
}

fn done() -> Reply {
    Reply::Output(String::new())
}
