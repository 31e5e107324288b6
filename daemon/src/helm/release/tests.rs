use super::*;

type Change = fn(&mut ChartRelease);

fn keys() -> ChartRelease {
    let values = "lbnodeagent:\n  sendgarp: true\n";
    let reference = "https://purelb.github.io/purelb/charts";
    testing::written("purelb", reference, "0.14.1", "lb-system", values)
}

fn error(change: impl FnOnce(&mut ChartRelease)) -> String {
    let mut keys = keys();
    change(&mut keys);
    keys.parse().unwrap_err().to_string()
}

#[test]
fn the_keys_of_the_originals_say_a_release() {
    let release = keys().parse().unwrap();
    assert_eq!(release.name, "purelb");
    assert_eq!(release.chart.version.as_str(), "0.14.1");
    assert_eq!(release.chart.own_name(), Some("purelb"));
    let oci = ChartRelease {
        chart: "lb-controller".into(),
        reference: "oci://registry.example.com:5000/project/lb-controller".into(),
        ..keys()
    };
    let release = oci.parse().unwrap();
    assert_eq!(release.chart.own_name(), Some("lb-controller"));
    let local = ChartRelease {
        reference: "/srv/charts/purelb".into(),
        ..keys()
    };
    let release = local.parse().unwrap();
    assert_eq!(release.chart.own_name(), None);
}

#[test]
fn a_release_need_not_be_called_as_its_chart() {
    let named = |name: &str| ChartRelease {
        name: name.into(),
        ..keys()
    };
    let release = named("purelb-two").parse().unwrap();
    assert_eq!(
        (&*release.name, &*release.chart.name),
        ("purelb-two", "purelb")
    );
    let error = named("Two").parse().unwrap_err().to_string();
    assert!(error.contains("\"Two\" is no name"), "{error}");
}

#[test]
fn no_version_is_the_newest_only_where_the_system_says_so() {
    let unversioned = |unversioned, version: &str| {
        let keys = ChartRelease {
            version: version.into(),
            unversioned,
            ..keys()
        };
        keys.parse()
            .map(|release| release.chart.version.to_string())
    };
    assert!(unversioned(Unversioned::Refused, " ").is_err());
    for allowed in [Unversioned::Newest, Unversioned::Followed] {
        assert_eq!(unversioned(allowed, " "), Ok(String::new()));
        assert_eq!(unversioned(allowed, "v1.2.3"), Ok("1.2.3".to_owned()));
        assert!(unversioned(allowed, "1.2").is_err(), "a range");
    }
}

#[test]
fn every_error_names_its_key() {
    let cases: [(&str, Change); 12] = [
        ("PureLBControllerChartName = \"\" is missing", |k| {
            k.chart = "".into()
        }),
        (
            "PureLBControllerChartName = \"https://x/y\" is no name",
            |k| k.chart = "https://x/y".into(),
        ),
        (
            "PureLBControllerNamespace = \"Kube_System\" is no name",
            |k| k.namespace = "Kube_System".into(),
        ),
        ("PureLBControllerChartRef = \"\" is missing", |k| {
            k.reference = "".into()
        }),
        (
            "PureLBControllerChartRef = \"charts/purelb\" is none of these",
            |k| k.reference = "charts/purelb".into(),
        ),
        (
            "is a file; the URL of the repository that has the chart \"purelb\"",
            |k| k.reference = "https://x/purelb-0.14.1.tgz".into(),
        ),
        ("has a user name in it", |k| {
            k.reference = "https://me:secret@x/charts".into()
        }),
        ("names no chart in the registry", |k| {
            k.reference = "oci://registry".into()
        }),
        ("names a tag or digest", |k| {
            k.reference = "oci://registry/purelb:0.14.1".into()
        }),
        ("PureLBControllerChartVersion = \"\" is missing", |k| {
            k.version = " ".into()
        }),
        (
            "PureLBControllerChartVersion = \"0.14\" is no exact version",
            |k| k.version = "0.14".into(),
        ),
        ("PureLBControllerValues = \"...\" ", |k| {
            k.values = "a: [1".into()
        }),
    ];
    for (wanted, change) in cases {
        let said = error(change);
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
}

#[test]
fn exact_versions_only() {
    for good in ["0.4.1", "v0.4.1", "1.2.3-rc.1", "1.2.3+build.5"] {
        assert!(ChartVersion::parse(good).is_ok(), "{good}");
    }
    for bad in [
        "",
        "1",
        "1.2",
        "1.2.x",
        "^1.2.3",
        ">1.0.0",
        "1.2.3 || 2.0.0",
        "latest",
        "1..3",
    ] {
        assert!(ChartVersion::parse(bad).is_err(), "{bad}");
    }
    assert_eq!(ChartVersion::parse("v0.4.1"), ChartVersion::parse("0.4.1"));
}
