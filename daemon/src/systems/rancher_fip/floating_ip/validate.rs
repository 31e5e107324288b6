//! What a FloatingIP asks for, as typed values, and why it cannot be served.

use std::net::IpAddr;

use fipd_core::Tenant;

use super::observe::Fip;
pub use crate::controller::unserved::{Unserved, refused};
use crate::{
    controller::waiters::Cause,
    validation::{Wrong, floating_ip as rules},
};

/// Whom it charges and which address it names. The address that the status shows goes before the one of the spec.
pub fn wish(fip: &Fip) -> Result<(Tenant, Option<IpAddr>), Unserved> {
    let project = fip.project.as_ref().map(|project| &*project.0);
    let project = rules::project(project).map_err(|wrong| invalid("MissingProject", &wrong))?;
    rules::pool(&fip.pool).map_err(|wrong| invalid("Invalid", &wrong))?;
    let address = match fip.shown() {
        Some(address) => Some(address),
        None => rules::address(&fip.wanted).map_err(|wrong| invalid("Invalid", &wrong))?,
    };
    Ok((project, address))
}

fn invalid(reason: &'static str, wrong: &Wrong) -> Unserved {
    Unserved::new(reason, wrong.to_string(), None)
}

/// The pool does not exist (yet).
pub fn unknown_pool(field: &str, pool: &str) -> Unserved {
    let message =
        format!("{field}: no usable FloatingIPPool {pool:?}; it is tried again when one appears");
    Unserved::new("PoolNotFound", message, Some(Cause::Pools))
}

#[cfg(test)]
mod tests {
    use fipd_crds::floating_ip::FloatingIP;

    use super::*;
    use crate::systems::rancher_fip::floating_ip::observe::slim;

    fn fip() -> Fip {
        let mut fip = slim(FloatingIP::default());
        fip.project = Some(Tenant("p-1".into()));
        fip.pool = "dc--net".into();
        fip
    }

    #[test]
    fn a_wish_needs_project_and_pool_and_a_readable_address() {
        assert_eq!(wish(&fip()), Ok((Tenant("p-1".into()), None)));
        let reason = |fip: &Fip| wish(fip).expect_err("a problem").reason;
        assert_eq!(
            reason(&Fip {
                project: None,
                ..fip()
            }),
            "MissingProject"
        );
        assert_eq!(
            reason(&Fip {
                pool: String::new(),
                ..fip()
            }),
            "Invalid"
        );
        assert_eq!(
            reason(&Fip {
                wanted: "10.0.0.300".into(),
                ..fip()
            }),
            "Invalid"
        );
        let v6 = wish(&Fip {
            wanted: "2001:DB8:0::5".into(),
            ..fip()
        })
        .expect("a wish");
        assert_eq!(
            v6.1.map(|address| address.to_string()),
            Some("2001:db8::5".into())
        );
    }
}
