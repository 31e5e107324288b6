//! `STATUS`: whether the daemon can serve `ADD`, and the host has the interface for it.

use std::time::Duration;

use super::{
    call::PluginCall,
    construct::{check_mtu, parent},
};
use crate::{AskStep, CniError, Code, Verb};

/// Runtimes ask for the state every few seconds.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn status(call: &PluginCall) -> Result<String, CniError> {
    let said = call.output(Verb::Status, AskStep::Begin, PATIENCE, Code::NotAvailable)?;
    // Pods have theirs from their subnets.
    if call.conf.is_standalone() {
        let conf = &call.conf.link;
        let found = parent(call, &mut call.netlink()?, &conf.master);
        let found = found.map_err(|error| CniError {
            code: Code::NotAvailable as u32,
            ..error
        })?;
        check_mtu(call, Some(conf.mtu), &found)?;
    }
    Ok(said)
}
