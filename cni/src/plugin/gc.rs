//! `GC`: the daemon releases every attachment that the runtime does not list.

use super::call::{Call, PATIENCE};
use crate::{CniError, Code, Step, Verb};

pub(super) fn gc(call: &Call) -> Result<String, CniError> {
    call.output(Verb::Gc, Step::Begin, PATIENCE, Code::TryAgain)
}
