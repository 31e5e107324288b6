//! A run of a command: asks before each change, pauses between writes, and notes what became of every object.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use serde_json::Value;

use super::{
    MigrateError,
    prompt::{self, PromptAnswer},
    report::{MigratedObject, MigrationReport, ObjectOutcome},
};
use crate::controller::{
    client::{CallError, Patch, Remote},
    kind::{Kind, NAMESPACE},
    store::Key,
};

/// In the place of a name: the whole list.
pub const ALL: &str = "(all)";

/// Who agrees to changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    /// Nothing is changed.
    DryRun,
    /// All were agreed to (`--yes`).
    Given,
    /// Each is asked for.
    Ask,
}

/// How a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationOptions {
    /// Who agrees to changes.
    pub consent: Consent,
    /// Between two writes.
    pub interval: Duration,
    /// Objects of a page of a list.
    pub page: u32,
}

/// A run of a command.
pub struct MigrationSession {
    /// The cluster.
    pub remote: Remote,
    /// How it runs.
    pub options: MigrationOptions,
    /// What became of the objects so far.
    pub report: MigrationReport,
    has_written: bool,
}

impl MigrationSession {
    /// A run that has not begun.
    pub fn new(command: &'static str, remote: Remote, options: MigrationOptions) -> Self {
        let dry_run = options.consent == Consent::DryRun;
        Self {
            remote,
            options,
            report: MigrationReport::new(command, dry_run),
            has_written: false,
        }
    }

    /// Whether the cluster answers.
    ///
    /// # Errors
    /// It does not.
    pub async fn reach(&self) -> Result<(), MigrateError> {
        let found = self
            .remote
            .get::<Value>(&NAMESPACE.named("", "kube-system"))
            .await;
        match found {
            // Whoever may not read it may read what is migrated.
            Ok(_) | Err(CallError::Rejected(..)) => Ok(()),
            Err(error) => Err(MigrateError::Failed(format!(
                "the cluster does not answer: {error}"
            ))),
        }
    }

    /// What `keep` makes of all objects of a kind; none where the cluster does not have the kind.
    ///
    /// # Errors
    /// They cannot be listed as a whole.
    pub async fn list<T>(
        &self,
        kind: Kind,
        keep: impl Fn(Value) -> Option<T>,
    ) -> Result<Vec<T>, CallError> {
        let all = kind.all();
        match self.remote.list_paged(&all, self.options.page, keep).await {
            Err(CallError::NotFound(_)) => Ok(Vec::new()),
            listed => listed,
        }
    }

    /// The same; none where they cannot be listed, which is reported.
    pub async fn list_or_fail<T>(
        &mut self,
        kind: Kind,
        keep: impl Fn(Value) -> Option<T>,
    ) -> Vec<T> {
        let listed = self.list(kind, keep).await;
        listed.unwrap_or_else(|error| {
            self.fail(kind, ALL, &error.to_string());
            Vec::new()
        })
    }

    /// Changes an object as it was read: nobody else's change is undone, and no other object of the name is changed.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn patch(
        &self,
        (kind, key): (Kind, &Key),
        read: &Value,
        mut patch: Value,
    ) -> Result<(), CallError> {
        for field in ["uid", "resourceVersion"] {
            patch["metadata"][field] = read["metadata"][field].clone();
        }
        let target = kind.target(key);
        self.remote.patch(&target, Patch::Merge, &patch).await
    }

    /// Whether the change is to be made now; otherwise it is reported.
    ///
    /// # Errors
    /// Nobody answers the question.
    pub async fn approved(&mut self, planned: &MigratedObject) -> Result<bool, MigrateError> {
        match self.options.consent {
            Consent::DryRun => {
                self.add(planned.clone(), ObjectOutcome::WouldChange, "");
                return Ok(false);
            }
            Consent::Given => {}
            Consent::Ask => match prompt::ask(question(planned)).await {
                Ok(PromptAnswer::Yes) => {}
                Ok(PromptAnswer::No) => {
                    self.add(planned.clone(), ObjectOutcome::Skipped, "declined");
                    return Ok(false);
                }
                Ok(PromptAnswer::Ended) => {
                    let why =
                        "standard input has ended; nothing more is changed. Run it again to go on";
                    return Err(MigrateError::Failed(why.to_owned()));
                }
                Err(error) => return Err(MigrateError::Failed(format!("the terminal: {error}"))),
            },
        }
        if self.has_written {
            tokio::time::sleep(self.options.interval).await;
        }
        self.has_written = true;
        Ok(true)
    }

    /// Reports what became of a new object; one that is there is fine.
    pub fn created(&mut self, planned: MigratedObject, made: Result<(), CallError>) {
        match made {
            Err(CallError::Conflict(..)) => {
                self.add(planned, ObjectOutcome::Skipped, "it exists already");
            }
            Err(CallError::NotFound(_)) => {
                let why =
                    "its namespace or the definition of its kind is not there; make that first";
                self.add(planned, ObjectOutcome::Failed, why);
            }
            made => self.changed(planned, made),
        }
    }

    /// Reports what became of a change.
    pub fn changed(&mut self, planned: MigratedObject, made: Result<(), CallError>) {
        match made {
            Ok(()) => {
                let outcome = planned.outcome;
                self.add(planned, outcome, "");
            }
            Err(error) => self.add(planned, ObjectOutcome::Failed, &error.to_string()),
        }
    }

    /// Reports an object to which nothing is done.
    pub fn skip(&mut self, kind: Kind, name: impl ToString, why: &str, notes: Vec<String>) {
        self.note(kind, name, ObjectOutcome::Skipped, why, notes);
    }

    /// Reports an object of a kind that is not migrated.
    pub fn skip_foreign(&mut self, kind: String, name: String, why: &str) {
        let object = MigratedObject {
            kind,
            ..MigratedObject::new(NAMESPACE, name, ObjectOutcome::Skipped, Vec::new())
        };
        self.add(object, ObjectOutcome::Skipped, why);
    }

    /// Reports an object to which something could not be done.
    pub fn fail(&mut self, kind: Kind, name: impl ToString, why: &str) {
        self.note(kind, name, ObjectOutcome::Failed, why, Vec::new());
    }

    /// Reports an object without changes.
    pub fn note(
        &mut self,
        kind: Kind,
        name: impl ToString,
        outcome: ObjectOutcome,
        detail: &str,
        notes: Vec<String>,
    ) {
        let object = MigratedObject {
            notes,
            ..MigratedObject::new(kind, name, outcome, Vec::new())
        };
        self.add(object, outcome, detail);
    }

    fn add(&mut self, object: MigratedObject, outcome: ObjectOutcome, detail: &str) {
        let (kind, name) = (object.kind.as_str(), object.name.as_str());
        tracing::debug!(kind, name, outcome = outcome.name(), detail, "reported");
        let mut terminal = io::stderr();
        if terminal.is_terminal() {
            // The report has it as well.
            let _ = writeln!(terminal, "{}: {kind} {name} {detail}", outcome.name());
        }
        self.report.objects.push(MigratedObject {
            outcome,
            detail: detail.to_owned(),
            ..object
        });
    }
}

