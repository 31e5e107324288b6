use std::path::Path;

use super::*;

/// `FIPD_UPDATE_CRDS=1 cargo test -p fipd-crds` writes the files anew.
#[test]
fn files_are_current() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("yaml");
    let update = std::env::var_os("FIPD_UPDATE_CRDS").is_some();
    let crds = all();
    assert_eq!(crds.len(), MANIFESTS.len());
    for (crd, (name, _)) in crds.iter().zip(MANIFESTS) {
        assert_eq!(file_name(crd), name);
        let wanted = yaml(crd).unwrap();
        let path = directory.join(name);
        if update {
            std::fs::write(&path, &wanted).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap();
        assert!(
            found == wanted,
            "{name} is stale; run FIPD_UPDATE_CRDS=1 cargo test -p fipd-crds"
        );
    }
}
