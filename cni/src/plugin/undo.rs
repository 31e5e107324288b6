//! Takes back what a failed `ADD` has changed in the container.

use super::{call::PluginCall, del::delete_link, note};
use crate::{
    CniError,
    link::{ListedRoute, Netlink, Route},
};

/// What `ADD` has changed so far.
#[derive(Default)]
pub(super) struct Undo {
    pub link: bool,
    /// Over other interfaces; those over the new one go with it.
    pub added: Vec<Route>,
    pub removed: Vec<ListedRoute>,
}

impl Undo {
    /// Routes that cannot be put back are noted only: the runtime is to see why `ADD` failed.
    ///
    /// # Errors
    /// The link may be there still.
    pub fn run(self, call: &PluginCall, netlink: &mut Netlink) -> Result<(), CniError> {
        if !self.link {
            return Ok(());
        }
        for route in self.added.iter().rev() {
            let deleted = netlink.delete_route(route).map(drop);
            noted(deleted.map_err(|error| call.failed("remove a route", error)));
        }
        let deleted = delete_link(call, netlink);
        for route in self.removed.iter().rev() {
            let restored = netlink.restore_route(route).map(drop);
            noted(restored.map_err(|error| {
                let doing = format!("put the route to {} back", route.route.dst);
                call.refused(&doing, &error, netlink)
            }));
        }
        deleted
    }
}

fn noted(result: Result<(), CniError>) {
    if let Err(error) = result {
        note(&error.to_string());
    }
}
