//! The level of the process, and those of modules that have one of their own, while the process runs.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::{LEVEL, LogError, parse_filter};

/// What says the level.
static LEVELS: Mutex<Levels> = Mutex::new(Levels {
    process: String::new(),
    modules: BTreeMap::new(),
});

struct Levels {
    process: String,
    modules: BTreeMap<&'static str, &'static str>,
}

/// Notes the level that the process starts with.
pub(super) fn begin(level: &str) {
    LEVELS.lock().process = level.to_owned();
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

/// Gives the records of a module a level of their own; `None`: that of the process.
///
/// # Errors
/// A level that is none.
pub fn set_module_level(module: &'static str, level: Option<&'static str>) -> Result<(), LogError> {
    let mut levels = LEVELS.lock();
    match level {
        Some(level) => levels.modules.insert(module, level),
        None => levels.modules.remove(module),
    };
    levels.apply()
}

impl Levels {
    fn apply(&self) -> Result<(), LogError> {
        let filter = parse_filter(&self.text())?;
        if let Some(handle) = LEVEL.get() {
            // The subscriber lives as long as the process.
            let _ = handle.reload(filter);
        }
        Ok(())
    }

    fn text(&self) -> String {
        let modules = self.modules.iter();
        let modules = modules.map(|(module, level)| format!("{module}={level}"));
        let process = Some(self.process.clone()).filter(|level| !level.is_empty());
        process
            .into_iter()
            .chain(modules)
            .collect::<Vec<_>>()
            .join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_has_a_level_beside_that_of_the_process() {
        let mut levels = Levels {
            process: "warn".to_owned(),
            modules: [("fipd::a", "debug")].into(),
        };
        assert_eq!(levels.text(), "warn,fipd::a=debug");
        assert!(levels.apply().is_ok());
        levels.modules.clear();
        assert_eq!(levels.text(), "warn");
    }
}
