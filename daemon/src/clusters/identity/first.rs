//! Verdicts while no Secret of the cluster is known: who writes it, and who is the one known way where fipd may not. Pure.

use fipd_core::{ClusterProof, Text};

use super::{
    Act, Facts, GRACE, Known, Seen, Shown, Verdict, join, known_by, led, rights_or_join, vouched,
};

/// No Secret is known: the first way writes one, or is the one known way where fipd may not write.
pub(super) fn without_nonce(
    known: &Known<'_>,
    proof: Option<&ClusterProof>,
    ways: &[Facts],
    acts: &mut Vec<Act>,
) -> Vec<Verdict> {
    let first = first(known, proof, ways);
    let mut verdicts = Vec::new();
    for (n, way) in ways.iter().enumerate() {
        let verdict = match &way.shown {
            _ if !way.strict => {
                // Nobody else will record the nonce that later connects have to show.
                let shows = way.shown.as_ref().is_some_and(
                    |shown| matches!(&shown.secret, Seen::Value { nonce, .. } if !nonce.is_empty()),
                );
                if shows && acts.is_empty() && ways.iter().all(|way| !way.strict) {
                    acts.extend(record_of(way).map(Act::Record));
                }
                Verdict::Compared
            }
            None => Verdict::Waits("it has not answered yet".into()),
            Some(shown) if first == Some(n) => first_way(proof, way, shown, ways, acts),
            Some(shown) if proof.is_some_and(|proof| is_sibling(way, shown, proof)) => {
                Verdict::Vouched
            }
            Some(shown) => vouched(known, way, shown).unwrap_or_else(|| match first {
                Some(n) if ways[n].shown.is_none() || ways[n].answers == Some(true) => {
                    not_first(way, &ways[n], proof)
                }
                Some(_) | None => not_first_known(way, known, proof),
            }),
        };
        verdicts.push(verdict);
    }
    verdicts
}

/// Whose way leads: the one that led last, else the first name the cluster was known by, else the first that is configured.
/// `None`: not decided yet, or none of those ways is there.
fn first(known: &Known<'_>, proof: Option<&ClusterProof>, ways: &[Facts]) -> Option<usize> {
    let strict = || ways.iter().enumerate().filter(|(_, way)| way.strict);
    let best = |site: &Text| {
        let of_site = || strict().filter(|(_, way)| way.key.0 == *site);
        let led = of_site().find(|(_, way)| proof.is_some_and(|proof| led(proof, &way.key)));
        let up = || of_site().find(|(_, way)| way.answers == Some(true) && way.shown.is_some());
        led.filter(|(_, way)| {
            way.answers == Some(true) || proof.is_some_and(|proof| !proof.ca.is_empty())
        })
        .or_else(up)
        .or_else(|| of_site().next())
        .map(|(n, _)| n)
    };
    let lead = proof
        .map(|proof| &proof.lead)
        .filter(|lead| !lead.is_empty());
    let mut names = lead.into_iter().chain(known.names);
    if let Some(n) = names.find_map(best) {
        return Some(n);
    }
    let (n, way) = strict().find(|(_, way)| way.answers != Some(false))?;
    let patience = known.now.saturating_duration_since(known.since) < GRACE;
    if way.answers == Some(true) && way.shown.is_some() {
        return Some(n);
    }
    if patience {
        return None;
    }
    strict()
        .find(|(_, way)| way.answers == Some(true) && way.shown.is_some())
        .map(|(n, _)| n)
}

