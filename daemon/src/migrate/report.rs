//! What became of every object.

use serde::Serialize;

use crate::controller::kind::Kind;

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectOutcome {
    /// It is in the file of the backup.
    Saved,
    /// It was made or changed.
    Migrated,
    /// It was made from the file of a backup.
    Restored,
    /// It was deleted.
    Deleted,
    /// It would be made, changed or deleted without `--dry-run`.
    WouldChange,
    /// Nothing was done.
    Skipped,
    /// It could not be done.
    Failed,
}

impl ObjectOutcome {
    /// As the report calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Saved => "saved",
            Self::Migrated => "migrated",
            Self::Restored => "restored",
            Self::Deleted => "deleted",
            Self::WouldChange => "would-change",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }
}

/// An object, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MigratedObject {
    /// Its kind.
    pub kind: String,
    /// `[namespace/]name`.
    pub name: String,
    /// What became of it.
    pub outcome: ObjectOutcome,
    /// Why, and what to do about it.
    pub detail: String,
    /// What changed, or would.
    pub changes: Vec<String>,
    /// What somebody should look at.
    pub notes: Vec<String>,
}

impl MigratedObject {
    /// With these changes, and nothing to say about it.
    pub fn new(
        kind: Kind,
        name: impl ToString,
        outcome: ObjectOutcome,
        changes: Vec<String>,
    ) -> Self {
        Self {
            kind: kind.kind.to_owned(),
            name: name.to_string(),
            outcome,
            detail: String::new(),
            changes,
            notes: Vec::new(),
        }
    }
}

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MigrationReport {
    /// `backup`, `restore`, `migrate` or `clean`.
    pub command: &'static str,
    /// Whether nothing was written.
    pub dry_run: bool,
    /// In the order in which they were worked on.
    pub objects: Vec<MigratedObject>,
}

impl MigrationReport {
    /// An empty report.
    pub fn new(command: &'static str, dry_run: bool) -> Self {
        Self {
            command,
            dry_run,
            objects: Vec::new(),
        }
    }

    /// How many objects came to this.
    pub fn count(&self, outcome: ObjectOutcome) -> usize {
        let objects = self.objects.iter();
        objects.filter(|object| object.outcome == outcome).count()
    }

    /// How many objects came to what, in one line.
    pub fn summary(&self) -> String {
        let mut outcomes: Vec<_> = self.objects.iter().map(|object| object.outcome).collect();
        outcomes.sort();
        outcomes.dedup();
        let counts = outcomes.into_iter();
        let counts: Vec<String> = counts
            .map(|outcome| format!("{} {}", self.count(outcome), outcome.name()))
            .collect();
        match counts.is_empty() {
            true => "there is nothing to do".to_owned(),
            false => counts.join(", "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_by_outcome() {
        let mut report = MigrationReport::new("migrate", false);
        assert_eq!(report.summary(), "there is nothing to do");
        for outcome in [
            ObjectOutcome::Failed,
            ObjectOutcome::Migrated,
            ObjectOutcome::Skipped,
            ObjectOutcome::Migrated,
        ] {
            report.objects.push(MigratedObject {
                kind: "Deployment".to_owned(),
                name: "shop/web".to_owned(),
                outcome,
                detail: String::new(),
                changes: Vec::new(),
                notes: Vec::new(),
            });
        }
        assert_eq!(report.summary(), "2 migrated, 1 skipped, 1 failed");
    }

    #[test]
    fn outcomes_are_called_the_same_in_json() {
        for outcome in [
            ObjectOutcome::Saved,
            ObjectOutcome::Migrated,
            ObjectOutcome::Restored,
            ObjectOutcome::Deleted,
            ObjectOutcome::WouldChange,
            ObjectOutcome::Skipped,
            ObjectOutcome::Failed,
        ] {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.name());
        }
    }
}
