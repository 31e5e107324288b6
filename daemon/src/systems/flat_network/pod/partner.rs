//! Which subnet of the other family the interface of a pod gets a second address of.

use std::sync::Arc;

use fipd_core::Ledger;

use super::{
    PodController, no_mac,
    observe::{ANNOTATIONS, PodView},
    plan::is_of,
};
use crate::{
    controller::{conditions::INVALID, store::Key},
    systems::flat_network::{ip::FlatIpView, names::DUAL_STACK},
    validation::flat_network::{
        annotations::{PodAddresses, annotation},
        interfaces::{no_partner, partner_of},
    },
};

/// Reason: others have every MAC that the pod names.
const MAC_IN_USE: &str = "MACInUse";

/// A pod that asks for an address and gets none, without an object that could say so.
pub struct RefusedPod {
    pub key: Key,
    pub pod: Arc<PodView>,
    pub reason: &'static str,
    pub message: String,
}

impl PodController {
    /// Whether the one subnet names the other as its partner.
    pub(super) fn is_partner(&self, of: &str, subnet: &str) -> bool {
        let of = self.in_force(of);
        of.is_some_and(|of| of.partner.as_deref() == Some(subnet))
    }

    /// The same, which asks for the partner of the subnet by its name where it asks for that. A pod keeps the subnet that it has an
    /// address of, whatever its annotations say by now: it uses that address.
    pub(super) fn with_subnet(
        &self,
        key: &Key,
        pod: Arc<PodView>,
        ip: Option<&FlatIpView>,
    ) -> Arc<PodView> {
        let Some(wants) = pod.wants.as_ref().ok() else {
            return pod;
        };
        if !pod.interface.is_partner {
            let own = ip.filter(|ip| is_of(ip, &pod));
            let leased = own.and_then(|_| self.leased_subnet(key));
            return match leased.filter(|subnet| *subnet != wants.subnet) {
                None => pod,
                Some(subnet) => Arc::new(PodView {
                    wants: Ok(PodAddresses {
                        subnet,
                        ..wants.clone()
                    }),
                    ..PodView::clone(&pod)
                }),
            };
        }
        // The address may not be shown yet.
        let is_leased = || {
            let own = self.ips.context.identity(key);
            let leased = |ledger: &Ledger| !ledger.leases_of(&own).is_empty();
            self.context.read(leased)
        };
        let has = |ip: &&FlatIpView| !ip.status.addr.is_empty() || is_leased();
        let has = ip.filter(|ip| is_of(ip, &pod)).filter(has);
        let partner = match has {
            Some(ip) => Ok(ip.spec.subnet.clone()),
            None => self.partner(&wants.subnet),
        };
        let wants = match partner {
            Ok(subnet) => Ok(PodAddresses {
                subnet,
                ..PodAddresses::default()
            }),
            Err(why) => Err(no_partner(&annotation(ANNOTATIONS, DUAL_STACK), &why)),
        };
        Arc::new(PodView {
            wants,
            ..PodView::clone(&pod)
        })
    }

    /// The subnet that a pod has an address of by the ledger.
    fn leased_subnet(&self, key: &Key) -> Option<String> {
        let own = self.ips.context.identity(key);
        let pool = |ledger: &Ledger| {
            let leases = ledger.addresses_of(&own);
            ledger.pool(leases.first()?.pool?).cloned()
        };
        let object = self.context.site.object_of(&*self.context.read(pool)?)?;
        let (_, name) = object.split_once('/')?;
        Some(name.to_owned())
    }

    /// Those that get no address for what their annotations say, or because others have the MACs that they name.
    pub fn refused(&self) -> Vec<RefusedPod> {
        let all = self.context.objects.all().into_iter();
        let without =
            all.filter(|(key, pod)| !pod.is_over() && self.ips.context.objects.seen(key).is_none());
        let waiting = self.waiting.lock().clone();
        let refused = without.filter_map(|(key, pod)| {
            let pod = self.with_subnet(&key, pod, None);
            let (reason, message) = match &pod.wants {
                Err(wrong) => (INVALID, wrong.to_string()),
                Ok(_) if waiting.contains(&key) => (MAC_IN_USE, no_mac(&pod)),
                Ok(_) => return None,
            };
            Some(RefusedPod {
                key,
                pod,
                reason,
                message,
            })
        });
        refused.collect()
    }

    /// The name of the subnet of the other family that pods of a subnet get addresses of.
    ///
    /// # Errors
    /// Why there is none, and what to do.
    pub fn partner(&self, name: &str) -> Result<String, String> {
        partner_of(name, |name| self.in_force(name))
    }
}
