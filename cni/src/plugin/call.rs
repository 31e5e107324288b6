//! One call of the runtime, and the questions to the daemon that it takes.

use std::{
    io,
    net::IpAddr,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde_json::value::RawValue;

use super::note;
use crate::{
    Ask, AskOutcome, AskStep, CniError, Code, Environment, NetConf, Reply, SOCKET, Verb, ask,
    attachment::Attachment,
    link::Netlink,
    namespace::{Namespace, NamespaceError},
    result::AddResult,
    spool::{self, SPOOL, SpoolError},
};

/// How long a restart of the daemon may take until the runtime is told to come back.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// The same after a failure: the runtime has waited already, and the spool remembers.
pub(super) const CLEANUP_PATIENCE: Duration = Duration::from_secs(5);
/// The same where nothing depends on the answer.
const REPORT_PATIENCE: Duration = Duration::from_secs(1);

/// The container's namespace, and a netlink socket in it.
pub(super) struct Sandbox {
    pub namespace: Namespace,
    pub netlink: Netlink,
}

pub(super) struct PluginCall {
    command: Verb,
    pub environment: Environment,
    pub conf: NetConf,
    config: Box<RawValue>,
    /// The daemon knows of the failure of this call, if there is one, or does not answer.
    is_told: AtomicBool,
}

impl PluginCall {
    pub fn new(
        command: Verb,
        environment: Environment,
        conf: NetConf,
        config: String,
    ) -> Result<Self, CniError> {
        let config = RawValue::from_string(config).map_err(|error| {
            let what = "network configuration on standard input is no JSON";
            let why = error.to_string();
            CniError::new(&conf.cni_version, Code::DecodingFailure, what, why)
        })?;
        Ok(Self {
            command,
            environment,
            conf,
            config,
            is_told: AtomicBool::default(),
        })
    }

    pub fn error(&self, code: Code, msg: &str, details: impl Into<String>) -> CniError {
        CniError::new(&self.conf.cni_version, code, msg, details)
    }

    /// The kernel refused what `doing` says.
    pub fn refused(&self, doing: &str, error: &io::Error, netlink: &Netlink) -> CniError {
        let details = match netlink.explanation() {
            Some(explanation) => format!("{error}: {explanation}"),
            None => error.to_string(),
        };
        self.failed(doing, details)
    }

    pub fn failed(&self, doing: &str, details: impl ToString) -> CniError {
        let msg = format!("cannot {doing}");
        self.error(Code::IoFailure, &msg, details.to_string())
    }

    pub fn ifname(&self) -> &str {
        &self.environment.ifname
    }

    /// The result of the plugin before this one, or of `ADD`.
    pub fn previous(&self) -> Result<Option<AddResult>, CniError> {
        let previous = self.conf.prev_result.as_ref().map(AddResult::read);
        previous.transpose().map_err(|why| {
            let what = "prevResult of the network configuration is wrong";
            self.error(Code::InvalidConfig, what, why)
        })
    }

    /// The container's namespace for `ADD` and `CHECK`.
    pub fn container(&self) -> Result<Sandbox, CniError> {
        let opened = Namespace::open(Path::new(&self.environment.netns));
        let namespace = opened.map_err(|error| {
            let code = match error {
                // "Container unknown": nothing was made for it, and no DEL is needed.
                NamespaceError::Missing(_) => Code::UnknownContainer,
                NamespaceError::NotNamespace(_) => Code::InvalidNamespace,
                NamespaceError::Io { .. } => Code::IoFailure,
            };
            self.error(code, "CNI_NETNS cannot be used", error.to_string())
        })?;
        if self.is_own(&namespace)? && !self.environment.own_namespace {
            let details = format!(
                "{}: set CNI_NETNS_OVERRIDE=1 if that is meant",
                self.environment.netns
            );
            let what = "CNI_NETNS is the namespace of the host";
            return Err(self.error(Code::InvalidNamespace, what, details));
        }
        self.sandbox(namespace)
    }

    pub fn sandbox(&self, namespace: Namespace) -> Result<Sandbox, CniError> {
        let netlink = self.inside(&namespace, || self.netlink())?;
        Ok(Sandbox { namespace, netlink })
    }

    /// A socket in the namespace of the calling thread.
    pub fn netlink(&self) -> Result<Netlink, CniError> {
        Netlink::open().map_err(|error| self.failed("open a netlink socket", error))
    }

    pub fn is_own(&self, namespace: &Namespace) -> Result<bool, CniError> {
        let own = namespace.is_own();
        own.map_err(|error| self.failed("read the plugin's own namespace", error))
    }

    /// Runs `work` in a namespace.
    pub fn inside<T>(
        &self,
        namespace: &Namespace,
        work: impl FnOnce() -> Result<T, CniError>,
    ) -> Result<T, CniError> {
        let failed = |error| self.failed("enter the namespace of the container", error);
        namespace.run(work).map_err(failed)?
    }

    /// Asks the daemon, and first of all forgets what it has replayed. Also whether an earlier answer was lost.
    fn ask(&self, question: &Ask, patience: Duration) -> (io::Result<Reply>, bool) {
        let is_first = question.step == AskStep::Begin;
        let AskOutcome { answer, repeated } = ask(self.socket(), question, patience);
        if let Ok(answer) = &answer
            && is_first
            && self.may_discard()
            && let Err(error) = spool::discard(self.spool(), answer.replayed)
        {
            note(&format!("cannot empty {}: {error}", self.spool().display()));
        }
        let reply = answer.map(|answer| answer.reply);
        // The daemon counts its own refusals; one that is away cannot be told.
        self.note_told(!matches!(
            reply,
            Ok(Reply::Output(_) | Reply::Attachment(_))
        ));
        (reply, repeated)
    }

    fn note_told(&self, is_told: bool) {
        self.is_told.store(is_told, Ordering::Relaxed);
    }

    /// Tells the daemon of a failure that it does not know, for the health of the node.
    pub fn report(&self, failure: &CniError) {
        if !self.is_told.load(Ordering::Relaxed) {
            let command = self.command;
            let step = AskStep::Report(failure.clone());
            // The runtime gets the failure either way.
            let _ = self.ask(&self.question(command, step), REPORT_PATIENCE);
        }
    }

    /// Asks a question that is answered by a text for standard output.
    pub fn output(
        &self,
        command: Verb,
        step: AskStep,
        patience: Duration,
        silent: Code,
    ) -> Result<String, CniError> {
        match self.ask(&self.question(command, step), patience).0 {
            Ok(Reply::Output(text)) => Ok(text),
            Ok(Reply::Attachment(_)) => Err(self.unexpected("an attachment")),
            Ok(Reply::Error(error)) => Err(error),
            Err(error) => Err(self.silent(silent, &error)),
        }
    }

    /// Asks a question of `ADD` that is answered by what to make. A daemon that refuses keeps nothing of what it was asked, but
    /// one before it may have ended with it.
    pub fn attachment(&self, step: AskStep) -> Result<Attachment, CniError> {
        let (reply, repeated) = self.ask(&self.question(Verb::Add, step), PATIENCE);
        let (failure, goes_on) = match reply {
            Ok(Reply::Attachment(attachment)) => return Ok(*attachment),
            Ok(Reply::Output(_)) => return Err(self.unexpected("a text")),
            Ok(Reply::Error(error)) => (error, false),
            Err(error) => (self.silent(Code::TryAgain, &error), is_served(&error)),
        };
        if (goes_on || repeated)
            && let Err(error) = self.release(CLEANUP_PATIENCE, Vec::new(), None)
        {
            note(&error.to_string());
        }
        self.note_told(true);
        Err(failure)
    }

    /// Asks the daemon to release what the attachment has, whose interface had `addresses`, because of `failure` where `ADD` failed;
    /// while nobody answers, the spool remembers it.
    pub fn release(
        &self,
        patience: Duration,
        addresses: Vec<IpAddr>,
        failure: Option<&CniError>,
    ) -> Result<(), CniError> {
        let step = failure.map_or(AskStep::Begin, |failure| AskStep::Failed(failure.clone()));
        let mut question = self.question(Verb::Del, step);
        question.addresses = addresses;
        let error = match self.ask(&question, patience).0 {
            Ok(Reply::Output(_) | Reply::Attachment(_)) => {
                self.note_told(failure.is_some());
                return Ok(());
            }
            Ok(Reply::Error(error)) => return Err(error),
            Err(error) => error,
        };
        question.step = AskStep::Begin;
        let kept = spool::write(self.spool(), &question);
        let number = kept.map_err(|failure| {
            let code = match failure {
                SpoolError::Full(_) => Code::TryAgain,
                SpoolError::Io(_) => Code::IoFailure,
            };
            let details = format!("{error}; {}: {failure}", self.spool().display());
            self.error(
                code,
                "fipd does not answer, and the spool keeps no DEL",
                details,
            )
        })?;
        note(&format!(
            "fipd does not answer ({error}); it gets this DEL later, as number {number}"
        ));
        Ok(())
    }

    fn question(&self, command: Verb, step: AskStep) -> Ask {
        let environment = &self.environment;
        Ask {
            command,
            step,
            container_id: environment.container_id.clone(),
            netns: environment.netns.clone(),
            ifname: environment.ifname.clone(),
            args: environment.args.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            addresses: Vec::new(),
            config: self.config.clone(),
        }
    }

    fn socket(&self) -> &Path {
        self.conf.socket.as_deref().unwrap_or(Path::new(SOCKET))
    }

    fn spool(&self) -> &Path {
        self.environment
            .spool
            .as_deref()
            .unwrap_or(Path::new(SPOOL))
    }

    /// Whether the daemon that replays the spool answers. A tenant may name a socket of its own in a configuration; the variable is
    /// the runtime's.
    fn may_discard(&self) -> bool {
        self.socket() == Path::new(SOCKET) || self.environment.spool.is_some()
    }

    fn silent(&self, code: Code, error: &io::Error) -> CniError {
        let socket = self.socket().display();
        let details = format!("{socket}: {error}; is fipd running on this host?");
        self.error(code, "fipd does not answer", details)
    }

    fn unexpected(&self, what: &str) -> CniError {
        let details = format!("{what}; are the plugin and fipd of the same version?");
        self.error(
            Code::DecodingFailure,
            "fipd answers something else",
            details,
        )
    }
}

/// Whether somebody listens there who did not answer. Otherwise the runtime's DEL has the spool remember what an earlier daemon
/// did.
fn is_served(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    !matches!(error.kind(), ConnectionRefused | NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_the_configuration_empties_no_spool_but_one_of_the_runtimes() {
        let may_discard = |socket: Option<&str>, spool: Option<&str>| {
            let environment = Environment {
                spool: spool.map(Into::into),
                ..Environment::default()
            };
            let conf = NetConf {
                socket: socket.map(Into::into),
                ..NetConf::default()
            };
            let call = PluginCall::new(Verb::Status, environment, conf, "{}".to_owned());
            call.unwrap().may_discard()
        };
        assert!(may_discard(None, None));
        assert!(may_discard(Some(SOCKET), None));
        assert!(!may_discard(Some("/tmp/cni.sock"), None));
        assert!(may_discard(Some("/tmp/cni.sock"), Some("/tmp/spool")));
    }
}
