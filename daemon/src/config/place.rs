//! Where a path of the configuration leads.

use std::{
    env,
    path::{Path, PathBuf},
};

/// Before the name of a credential that systemd gives (`LoadCredential=`).
const CREDENTIAL: &str = "credential:";
/// Where credentials of the unit are for those that systemd did not start, such as `fipd check`.
const OF_UNIT: &str = "/run/credentials/fipd.service";

/// The directory of credentials that systemd made for this process. Only root can have put something there.
pub fn credentials() -> Option<PathBuf> {
    let given = env::var_os("CREDENTIALS_DIRECTORY").filter(|given| !given.is_empty())?;
    Some(PathBuf::from(given))
}

/// `credential:NAME` is that credential, a relative path is one from `base` on.
pub fn place(base: &Path, path: &Path) -> PathBuf {
    let name = path.to_str().and_then(|text| text.strip_prefix(CREDENTIAL));
    match name.filter(|name| is_name(name)) {
        Some(name) => credentials().unwrap_or_else(|| OF_UNIT.into()).join(name),
        None => base.join(path),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_no_path() {
        let at = |path: &str| place(Path::new("/etc/fipd"), Path::new(path));
        assert_eq!(at("credential:east"), Path::new(OF_UNIT).join("east"));
        assert_eq!(at("east"), Path::new("/etc/fipd/east"));
        assert_eq!(at("/root/east"), Path::new("/root/east"));
        assert_eq!(
            at("credential:../east"),
            Path::new("/etc/fipd/credential:../east"),
            "nothing beside the credentials is one"
        );
    }
}
