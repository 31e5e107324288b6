//! The systems that a configuration can switch on.

use std::collections::BTreeSet;

use fipd_core::System;

/// All of them.
pub fn served() -> [System; 3] {
    [System::rancher_fip(), System::claims(), System::ip_rule()]
}

/// The system of that name.
pub(super) fn system(name: &str) -> Result<System, String> {
    let served = served();
    let found = served.iter().find(|system| system.as_str() == name);
    found.cloned().ok_or_else(|| {
        let names = served.map(|system| format!("{:?}", system.as_str()));
        format!(
            "{name:?} is not served by this version; allowed is {}",
            names.join(" or ")
        )
    })
}

/// Each once.
pub(super) fn systems(given: &[String], place: &str) -> Result<BTreeSet<System>, String> {
    let mut systems = BTreeSet::new();
    for name in given {
        let system = system(name).map_err(|what| format!("{place}: systems: {what}"))?;
        if !systems.insert(system) {
            return Err(format!("{place}: systems: {name:?} is there twice"));
        }
    }
    Ok(systems)
}
