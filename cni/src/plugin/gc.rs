//! `GC`: the daemon releases every attachment that the runtime does not list.

use super::call::{PATIENCE, PluginCall};
use crate::{AskStep, CniError, Code, Verb};

pub(super) fn gc(call: &PluginCall) -> Result<String, CniError> {
    call.output(Verb::Gc, AskStep::Begin, PATIENCE, Code::TryAgain)
}
