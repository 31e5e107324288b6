//! What an admin says about the identity of a cluster.

use fipd_core::{Actor, ClusterId, ClusterProof, ClusterRecord, Request, Text};

use super::{
    Seen, Verdict, WayKey, apart, known_by,
    progress::{fresh, random},
    secret::SecretOrder,
    way_text,
};
use crate::clusters::{ClustersError, connect, link::Up, registry::Registry};

impl Registry {
    /// An admin says that `name` leads to the cluster that goes by `other`.
    pub(in crate::clusters) async fn join(
        &mut self,
        name: &Text,
        other: &Text,
        actor: Actor,
    ) -> Result<(), ClustersError> {
        let (uid, over, secret) = self.answering(name)?;
        let record = self.record_of(other);
        let record = record.ok_or_else(|| ClustersError::Unknown(other.clone()))?;
        if connect::uid(&record.id) != &*uid.0 {
            let text = format!(
                "{name} leads to a cluster with the UID {uid}, and {other} is {}: they are not the same cluster",
                record.id
            );
            return Err(ClustersError::Invalid("as", text));
        }
        if self.owner(name).is_some_and(|owner| owner != record.id) {
            let text = format!(
                "{name} is known as another cluster than {other}; `fipd clusters forget {name}` frees the name"
            );
            return Err(ClustersError::Invalid("as", text));
        }
        let proven =
            |(id, verdict): &(ClusterId, Verdict)| *id == record.id && *verdict == Verdict::Proven;
        let mut verdicts = self.proofs.verdicts.iter();
        let answers = |key: &WayKey| self.link(key).is_some_and(|link| link.answers);
        let up = verdicts.find(|(key, verdict)| proven(verdict) && answers(key));
        let up = up.map(|(key, _)| key.clone());
        let known = record.proof.as_ref().and_then(|proof| proof.nonce.clone());
        let shows_it =
            matches!(&secret, Seen::Value { nonce, .. } if Some(nonce) == known.as_ref());
        let unwritable = |key: &WayKey| self.up_of(key).is_some_and(|up| up.shown.read_only);
        // fipd cannot challenge it over a way that it may not write over: then an admin's word counts.
        let unproved = shows_it && up.as_ref().is_some_and(unwritable);
        let contradicted = secret != Seen::Hidden && known.is_some() && !unproved;
        if let Some((up, _)) = up.filter(|_| contradicted) {
            let text = format!(
                "{up} answers and has proved that it is {other}; {name} shows another Secret fipd-identity: they are two clusters. \
                 `fipd clusters new-identity {name}` sets a clone apart"
            );
            return Err(ClustersError::Invalid("as", text));
        }
        let what = format!("cluster {name} is {other}, says an admin");
        let proof = record.proof.unwrap_or_default();
        let hidden = secret == Seen::Hidden || unproved;
        let Some(nonce) = proof.nonce.clone().filter(|_| !hidden) else {
            return self
                .vouch(name, &record.id, proof, &over, (what, actor))
                .await;
        };
        if self.up_of(&over).is_some_and(|up| up.shown.read_only) {
            return Err(may_not_write(name));
        }
        self.note(what, actor).await?;
        let reached = self.up_of(&over).and_then(|up| up.shown.reached);
        self.hold_where_behind(&record.id, name, reached).await?;
        let value = proof.next.clone().or_else(|| fresh(&proof.value));
        let value = value.ok_or_else(no_random)?;
        let next = ClusterProof {
            next: Some(value.clone()),
            ..proof
        };
        self.record_proof(&record.id, next, &[]).await?;
        self.order(&over, SecretOrder::Claim { nonce, value });
        Ok(())
    }

    /// The same where no Secret can prove it. Where nothing leads there any more, this way is the known one from now on.
    async fn vouch(
        &mut self,
        name: &Text,
        id: &ClusterId,
        proof: ClusterProof,
        over: &WayKey,
        (what, actor): (String, Actor),
    ) -> Result<(), ClustersError> {
        let lead = self.sites.get(&proof.lead);
        let led = lead.is_some_and(|site| {
            let mut links = site.links.iter();
            links.any(|(way, link)| way_text(way) == proof.way && link.answers)
        });
        let ca = self.up_of(over).map(|up| up.shown.ca.clone());
        if !led || proof.lead == *name {
            self.note(what, actor).await?;
            let known = known_by(over, ca.unwrap_or_default());
            return Ok(self.record_proof(id, known, &[]).await?);
        }
        let mut kept = self.kept.clone();
        kept.same_as.insert(name.clone(), proof.lead);
        self.note_and_keep(what, kept, actor).await
    }

    /// An admin says that `name` leads to a clone: it becomes a cluster of its own.
    pub(in crate::clusters) async fn new_identity(
        &mut self,
        name: &Text,
        actor: Actor,
    ) -> Result<(), ClustersError> {
        let (uid, over, secret) = self.answering(name)?;
        let mut sessions = self.sessions.values();
        if sessions.any(|running| running.over.0 == *name && !running.ending) {
            let text = format!(
                "{name} has proved itself and is in use: a clone is one in state identity-conflict"
            );
            return Err(ClustersError::Invalid("name", text));
        }
        let shown = self.up_of(&over).map(|up| up.shown.clone());
        if secret == Seen::Hidden || shown.as_ref().is_some_and(|shown| shown.read_only) {
            return Err(may_not_write(name));
        }
        let nonce = random().ok_or_else(no_random)?;
        let value = fresh("").ok_or_else(no_random)?;
        let (id, site) = (apart(&uid, &nonce), self.sites.get(name));
        let record = ClusterRecord {
            id: id.clone(),
            names: Vec::new(),
            discovered: site.is_some_and(|site| site.spec.discovered),
            first_seen: self.ipam.now(),
            proof: Some(ClusterProof {
                nonce: Some(nonce.clone()),
                value: value.clone(),
                ..known_by(&over, shown.map(|shown| shown.ca).unwrap_or_default())
            }),
        };
        let request = Request::SetApart {
            record,
            name: name.clone(),
            actor,
        };
        self.ipam.submit(request).await?;
        // What it will show is this process's own.
        self.progress(&id).noted.compared = true;
        self.order(&over, SecretOrder::Claim { nonce, value });
        Ok(())
    }

    /// The UID behind a name, the way that shows it, and its Secret.
    fn answering(&self, name: &Text) -> Result<(ClusterId, WayKey, Seen), ClustersError> {
        let site = self
            .sites
            .get(name)
            .ok_or_else(|| ClustersError::Unknown(name.clone()))?;
        let mut ways = site.links.iter().filter(|(_, link)| link.answers);
        let found = ways.find_map(|(way, link)| {
            let up = link.up.as_ref()?;
            let key = (name.clone(), way.clone());
            Some((up.id.clone(), key, up.shown.secret.clone()))
        });
        found.ok_or_else(|| {
            let text =
                format!("{name} does not answer: its identity can be changed only while it does");
            ClustersError::Invalid("name", text)
        })
    }

    pub(super) fn up_of(&self, way: &WayKey) -> Option<&Up> {
        self.link(way)?.up.as_ref()
    }
}

fn may_not_write(name: &Text) -> ClustersError {
    let text = format!(
        "fipd may not write the Secret fipd-identity through {name}: give it the role of packaging/rbac/identity.yaml, and ask \
         again in five minutes"
    );
    ClustersError::Invalid("name", text)
}

fn no_random() -> ClustersError {
    ClustersError::Invalid("name", "the kernel gives no random numbers".to_owned())
}
