//! The files that pages refer to, each under a name that changes with its content.

/// One embedded file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asset {
    pub content_type: &'static str,
    pub body: &'static str,
}

const STYLE: &str = include_str!("../assets/fipd.css");
const ICON: &str = include_str!("../assets/icon.svg");
const SCRIPT: &str = "text/javascript; charset=utf-8";
/// What keeps pages fresh, what writes times in another zone, the keys of the map, and the roles of tables.
const SCRIPTS: [(&str, &str); 4] = [
    ("live", include_str!("../assets/live.js")),
    ("times", include_str!("../assets/times.js")),
    ("map", include_str!("../assets/map.js")),
    ("tables", include_str!("../assets/tables.js")),
];

/// Where the style sheet is found.
pub fn style() -> String {
    address("fipd", STYLE, "css")
}

/// Where the scripts are found; none of them is needed.
pub fn scripts() -> impl Iterator<Item = String> {
    SCRIPTS.iter().map(|(stem, body)| address(stem, body, "js"))
}

/// Where the icon is found.
pub fn icon() -> String {
    address("icon", ICON, "svg")
}

/// The file of that name (the last part of an address above). A name never means another content, so it may
/// be cached for good.
pub fn find(name: &str) -> Option<Asset> {
    let of = |address: String, content_type, body| {
        (address.rsplit('/').next() == Some(name)).then_some(Asset { content_type, body })
    };
    let mut scripts = scripts().zip(SCRIPTS);
    of(style(), "text/css; charset=utf-8", STYLE)
        .or_else(|| scripts.find_map(|(address, (_, body))| of(address, SCRIPT, body)))
        .or_else(|| of(icon(), "image/svg+xml", ICON))
}

fn address(stem: &str, body: &str, extension: &str) -> String {
    format!(
        "/ui/static/{stem}-{:016x}.{extension}",
        fingerprint(body.as_bytes())
    )
}

/// FNV-1a: tells versions of our own files apart, nothing more.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_found_and_nothing_else() {
        let others = [
            (style(), "text/css; charset=utf-8"),
            (icon(), "image/svg+xml"),
        ];
        let scripts = scripts().map(|address| (address, SCRIPT));
        for (address, content_type) in scripts.chain(others) {
            let name = address.strip_prefix("/ui/static/").unwrap();
            assert_eq!(find(name).unwrap().content_type, content_type);
        }
        assert_eq!(find("fipd.css"), None);
        assert_eq!(find(""), None);
    }

    #[test]
    fn assets_ask_for_nothing_from_elsewhere() {
        for body in SCRIPTS.iter().map(|(_, body)| *body).chain([STYLE]) {
            assert!(
                !body.contains("http:") && !body.contains("https:") && !body.contains("@import")
            );
        }
    }
}
