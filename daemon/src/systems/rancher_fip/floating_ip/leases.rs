//! What a FloatingIP asks the address book for, and what comes of it.

use fipd_core::{Answer, Holder, Pool, Request};

use super::{
    FloatingIps,
    status::{Outcome, Shown},
    validate,
};
use crate::{
    controller::{ReconcileError, unserved::contended},
    ipam::IpamError,
};

impl FloatingIps {
    /// Charges another project; what it may not be charged with stays as it is.
    pub(super) async fn charge(
        &self,
        shown: Shown,
        request: Request,
        pool: &Pool,
    ) -> Result<Shown, ReconcileError> {
        match self.context.site.ipam.submit(request).await {
            Ok(_) => Ok(shown),
            Err(IpamError::Refused(refusal)) => {
                let mut problem = validate::refused(&refusal, pool.spec.network);
                problem.message = format!(
                    "{} stays charged to the project that it was of before: {}",
                    shown.address, problem.message
                );
                let uncharged = Some(problem);
                Ok(Shown { uncharged, ..shown })
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn ask(
        &self,
        request: Request,
        holder: &Holder,
        pool: &Pool,
    ) -> Result<Outcome, ReconcileError> {
        match self.context.site.ipam.submit(request).await {
            Ok(Answer::Granted { leases, .. }) => match leases.first() {
                Some(lease) => Ok(Ok(Shown::of(lease))),
                None => Err(ReconcileError::internal("an allocation without lease")),
            },
            Ok(Answer::Adopted { lease }) => Ok(Ok(Shown::of(&lease))),
            Ok(Answer::HandedOver { leases }) => {
                let key = leases.first().copied();
                let lease = self
                    .context
                    .site
                    .ipam
                    .read(|ledger| ledger.lease(key?).map(|lease| Shown::of(lease)));
                lease
                    .map(Ok)
                    .ok_or_else(|| ReconcileError::internal("the lease changed hands meanwhile"))
            }
            Ok(Answer::Contended { lease }) => Ok(Err(contended(&lease))),
            Ok(other) => Err(ReconcileError::unexpected(&other)),
            Err(IpamError::Refused(refusal)) => {
                // It has another address than the one now asked for, and keeps it.
                let network = pool.spec.network;
                let held = self
                    .context
                    .site
                    .ipam
                    .read(|ledger| ledger.leases_of(&holder.identity));
                Ok(held
                    .iter()
                    .find(|lease| lease.key.network == network)
                    .map(|lease| Shown::of(lease))
                    .ok_or_else(|| validate::refused(&refusal, network)))
            }
            Err(error) => Err(error.into()),
        }
    }
}
