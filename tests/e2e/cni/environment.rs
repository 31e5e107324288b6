//! What the runtime says to the plugin: rows 68 to 77.

use super::*;

/// All that `ADD` needs, and more that makes no difference.
fn add(bed: &CniBed) -> CniCall {
    let call = bed.call_of("ADD", "c1", &bed.conf(V4));
    call.with("CNI_ARGS", "IgnoreUnknown=1;SOME_KEY=some=value")
}

/// Nothing is leased, and the container has no interface.
async fn untouched(bed: &CniBed) -> Result<()> {
    agree(bed, &Live::new(), &["c1".to_owned()]).await
}

#[test]
fn rows_68_69_and_76_a_wrong_environment_has_code_4_and_is_named() {
    on_host(async |bed| {
        bed.host.make_container("c1").await?;
        let bare = CniCall::new("ADD", &bed.conf(V4)).without("CNI_PATH");
        let text = bed.host.call(&bare).await?.failed_with(4)?;
        for name in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"] {
            ensure!(text.contains(name), "{name} is missing in {text}");
        }
        let cases = [
            ("CNI_CONTAINERID", "a b"),
            ("CNI_CONTAINERID", "a/b"),
            ("CNI_CONTAINERID", "-a"),
            ("CNI_IFNAME", "sixteen-letters-"),
            ("CNI_IFNAME", "a/b"),
            ("CNI_IFNAME", "a:b"),
            ("CNI_IFNAME", ".."),
            ("CNI_COMMAND", "add"),
            ("CNI_COMMAND", "PUT"),
        ];
        for (name, value) in cases {
            let called = bed.host.call(&add(bed).with(name, value)).await?;
            let text = called
                .failed_with(4)
                .with_context(|| format!("{name}={value:?}"))?;
            ensure!(text.contains(name), "{name} is missing in {text}");
        }
        untouched(bed).await
    });
}

#[test]
fn rows_71_72_and_74_a_wrong_configuration_has_its_code() {
    on_host(async |bed| {
        bed.host.make_container("c1").await?;
        let field = |name: &str, value: Value| {
            let mut conf = bed.conf(V4);
            conf[name] = value;
            conf
        };
        let without = |name: &str| {
            let mut conf = bed.conf(V4);
            conf.as_object_mut().unwrap().remove(name);
            conf
        };
        let cases = [
            ("ADD", without("cniVersion"), 1),
            ("ADD", field("cniVersion", json!("0.1.0")), 1),
            ("ADD", field("cniVersion", json!("9.9.9")), 1),
            ("ADD", without("name"), 7),
            ("ADD", field("name", json!("a b")), 7),
            ("ADD", field("vlan", json!(4095)), 7),
            ("ADD", without("master"), 7),
            ("GC", field("cniVersion", json!("1.0.0")), 1),
            ("STATUS", field("cniVersion", json!("1.0.0")), 1),
            ("CHECK", field("cniVersion", json!("0.3.1")), 1),
        ];
        for (verb, conf, code) in cases {
            let called = bed.call(verb, "c1", &conf).await?;
            let failed = called.failed_with(code);
            failed.with_context(|| format!("{verb} {conf}"))?;
        }
        for text in ["", "{", "[]", "null"] {
            let called = bed.host.call(&add(bed).stdin(text)).await?;
            called.failed_with(6).with_context(|| format!("{text:?}"))?;
        }
        untouched(bed).await
    });
}

#[test]
fn a_pool_or_a_master_that_is_not_there_is_named() {
    on_host(async |bed| {
        bed.host.make_container("c1").await?;
        let conf = bed.conf(&["lan5"]);
        let (_, text) = bed.call("ADD", "c1", &conf).await?.error()?;
        ensure!(text.contains("lan5"), "{text}");
        let mut conf = bed.conf(V4);
        conf["master"] = json!("eth7");
        let (_, text) = bed.call("ADD", "c1", &conf).await?.error()?;
        ensure!(text.contains("eth7"), "{text}");
        untouched(bed).await
    });
}

#[test]
fn row_75_version_needs_nothing_else() {
    on_host(async |bed| {
        let bare = CniCall::new("VERSION", &json!({ "cniVersion": "1.0.0" }));
        for call in [bare.clone().without("CNI_PATH"), bare.clone().stdin("")] {
            let result = bed.host.call(&call).await?.result()?;
            let versions = &result["supportedVersions"];
            let versions = versions.as_array().context("supportedVersions")?;
            for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
                ensure!(versions.contains(&json!(version)), "{result}");
            }
        }
        Ok(())
    });
}

#[test]
fn row_77_the_hosts_own_namespace_is_refused_unless_it_is_meant() {
    on_host(async |bed| {
        let own = add(bed)
            .with("CNI_NETNS", "/proc/self/ns/net")
            .with("CNI_IFNAME", "flat0");
        bed.host.call(&own).await?.failed_with(8)?;
        ensure!(bed.allocated().await?.is_empty());
        let meant = own.with("CNI_NETNS_OVERRIDE", "TRUE");
        bed.host.call(&meant).await?.result()?;
        let shown = bed.host.run("ip link show dev flat0").await?;
        ensure!(shown.contains(&format!("flat0@{MASTER}")), "{shown}");
        let del = meant.with("CNI_COMMAND", "DEL");
        bed.host.call(&del).await?.result()?;
        wait_agree(bed, &Live::new(), &[]).await
    });
}
