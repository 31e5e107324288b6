//! `GC`: the daemon releases every attachment that the runtime does not list.

use super::call::{Call, PATIENCE};
use crate::{AskStep, CniError, Code, Verb};

pub(super) fn gc(call: &Call) -> Result<String, CniError> {
    call.output(Verb::Gc, AskStep::Begin, PATIENCE, Code::TryAgain)
}