fn question(planned: &MigratedObject) -> String {
    let mut text = format!("\n{} {}\n", planned.kind, planned.name);
    for change in &planned.changes {
        text.push_str(&format!("  {change}\n"));
    }
    for note in &planned.notes {
        text.push_str(&format!("  note: {note}\n"));
    }
    text.push_str("Go on?");
    text
}

#[cfg(test)]
impl MigrationOptions {
    /// Without pauses.
    pub fn at_once(consent: Consent) -> Self {
        Self {
            consent,
            interval: Duration::ZERO,
            page: 30,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{controller::client::testing::serving, migrate::kinds::MACVLAN_SUBNET};

    fn session(consent: Consent) -> MigrationSession {
        let (remote, _) = serving(|_| (404, json!("not there")));
        let options = MigrationOptions {
            interval: Duration::from_secs(3_600),
            ..MigrationOptions::at_once(consent)
        };
        MigrationSession::new("migrate", remote, options)
    }

    fn planned() -> MigratedObject {
        let key = Key::new("kube-system", "lab");
        let change = "a becomes b".to_owned();
        MigratedObject::new(MACVLAN_SUBNET, &key, ObjectOutcome::Migrated, vec![change])
    }

    #[tokio::test]
    async fn a_dry_run_makes_no_change_and_reports_it() {
        let mut session = session(Consent::DryRun);
        assert!(!session.approved(&planned()).await.unwrap());
        let [object] = session.report.objects.as_slice() else {
            panic!("{:?}", session.report);
        };
        assert_eq!(object.outcome, ObjectOutcome::WouldChange);
        assert_eq!(object.changes, ["a becomes b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_is_between_two_writes() {
        let mut session = session(Consent::Given);
        let began = tokio::time::Instant::now();
        assert!(session.approved(&planned()).await.unwrap());
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert!(session.approved(&planned()).await.unwrap());
        assert_eq!(began.elapsed(), Duration::from_secs(3_600));
    }

    #[tokio::test]
    async fn what_became_of_a_change_is_reported() {
        let mut session = session(Consent::Given);
        let conflict = || Err(CallError::Conflict("x".to_owned(), "exists".to_owned()));
        session.created(planned(), Ok(()));
        session.created(planned(), conflict());
        session.created(planned(), Err(CallError::NotFound("x".to_owned())));
        session.changed(planned(), conflict());
        let outcomes = session.report.objects.iter().map(|object| object.outcome);
        assert_eq!(
            outcomes.collect::<Vec<_>>(),
            [
                ObjectOutcome::Migrated,
                ObjectOutcome::Skipped,
                ObjectOutcome::Failed,
                ObjectOutcome::Failed
            ]
        );
    }

    #[tokio::test]
    async fn a_kind_that_the_cluster_does_not_have_is_no_failure() {
        let session = session(Consent::Given);
        let listed = session.list(MACVLAN_SUBNET, Some).await.unwrap();
        assert!(listed.is_empty());
    }

    #[test]
    fn a_question_shows_changes_and_notes() {
        let mut planned = planned();
        planned.notes.push("look".to_owned());
        let question = question(&planned);
        for part in ["MacvlanSubnet kube-system/lab", "a becomes b", "note: look"] {
            assert!(question.contains(part), "{question}");
        }
    }
}
