//! What containers of other boots have of the address book.

use std::sync::atomic::Ordering;

use fipd_core::Holder;

use super::service::CniService;

impl CniService {
    /// Has the address book take in what containers have that run: one that was restored may have forgotten it, and would give it
    /// to others once its hold ends. Done once in a start.
    pub async fn readopt_running(&self) {
        let is_done = self.is_readopted.load(Ordering::Relaxed);
        let Some(leases) = self.leases.as_ref().filter(|_| !is_done) else {
            return;
        };
        let running = self.on_host(|host| {
            Ok(match host.is_new_epoch() {
                true => host.running(),
                false => Vec::new(),
            })
        });
        for key in running.await.unwrap_or_default() {
            // It may be deleted meanwhile.
            let _turn = self.turns.wait(&key).await;
            let held = self.host.lock().await.leases_of_running(&key);
            for lease in held {
                if let Err(refusal) = leases.adopt(&key, lease).await {
                    let error = refusal.why;
                    tracing::warn!(
                        error,
                        "the address book does not take in what containers have; will retry"
                    );
                    return;
                }
            }
        }
        self.is_readopted.store(true, Ordering::Relaxed);
    }

    /// Frees what containers of an earlier boot have of the address book; whether all is free. A restored address book may know an
    /// earlier boot of containers that run, and loses nothing in this one.
    pub async fn forget_earlier_boots(&self) -> bool {
        let Some(leases) = &self.leases else {
            return true;
        };
        let boots = {
            let host = self.host.lock().await;
            if host.is_new_epoch() {
                tracing::info!(
                    "the address book was restored or taken over: addresses of containers of earlier boots stay until DEL, GC or the next boot"
                );
                return true;
            }
            host.boots().clone()
        };
        let released = leases.release_earlier_boots(&boots).await;
        match &released {
            Ok(others) => tell_of_others(others),
            Err(refusal) => {
                let error = &refusal.why;
                tracing::warn!(
                    error,
                    "cannot release addresses of containers of an earlier boot; will retry"
                );
            }
        }
        released.is_ok()
    }
}

/// Names containers whose addresses nobody frees by himself.
fn tell_of_others(others: &[Holder]) {
    if let Some(first) = others.first() {
        let (count, owner, instance) = (others.len(), &first.identity, &first.instance);
        tracing::warn!(
            count,
            %owner,
            %instance,
            "containers of boots that this host does not know as its own have addresses; `fipd lease release ADDRESS` frees those that are gone"
        );
    }
}
