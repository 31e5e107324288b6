//! Where runtimes keep the namespaces of containers, and whether one is gone.

use std::path::{Path, PathBuf};

/// Of CRI runtimes and of Docker.
const FOLDERS: [&str; 2] = ["/run/netns", "/run/docker/netns"];

/// Whether a namespace is gone for certain: this process sees its folder, and the folder lacks it. A path in `/proc` may merely be
/// hidden.
pub fn is_gone(netns: &Path) -> bool {
    let lacks = |path: &Path| matches!(path.try_exists(), Ok(false));
    is_seen(netns) && lacks(netns) && kept_at(netns).is_some_and(|path| lacks(&path))
}

/// Whether this process sees the folder where the runtime keeps it.
pub fn is_seen(netns: &Path) -> bool {
    let kept = kept_at(netns);
    let folder = kept.as_deref().and_then(Path::parent);
    folder.is_some_and(|folder| matches!(folder.try_exists(), Ok(true)))
}

/// Where a namespace is that a runtime keeps. The root of a pod lacks the link from `/var/run`.
fn kept_at(netns: &Path) -> Option<PathBuf> {
    let folder = netns.parent()?.to_str()?;
    let folder = folder.strip_prefix("/var").unwrap_or(folder);
    let known = FOLDERS.contains(&folder);
    Some(Path::new(folder).join(netns.file_name()?)).filter(|_| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_looked_for_where_pods_see_it_too() {
        for (netns, expected) in [
            ("/run/netns/cni-1", "/run/netns/cni-1"),
            ("/var/run/netns/cni-1", "/run/netns/cni-1"),
            ("/run/docker/netns/1a2b", "/run/docker/netns/1a2b"),
            ("/var/run/docker/netns/1a2b", "/run/docker/netns/1a2b"),
        ] {
            let kept = kept_at(Path::new(netns));
            assert_eq!(kept.as_deref(), Some(Path::new(expected)));
        }
        for other in [
            "/proc/7/ns/net",
            "/run/netns",
            "/run/netns/a/b",
            "/variety/run/netns/a",
            "",
        ] {
            assert_eq!(kept_at(Path::new(other)), None, "{other}");
        }
    }
}