fn first_way(
    proof: Option<&ClusterProof>,
    way: &Facts,
    shown: &Shown,
    ways: &[Facts],
    acts: &mut Vec<Act>,
) -> Verdict {
    let known = proof.filter(|proof| !proof.lead.is_empty());
    let same = |proof: &ClusterProof| {
        // Another kubeconfig of the same name may take the place of one that is gone.
        let gone = way.key.0 == proof.lead && !ways.iter().any(|way| led(proof, &way.key));
        (gone || led(proof, &way.key)) && same_ca(proof, shown)
    };
    if let Some(proof) = known.filter(|proof| !same(proof)) {
        // Whoever may write there, or has a Secret there, is not the known way for that.
        return not_the_known_way(way, shown, proof);
    }
    match (&shown.secret, known) {
        (Seen::Absent, _) if !shown.read_only => {
            if way.answers == Some(true) {
                acts.push(Act::Create(way.key.clone()));
            }
            // One that was known by its CA goes on until the Secret is there.
            match known {
                Some(_) => Verdict::Proven,
                None => Verdict::Waits("its Secret fipd-identity is being created".into()),
            }
        }
        (Seen::Value { nonce, .. }, _) if nonce.is_empty() => Verdict::Conflict(
            "its Secret fipd-identity has no nonce, so that it proves nothing. Delete that Secret"
                .into(),
        ),
        (Seen::Value { .. }, _) => {
            acts.extend(record_of(way).map(Act::Record));
            Verdict::Waits("its Secret fipd-identity is being read".into())
        }
        (Seen::Absent | Seen::Hidden, Some(proof)) => {
            if !led(proof, &way.key) {
                acts.extend(record_of(way).map(Act::Record));
            }
            Verdict::Proven
        }
        (Seen::Absent | Seen::Hidden, None) => {
            acts.extend(record_of(way).map(Act::Record));
            Verdict::Waits("it is being recorded".into())
        }
    }
}

/// Another kubeconfig of the name that leads, with the same CA: Rancher keeps two Secrets for a cluster.
fn is_sibling(way: &Facts, shown: &Shown, proof: &ClusterProof) -> bool {
    way.key.0 == proof.lead && same_ca(proof, shown)
}

fn same_ca(proof: &ClusterProof, shown: &Shown) -> bool {
    !shown.ca.is_empty() && proof.ca == shown.ca
}

fn not_the_known_way(way: &Facts, shown: &Shown, proof: &ClusterProof) -> Verdict {
    let what = if same_ca(proof, shown) {
        "another kubeconfig is the known way to it"
    } else {
        "its API server is now trusted by another CA"
    };
    let next = rights_or_join(&way.key.0, &proof.lead);
    let text = format!(
        "{what}, and fipd has no Secret there yet that proves that it is still the same cluster. {next}"
    );
    Verdict::Conflict(text.into())
}

fn record_of(way: &Facts) -> Option<ClusterProof> {
    let shown = way.shown.as_ref()?;
    let (nonce, value) = match &shown.secret {
        Seen::Value { nonce, value } => (Some(nonce.clone()), value.clone()),
        Seen::Absent | Seen::Hidden => (None, Text::default()),
    };
    Some(ClusterProof {
        nonce,
        value,
        ..known_by(&way.key, shown.ca.clone())
    })
}

fn not_first(way: &Facts, first: &Facts, proof: Option<&ClusterProof>) -> Verdict {
    let recorded = proof.is_some_and(|proof| !proof.lead.is_empty());
    if recorded {
        let text = format!(
            "it has the UID of {}, which a clone has too, and fipd may not keep a Secret there that proves that both are one. {}",
            first.key.0,
            rights_or_join(&way.key.0, &first.key.0)
        );
        return Verdict::Conflict(text.into());
    }
    let first = &first.key.0;
    Verdict::Waits(format!("{first} was first and has to prove itself before it").into())
}

fn not_first_known(way: &Facts, known: &Known<'_>, proof: Option<&ClusterProof>) -> Verdict {
    let lead = proof
        .map(|proof| &proof.lead)
        .filter(|lead| !lead.is_empty());
    match lead.or(known.names.first()) {
        None => {
            Verdict::Waits("ways that come first in the configuration have not answered yet".into())
        }
        Some(lead) => {
            let next = join(&way.key.0, lead);
            let text = format!(
                "it has the UID of {lead}, which a clone has too, and {lead} does not answer. {next}"
            );
            Verdict::Conflict(text.into())
        }
    }
}
