//! Flags and files that make no sense.

use fipd_tests::testbed::{Fipd, FipdOptions};

#[tokio::test]
async fn bad_flags_and_files_are_refused_in_one_line() {
    let fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
    fipd.write_file("text.yaml", "just text").unwrap();
    fipd.write_file("broken.yaml", "a: [").unwrap();
    fipd.write_file("empty.yaml", "---\n").unwrap();
    let unnamed = "apiVersion: v1\nkind: Namespace\nmetadata: {name: ../x}\n";
    fipd.write_file("unnamed.yaml", unnamed).unwrap();
    fipd.write_file("kubeconfig", "current-context: a\ncontexts: []\n")
        .unwrap();
    let file = |name: &str| fipd.directory().join(name).display().to_string();
    for (line, says) in [
        ("migrate".to_owned(), "--yes"),
        ("clean".to_owned(), "--yes"),
        ("restore".to_owned(), "--yes"),
        ("migrate --yes --workload pod".to_owned(), "--workload"),
        ("migrate --yes --interval soon".to_owned(), "--interval"),
        ("migrate --yes --list-limit 501".to_owned(), "--list-limit"),
        (
            "migrate --yes --kubeconfig /nowhere".to_owned(),
            "--kubeconfig",
        ),
        (
            format!("clean --yes --kubeconfig {}", file("kubeconfig")),
            "--kubeconfig",
        ),
        ("restore --yes -f /nowhere".to_owned(), "--file"),
        (
            format!("restore --yes -f {}", fipd.directory().display()),
            "not a regular file",
        ),
        (
            format!("restore --yes -f {}", file("text.yaml")),
            "document 1",
        ),
        (format!("restore --yes -f {}", file("broken.yaml")), "line"),
        (
            format!("restore --yes -f {}", file("empty.yaml")),
            "no objects",
        ),
        (
            format!("restore --yes -f {}", file("unnamed.yaml")),
            "metadata.name",
        ),
        ("sideways".to_owned(), "sideways"),
    ] {
        let words = ["migrate", "flat-network"].into_iter();
        let ended = fipd
            .run(words.chain(line.split_whitespace()))
            .await
            .unwrap();
        assert_eq!(ended.code, 2, "{line}: {ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{line}: {ended:?}");
        assert!(ended.stderr.contains(says), "{line}: {ended:?}");
        assert_eq!(ended.stdout, "", "{line}");
    }
}

#[tokio::test]
async fn the_version_is_that_of_fipd() {
    let fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
    let version = fipd.run(["migrate", "flat-network", "version"]).await;
    let version = version.unwrap().success().unwrap();
    let own = fipd.run(["--version"]).await.unwrap().success().unwrap();
    assert_eq!(version, own);
}
