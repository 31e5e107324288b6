//! What fipd keeps in Rancher of each guest, beyond a restart: that it got its first FloatingIP, which is not made a second time
//! once somebody deleted it, and that something was written to it, so that no other guest is looked into.

use super::{Stop, VipGuests, observe::CONFIG, plan::VipWait};
use crate::{
    controller::client::CallError, guests::objects::Texts,
    systems::kube_fip::settings::KubeFipSettings,
};

/// ConfigMap beside that of the original: a note by Rancher's id of each guest.
pub const NOTES: &str = "fipd-kube-fip-guests";
/// ConfigMap beside that of the original: what of it was in force last.
pub const COPY: &str = "fipd-kube-fip-config";

/// One guest. As text: the words that hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VipNote {
    /// It has had its first FloatingIP.
    pub served: bool,
    /// fipd made that one, so no original has put its address anywhere.
    pub made: bool,
    /// fipd may have written to it.
    pub written: bool,
}

impl VipNote {
    const SERVED: &'static str = "served";
    const MADE: &'static str = "made";
    const WRITTEN: &'static str = "written";

    pub fn parse(text: &str) -> Self {
        let has = |word| text.split_whitespace().any(|one| one == word);
        Self {
            served: has(Self::SERVED),
            made: has(Self::MADE),
            written: has(Self::WRITTEN),
        }
    }

    pub fn text(self) -> String {
        let words = [
            (self.served, Self::SERVED),
            (self.made, Self::MADE),
            (self.written, Self::WRITTEN),
        ];
        let words = words.into_iter().filter(|(holds, _)| *holds);
        words.map(|(_, word)| word).collect::<Vec<_>>().join(" ")
    }
}

impl VipGuests {
    pub(super) fn noted(&self, id: &str) -> VipNote {
        let map = self.maps.get(NOTES).unwrap_or_default();
        map.get(id)
            .map(|text| VipNote::parse(text))
            .unwrap_or_default()
    }

    pub(super) fn noted_ids(&self) -> Vec<String> {
        let map = self.maps.get(NOTES).unwrap_or_default();
        map.keys().cloned().collect()
    }

    /// Changes the note of a guest; one that says nothing goes.
    pub(super) async fn note(
        &self,
        id: &str,
        change: impl FnOnce(VipNote) -> VipNote,
    ) -> Result<(), Stop> {
        let before = self.noted(id);
        let now = change(before);
        if now == before {
            return Ok(());
        }
        self.change_map(NOTES, |notes| {
            let mut notes = notes.clone();
            match now == VipNote::default() {
                true => notes.remove(id),
                false => notes.insert(id.to_owned(), now.text()),
            };
            notes
        })
        .await
    }

    pub(super) fn config_namespace(&self) -> &str {
        &self.site.settings::<KubeFipSettings>().namespace
    }

    /// Makes a ConfigMap of fipd's own hold exactly what `change` makes of a fresh look at it.
    pub(super) async fn change_map(
        &self,
        name: &str,
        change: impl FnOnce(&Texts) -> Texts,
    ) -> Result<(), Stop> {
        debug_assert_ne!(name, CONFIG, "that one is the admin's");
        match self.maps.change(name, |have| Some(change(have))).await {
            Ok(()) => Ok(()),
            Err(CallError::NotFound(_)) => {
                Err(VipWait::NoConfigNamespace(self.config_namespace().to_owned()).into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_what_it_said() {
        for bits in 0..8_u8 {
            let note = VipNote {
                served: bits & 1 > 0,
                made: bits & 2 > 0,
                written: bits & 4 > 0,
            };
            assert_eq!(VipNote::parse(&note.text()), note);
        }
        assert_eq!(VipNote::parse("unknown"), VipNote::default());
    }
}
