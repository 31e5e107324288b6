//! Between those who want rules on this host, the engine that brings them into the kernel, and those who look on. None of
//! them knows another. In memory only: what is wanted is said anew after a restart, and the kernel tells what there is.

mod found;
pub mod ledger;
mod reached;
pub mod rows;
pub mod watch_drift;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fipd_core::{
    Text, Timestamp,
    host::{Desired, KernelRule, Places, Plan, Rule, RuleSet},
};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

pub use found::NodeFound;
pub use reached::Reached;

/// Commands that wait; people give them.
const COMMANDS: usize = 8;

/// Counts the changes of what is wanted.
pub type Revision = u64;

/// What everybody wants, as of one moment.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub revision: Revision,
    /// By who wants it.
    pub wishes: BTreeMap<Text, Arc<Vec<RuleSet>>>,
    /// Those who are expected and of whom nothing is known yet, neither said nor recalled.
    pub missing: Vec<Text>,
}

impl Wanted {
    /// In the order in which sources are given.
    pub fn sets(&self) -> impl Iterator<Item = &RuleSet> {
        self.wishes.values().flat_map(|sets| sets.iter())
    }
}

/// How the engine is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EngineState {
    /// This host is not told to have rules.
    #[default]
    Off,
    /// Nothing was applied yet: something that is to say what is wanted has not.
    Starting(String),
    Active,
    /// Own rules were flushed by an admin, and are not brought back until one says so.
    Paused,
    /// Why rules cannot be changed, and what would help. It is tried again.
    Degraded(String),
}

/// Something about this host that people should know; `code` stays the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    pub code: &'static str,
    pub text: String,
}

impl Warning {
    pub fn new(code: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }
}

/// Why rules had to be repaired since the start, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// Own rules that another removed.
    pub removed: u64,
    /// Rules of fipd's tag that are not fipd's, or twice.
    pub added: u64,
    /// Times that the table of the packet filter was not as fipd left it.
    pub index: u64,
    /// Times that notifications were lost and everything was read anew.
    pub overruns: u64,
}

/// How rules stand, as of one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub state: EngineState,
    /// The Node that this host is.
    pub node: Option<Text>,
    pub protocol: u8,
    pub desired: Arc<Desired>,
    /// All rules of both families, in the kernel's order.
    pub kernel: Arc<Vec<KernelRule>>,
    /// What is still to be done.
    pub plan: Arc<Plan>,
    pub warnings: Vec<Warning>,
    /// The tables of the VRFs that are there, by the names of their devices; the engine fills this from the links, for those
    /// who want rules to a VRF by its name. `None`: it did not look yet.
    pub vrfs: Option<Arc<BTreeMap<Text, u32>>>,
    pub drift: Drift,
    /// The priority of rules that name none and have no place.
    pub band: u32,
    pub places: Arc<Places>,
    /// What is worked out of the rest, once for all who ask.
    pub sorted: rows::Sorted,
    /// When the kernel was last looked at; 0: not yet.
    pub at: Timestamp,
}

/// What an admin wants done by the engine. Each answers the rules that it removed, or with `dry_run` would remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Removes all own rules, and pauses.
    Flush { dry_run: bool },
    /// Ends the pause.
    Resume,
    /// Removes rules of others that ask this table, none of the kernel's own.
    PruneForeign {
        table: u32,
        priorities: Option<(u32, u32)>,
        /// The rules as the dry run told them; if there is anything else by now, nothing is removed. `None`: a dry run.
        confirmed: Option<Vec<String>>,
    },
    /// Adds the own rule that takes the place of each of these first, then removes the rule without tag that is this one in
    /// full but for the tag. One stays where packets would take another table without it.
    AdoptUntagged { rules: Vec<Rule>, dry_run: bool },
}

