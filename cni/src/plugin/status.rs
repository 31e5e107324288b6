//! `STATUS`: whether the daemon can serve `ADD`.

use std::time::Duration;

use super::call::PluginCall;
use crate::{AskStep, CniError, Code, Verb};

/// Runtimes ask for the state every few seconds.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn status(call: &PluginCall) -> Result<String, CniError> {
    call.output(Verb::Status, AskStep::Begin, PATIENCE, Code::NotAvailable)
}
