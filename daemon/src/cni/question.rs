//! What a plugin asks, as the service takes it.

use std::{collections::BTreeSet, net::IpAddr};

use fipd_cni::{Ask, NetConf, result::AddResult};

use super::record::AttachmentKey;

/// One question.
pub struct PluginQuestion<'a> {
    pub key: AttachmentKey,
    pub conf: NetConf,
    pub ask: &'a Ask,
}

impl<'a> PluginQuestion<'a> {
    pub fn new(conf: NetConf, ask: &'a Ask) -> Self {
        let key = AttachmentKey::of(&conf, ask);
        Self { key, conf, ask }
    }

    /// The addresses of the interface by the result of `ADD` that the runtime passes.
    ///
    /// # Errors
    /// What is wrong with that result.
    pub fn shown(&self) -> Result<BTreeSet<IpAddr>, String> {
        let previous = self.conf.prev_result.as_ref();
        let previous = AddResult::read(previous.ok_or("it is missing")?)?;
        let at = previous.interface(&self.key.ifname);
        let of_it = at.into_iter().flat_map(|at| previous.ips_of(at));
        Ok(of_it.map(|ip| ip.address.addr()).collect())
    }
}