/// Why a command was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("this host is not told to have rules: add the section [host] to the configuration")]
    Off,
    #[error("{0}")]
    Degraded(String),
    #[error("the rules changed since the plan was shown; look at it again: nothing was removed")]
    Changed,
    #[error("the kernel refused: {0}")]
    Kernel(String),
}

/// A command and where its answer goes.
pub struct Ordered {
    pub command: Command,
    pub answer: oneshot::Sender<Result<Vec<KernelRule>, CommandError>>,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct RuleBoard(Arc<Inner>);

struct Inner {
    /// `None`: it said that it wants nothing any more.
    wanted: Mutex<BTreeMap<Text, Option<Arc<Vec<RuleSet>>>>>,
    expected: Mutex<BTreeSet<Text>>,
    found: Mutex<BTreeMap<Text, NodeFound>>,
    revision: watch::Sender<Revision>,
    reached: watch::Sender<Arc<Reached>>,
    view: watch::Sender<Arc<View>>,
    commands: mpsc::Sender<Ordered>,
    /// Until an engine takes it.
    ordered: Mutex<Option<mpsc::Receiver<Ordered>>>,
}

impl Default for RuleBoard {
    fn default() -> Self {
        let (commands, ordered) = mpsc::channel(COMMANDS);
        Self(Arc::new(Inner {
            wanted: Mutex::default(),
            expected: Mutex::default(),
            found: Mutex::default(),
            revision: watch::Sender::new(0),
            reached: watch::Sender::default(),
            view: watch::Sender::default(),
            commands,
            ordered: Mutex::new(Some(ordered)),
        }))
    }
}

impl RuleBoard {
    /// Replaces what `who` wants. Answers the revision from which on that counts; it is a new one only if this is something
    /// else than before.
    pub fn want(&self, who: &Text, sets: Vec<RuleSet>) -> Revision {
        let mut wanted = self.0.wanted.lock();
        if let Some(Some(before)) = wanted.get(who)
            && **before == sets
        {
            return *self.0.revision.borrow();
        }
        wanted.insert(Text::clone(who), Some(Arc::new(sets)));
        self.advance()
    }

    /// What `who` wants, or wanted before the last stop.
    pub fn wish(&self, who: &Text) -> Option<Arc<Vec<RuleSet>>> {
        self.0.wanted.lock().get(who).cloned().flatten()
    }

    /// What `who` wanted before the last stop counts until it says something itself.
    pub fn recall(&self, who: &Text, sets: Vec<RuleSet>) {
        let mut wanted = self.0.wanted.lock();
        if !wanted.contains_key(who) {
            wanted.insert(Text::clone(who), Some(Arc::new(sets)));
            self.advance();
        }
    }

    /// Whether the Node that this host is to be was found where `who` looks.
    pub fn found(&self, who: &Text, found: NodeFound) {
        let before = (self.0.found.lock()).insert(Text::clone(who), found.clone());
        if before.as_ref() != Some(&found) {
            self.advance();
        }
    }

    /// What is to be said of that.
    pub fn node_warnings(&self) -> Vec<Warning> {
        found::warnings(&self.0.found.lock())
    }

    /// `who` wants nothing any more, which is another thing than silence.
    pub fn forget(&self, who: &Text) -> Revision {
        let mut wanted = self.0.wanted.lock();
        match wanted.insert(Text::clone(who), None) {
            Some(None) => *self.0.revision.borrow(),
            Some(Some(_)) | None => self.advance(),
        }
    }

