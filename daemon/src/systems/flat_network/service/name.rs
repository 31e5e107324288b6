//! How companions are called.

use fipd_crds::flat_network::names::COMPANION_SUFFIX;

use crate::{controller::store::Key, validation::flat_network::labels::shortened};

/// The longest name of a Service, in bytes.
const LONGEST_NAME: usize = 63;
/// What the suffix leaves of it.
const ROOM: usize = LONGEST_NAME - COMPANION_SUFFIX.len();

/// Whether the name of its companion is shortened.
pub fn is_long(service: &Key) -> bool {
    service.name.len() > ROOM
}

/// The companion of a Service. A name that is too long with the suffix is shortened, always in the same way.
pub fn companion_key(service: &Key) -> Key {
    let name = match is_long(service) {
        true => shortened(&service.name, ROOM),
        false => service.name.to_string(),
    };
    Key::new(&service.namespace, &format!("{name}{COMPANION_SUFFIX}"))
}

/// Whether the name of a companion, without its suffix, may be one that was shortened.
pub fn may_be_shortened(name: &str) -> bool {
    let is_digest = |tail: &str| tail.len() == 8 && tail.chars().all(|c| c.is_ascii_hexdigit());
    name.rsplit_once('-')
        .is_some_and(|(_, tail)| is_digest(tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Defect g1-17: names that do not fit.
    #[test]
    fn a_companion_has_a_name_that_a_service_may_have() {
        let of = |name: &str| companion_key(&Key::new("shop", name)).name.to_string();
        assert_eq!(of("web"), "web-flat-network");
        let (one, other) = (
            format!("{}-a", "w".repeat(60)),
            format!("{}-b", "w".repeat(60)),
        );
        let name = of(&one);
        assert!(
            name.len() <= LONGEST_NAME && name.ends_with(COMPANION_SUFFIX),
            "{name}"
        );
        assert!(may_be_shortened(name.trim_end_matches(COMPANION_SUFFIX)));
        assert_eq!(name, of(&one));
        assert_ne!(name, of(&other));
        assert_eq!(of(&"w".repeat(50)).len(), LONGEST_NAME, "it fits exactly");
    }
}
