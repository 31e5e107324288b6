//! The level of the process, and those of modules that have one of their own, while the process runs.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tracing::level_filters::LevelFilter;

use super::{LEVEL, LogError, parse_filter, record_filter::RecordFilter};

/// What says the level.
static LEVELS: Mutex<Levels> = Mutex::new(Levels {
    process: String::new(),
    modules: BTreeMap::new(),
});

struct Levels {
    process: String,
    modules: BTreeMap<&'static str, LevelFilter>,
}

/// Notes the level that the process starts with.
pub(super) fn begin(level: &str) -> Result<RecordFilter, LogError> {
    let mut levels = LEVELS.lock();
    levels.process = level.to_owned();
    levels.filter()
}

/// The level of the process.
pub fn level() -> String {
    LEVELS.lock().process.clone()
}

/// Changes the level while the process runs.
///
/// # Errors
/// A level that is none.
pub fn set_level(level: &str) -> Result<(), LogError> {
    let mut levels = LEVELS.lock();
    parse_filter(level)?;
    levels.process = level.to_owned();
    levels.apply()
}

/// Gives the records of a module, and those of fipd within work for its system, a level of their own; `None`: that of the process.
///
/// # Errors
/// The level of the process is none.
pub fn set_module_level(module: &'static str, level: Option<LevelFilter>) -> Result<(), LogError> {
    let mut levels = LEVELS.lock();
    match level {
        Some(level) => levels.modules.insert(module, level),
        None => levels.modules.remove(module),
    };
    levels.apply()
}

impl Levels {
    fn apply(&self) -> Result<(), LogError> {
        // Before logging starts nobody has said a level.
        if let Some(handle) = LEVEL.get() {
            // The subscriber lives as long as the process.
            let _ = handle.reload(self.filter()?);
        }
        Ok(())
    }

    fn filter(&self) -> Result<RecordFilter, LogError> {
        let modules = self.modules.iter();
        let modules = modules.map(|(module, level)| (*module, *level));
        Ok(RecordFilter::new(
            parse_filter(&self.process)?,
            modules.collect(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{record_filter::work_for, tests::capture},
        *,
    };

    const MODULE: &str = "fipd::systems::the_one";

    /// What is written of a few records where the module has this level.
    fn written(level: Option<LevelFilter>) -> Vec<String> {
        let (capture, _logging) = capture(MODULE, level);
        tracing::info!(target: "fipd::guests", "shared");
        tracing::debug!(target: "fipd::systems::the_one::guest", "own detail");
        tracing::info!(target: "fipd::systems::the_one_more", "another");
        work_for("the-one").in_scope(|| {
            tracing::info!(target: "fipd::guests", "shared, for it");
            tracing::debug!(target: "fipd::guests", "shared detail, for it");
            tracing::warn!(target: "fipd::guests", "shared warning, for it");
            tracing::debug!(target: "hyper", "detail of a library");
        });
        capture.messages()
    }

    #[test]
    fn a_module_has_a_level_beside_that_of_the_process() {
        let quiet = ["shared", "another"];
        let usual = [
            "shared",
            "another",
            "shared, for it",
            "shared warning, for it",
        ];
        assert_eq!(written(None), usual);
        assert_eq!(written(Some(LevelFilter::INFO)), usual);
        assert_eq!(written(Some(LevelFilter::ERROR)), quiet);
        assert_eq!(
            written(Some(LevelFilter::DEBUG)),
            [
                "shared",
                "own detail",
                "another",
                "shared, for it",
                "shared detail, for it",
                "shared warning, for it"
            ]
        );
    }
}