    /// Those who are going to say what they want. Until each of them has, an engine removes nothing: what it finds in the
    /// kernel may be theirs. Whoever wanted something under `prefix` and is not among them any more is forgotten.
    pub fn set_expectations(&self, prefix: &str, all: BTreeSet<Text>) -> Revision {
        let mut wanted = self.0.wanted.lock();
        let before = wanted.len();
        wanted.retain(|who, _| !who.starts_with(prefix) || all.contains(who));
        let mut found = self.0.found.lock();
        found.retain(|who, _| !who.starts_with(prefix) || all.contains(who));
        drop(found);
        let mut expected = self.0.expected.lock();
        let waits =
            |expected: &BTreeSet<Text>| expected.iter().any(|who| !wanted.contains_key(who));
        let waited = waits(&expected);
        expected.retain(|who| !who.starts_with(prefix));
        expected.extend(all);
        // Also where nothing is waited for any more: what was held back may be removed now.
        match wanted.len() != before || (waited && !waits(&expected)) {
            true => self.advance(),
            false => *self.0.revision.borrow(),
        }
    }

    /// These are expected, too.
    pub fn expect_also(&self, all: &BTreeSet<Text>) {
        self.0.expected.lock().extend(all.iter().cloned());
    }

    fn advance(&self) -> Revision {
        let mut now = 0;
        self.0.revision.send_modify(|revision| {
            *revision += 1;
            now = *revision;
        });
        now
    }

    /// What everybody wants, and who did not say it yet.
    pub fn wanted(&self) -> Wanted {
        let wanted = self.0.wanted.lock();
        let expected = self.0.expected.lock();
        let missing = expected.iter().filter(|who| !wanted.contains_key(*who));
        let wishes = wanted.iter();
        let wishes =
            wishes.filter_map(|(who, sets)| Some((Text::clone(who), Arc::clone(sets.as_ref()?))));
        Wanted {
            revision: *self.0.revision.borrow(),
            wishes: wishes.collect(),
            missing: missing.map(Text::clone).collect(),
        }
    }

    /// Follows what is wanted.
    pub fn changes(&self) -> watch::Receiver<Revision> {
        self.0.revision.subscribe()
    }

    /// So far the kernel is.
    pub fn reach(&self, reached: Reached) {
        self.0.reached.send_if_modified(|before| {
            let changed = **before != reached;
            if changed {
                *before = Arc::new(reached);
            }
            changed
        });
    }

    /// Follows how far the kernel is.
    pub fn progress(&self) -> watch::Receiver<Arc<Reached>> {
        self.0.reached.subscribe()
    }

