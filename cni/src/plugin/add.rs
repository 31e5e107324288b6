//! `ADD`: the daemon says what to make, the plugin makes it and says so. What the runtime does not hear of is taken back.

use super::{
    call::{CLEANUP_PATIENCE, PluginCall},
    construct::construct,
    note,
    undo::Undo,
};
use crate::{AskStep, CniError, Code, link::Netlink, result::AddResult};

pub(super) fn add(
    call: &PluginCall,
    mut say: impl FnMut(&str) -> Result<(), CniError>,
) -> Result<(), CniError> {
    let previous = call.previous()?;
    let mut sandbox = call.container()?;
    check_name(call, &mut sandbox.netlink)?;
    let attachment = call.attachment(AskStep::Begin)?;
    let mut undo = Undo::default();
    let constructed = construct(call, &mut sandbox, attachment, &mut undo);
    let text = constructed.and_then(|result| print(call, previous, result));
    let said = text.and_then(|text| say(&text));
    if let Err(failure) = &said {
        // An address that is still configured is not given to the next one: the runtime's DEL tries again.
        let undone = undo.run(call, &mut sandbox.netlink);
        let released =
            undone.and_then(|()| call.release(CLEANUP_PATIENCE, Vec::new(), Some(failure)));
        if let Err(error) = released {
            note(&error.to_string());
        }
    }
    said
}

/// Row 79 of the contract: before the daemon is asked.
fn check_name(call: &PluginCall, netlink: &mut Netlink) -> Result<(), CniError> {
    let name = call.ifname();
    let found = netlink.find(name);
    match found.map_err(|error| call.refused(&format!("look up {name}"), &error, netlink))? {
        None => Ok(()),
        Some(_) => {
            let details = format!("{name} in {}", call.environment.netns);
            let what = "the container has an interface with the name of CNI_IFNAME";
            Err(call.error(Code::InvalidEnvironment, what, details))
        }
    }
}

fn print(
    call: &PluginCall,
    previous: Option<AddResult>,
    mut result: AddResult,
) -> Result<String, CniError> {
    if let Some(mut previous) = previous {
        // A default route that was replaced is no longer there for CHECK.
        let replaced = result.routes.iter().filter(|one| one.dst.prefix_len() == 0);
        let replaced: Vec<_> = replaced.map(|one| one.dst).collect();
        previous.routes.retain(|one| !replaced.contains(&one.dst));
        result = previous.merge(result);
    }
    let text = result.write(&call.conf.cni_version);
    text.map_err(|error| call.failed("write the result", error))
}