    pub fn show(&self, view: View) {
        self.0.view.send_replace(Arc::new(view));
    }

    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.0.view.borrow())
    }

    /// Whether the rules were brought into the kernel once, or an admin does not want them there.
    pub fn is_ready(&self) -> bool {
        match self.view().state {
            EngineState::Active | EngineState::Paused => true,
            EngineState::Degraded(_) => self.0.reached.borrow().revision > 0,
            EngineState::Off | EngineState::Starting(_) => false,
        }
    }

    /// Follows what is shown.
    pub fn views(&self) -> watch::Receiver<Arc<View>> {
        self.0.view.subscribe()
    }

    /// The commands, for the one engine there is.
    pub fn take_orders(&self) -> Option<mpsc::Receiver<Ordered>> {
        self.0.ordered.lock().take()
    }

    /// Has the engine do something.
    ///
    /// # Errors
    /// Why it was not done.
    pub async fn order(&self, command: Command) -> Result<Vec<KernelRule>, CommandError> {
        if self.view().state == EngineState::Off {
            return Err(CommandError::Off);
        }
        let (answer, answered) = oneshot::channel();
        let ended = || CommandError::Degraded("the engine has ended; fipd is stopping".to_owned());
        let sent = self.0.commands.send(Ordered { command, answer }).await;
        sent.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

/// The word for a state, and what is to be said of it.
pub fn engine_state(state: &EngineState) -> (&'static str, Option<String>) {
    match state {
        EngineState::Off => ("off", Some(CommandError::Off.to_string())),
        EngineState::Starting(what) => ("starting", Some(what.clone())),
        EngineState::Active => ("active", None),
        EngineState::Paused => (
            "paused",
            Some("fipd's rules were flushed; `fipd rules resume` brings them back".to_owned()),
        ),
        EngineState::Degraded(why) => ("degraded", Some(why.clone())),
    }
}

/// By which name a cluster wants rules of this host, with the prefix of its system.
pub fn wisher(prefix: &str, cluster: &str) -> Text {
    format!("{prefix}{cluster}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_another_wish_is_a_new_revision() {
        let board = RuleBoard::default();
        let who: Text = "cluster/a".into();
        let changes = board.changes();
        assert_eq!(board.want(&who, Vec::new()), 1, "nothing is a wish, too");
        assert_eq!(board.want(&who, Vec::new()), 1);
        assert_eq!(board.wanted().wishes.len(), 1);
        assert_eq!((board.forget(&who), board.forget(&who)), (2, 2));
        assert_eq!(*changes.borrow(), 2);
    }

    #[tokio::test]
    async fn only_what_is_new_about_the_kernel_is_told() {
        let board = RuleBoard::default();
        let mut progress = board.progress();
        board.reach(Reached::default());
        assert!(
            !progress.has_changed().unwrap(),
            "nothing is there at first"
        );
        board.reach(Reached::whole(2));
        assert_eq!(progress.borrow_and_update().revision, 2);
        board.reach(Reached::whole(2));
        assert!(!progress.has_changed().unwrap());
        let lingering = BTreeSet::from(["10.0.0.1".parse().unwrap()]);
        board.reach(Reached {
            lingering,
            ..Reached::whole(2)
        });
        assert!(progress.has_changed().unwrap());
    }

    #[tokio::test]
    async fn those_who_are_expected_are_missing_until_they_say_something() {
        let board = RuleBoard::default();
        let [one, two, other]: [Text; 3] = ["x/1".into(), "x/2".into(), "y/1".into()];
        board.want(&other, Vec::new());
        board.set_expectations("x/", BTreeSet::from([one.clone(), two.clone()]));
        board.want(&one, Vec::new());
        assert_eq!(board.wanted().missing, std::slice::from_ref(&two));
        let before = *board.changes().borrow();
        assert!(board.set_expectations("x/", BTreeSet::from([one.clone()])) > before);
        assert!(board.wanted().missing.is_empty());
        let now = *board.changes().borrow();
        let again = board.set_expectations("x/", BTreeSet::from([one.clone()]));
        assert_eq!(again, now, "nothing else is expected");
        board.set_expectations("x/", BTreeSet::new());
        let wanted = board.wanted().wishes;
        assert!(wanted.keys().eq([&other]));
    }

    #[test]
    fn what_is_recalled_counts_until_something_is_said() {
        let board = RuleBoard::default();
        let [spoke, left, silent] = ["a", "b", "c"].map(Text::from);
        let expected = BTreeSet::from([&spoke, &left, &silent].map(Text::clone));
        board.expect_also(&expected);
        board.want(&spoke, Vec::new());
        board.forget(&left);
        assert_eq!(board.wanted().missing, [Text::clone(&silent)]);
        let set = RuleSet {
            name: "old".into(),
            sources: BTreeSet::new(),
            table: 100,
            priority: None,
            fail_closed: false,
            mode: fipd_core::host::Mode::Auto,
        };
        for who in &expected {
            board.recall(who, vec![set.clone()]);
        }
        assert!(board.wanted().missing.is_empty());
        let counts = board.wanted().wishes;
        let counts: Vec<_> = counts.iter().map(|(who, sets)| (who, sets.len())).collect();
        assert_eq!(counts, [(&spoke, 0), (&silent, 1)]);
        board.want(&silent, Vec::new());
        assert!(
            board
                .wanted()
                .wishes
                .iter()
                .all(|(_, sets)| sets.is_empty())
        );
    }

    #[tokio::test]
    async fn where_there_is_no_engine_a_command_says_so() {
        let board = RuleBoard::default();
        let refused = board.order(Command::Resume).await;
        assert_eq!(refused, Err(CommandError::Off));
    }
}
