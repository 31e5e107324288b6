//! From the first installation to the purge.

use fipd_tests::testbed::{Kind, NEWS, Packages};
use redb::{Database, TableDefinition};

use super::host::{Host, KUBECONFIG};

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
pub const STORE: &str = "/var/lib/fipd/fipd.redb";
pub const UNITS: &str = "fipd.socket fipd-cni.socket fipd.service";
pub const CONFIG: &str = "/etc/fipd/fipd.toml";
/// What an admin writes.
const CHANGE: &str = "keep = 21";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deb_is_installed_upgraded_downgraded_removed_and_purged() {
    let host = Host::bare(Kind::Deb).await;
    let leases = first_days(&host, "dpkg-dist").await;

    a_removal_that_fails_is_undone(&host).await;
    the_plugin_is_copied_and_taken_back(&host).await;
    the_warning_looks_where_the_data_is(&host).await;
    host.sh("fipd cni install").await;
    let said = host.remove().await;
    assert!(!said.contains("warning"), "no cluster is attached: {said}");
    assert!(said.contains("/opt/cni/bin/fipd-cni stays"), "{said}");
    gone(&host).await;
    assert!(host.sh(&format!("cat {CONFIG}")).await.contains(CHANGE));
    host.sh(&format!("test -s {STORE}")).await;

    host.install(Packages::NEWER).await;
    host.active().await;
    assert_eq!(host.sh("fipd lease list").await, leases);
    assert!(host.sh(&format!("cat {CONFIG}")).await.contains(CHANGE));

    host.sh("fipd cni uninstall").await;
    attach(&host).await;
    let said = host.sh("dpkg --purge fipd 2>&1").await;
    assert!(
        said.contains("still attached: alpha") && said.contains("fipd clusters detach NAME"),
        "{said}"
    );
    assert!(
        said.contains("purged with clusters attached: alpha"),
        "{said}"
    );
    gone(&host).await;
    host.sh("! test -e /var/lib/fipd && ! test -e /var/lib/fipd-cni && ! test -e /etc/fipd && ! test -e /run/fipd")
        .await;
    host.sh("getent passwd fipd").await;
    let left = host
        .sh("find / -xdev -name '*fipd*' -not -path '/proc/*' -not -path '/shared/*'")
        .await;
    let kept = ["/var/lib/systemd/", "/var/log/journal/", "/sys/", "/tmp/"];
    let left = left
        .lines()
        .filter(|path| !kept.iter().any(|kept| path.starts_with(kept)));
    assert_eq!(left.collect::<Vec<_>>(), Vec::<&str>::new());
    a_purge_leaves_mount_points_empty(&host).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_rpm_is_installed_upgraded_downgraded_and_removed() {
    let host = Host::bare(Kind::Rpm).await;
    let leases = first_days(&host, "rpmnew").await;

    attach(&host).await;
    let said = host.remove().await;
    assert!(said.contains("still attached: alpha"), "{said}");
    gone(&host).await;
    // rpm has no purge: what an admin changed is kept under another name, and the data is never its own.
    assert!(
        host.sh(&format!("cat {CONFIG}.rpmsave"))
            .await
            .contains(CHANGE)
    );
    host.sh(&format!("test -s {STORE}")).await;

    host.sh(&format!("mv {CONFIG}.rpmsave {CONFIG}")).await;
    beside_another(&host).await;
    host.active().await;
    assert_eq!(host.sh("fipd lease list").await, leases);
    assert!(host.sh(&format!("cat {CONFIG}")).await.contains(CHANGE));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_boot_starts_it() {
    let host = Host::booted().await;
    host.active().await;
    let state = host.sh(&format!("systemctl is-active {UNITS}")).await;
    assert_eq!(state, "active\nactive\nactive");
    owners(&host).await;
    let journal = host.sh("journalctl --no-pager").await;
    assert!(!journal.contains("ordering cycle"), "{journal}");
}

/// A disk of its own cannot be taken away, only what is on it.
async fn a_purge_leaves_mount_points_empty(host: &Host) {
    let folders = "/var/lib/fipd /etc/fipd";
    host.sh(&format!(
        "for folder in {folders}; do mkdir $folder && mount -t tmpfs -o mode=0755 tmpfs $folder || exit 1; done"
    ))
    .await;
    host.install(Packages::NEWER).await;
    host.active().await;
    host.sh(&format!("test -s {STORE} && test -s {CONFIG}"))
        .await;
    host.sh("dpkg --purge fipd 2>&1").await;
    gone(host).await;
    assert_eq!(host.sh(&format!("find {folders} -mindepth 1")).await, "");
    host.sh(&format!("umount {folders} && rmdir {folders}"))
        .await;
    host.sh("! test -e /run/fipd").await;
    let status = host
        .said("dpkg-query --show --showformat='${Status}' fipd")
        .await;
    assert!(!status.contains("config-files"), "{status}");
}

/// dpkg has the package's scripts put back what they had stopped.
async fn a_removal_that_fails_is_undone(host: &Host) {
    let script = "/var/lib/dpkg/info/fipd.prerm";
    host.sh(&format!("cp -p {script} /tmp && echo exit 1 >>{script}"))
        .await;
    let said = host.said("dpkg --remove fipd && echo removed").await;
    assert!(!said.ends_with("removed"), "{said}");
    let status = host
        .sh("dpkg-query --show --showformat='${Status}' fipd")
        .await;
    assert!(status.ends_with("ok installed"), "{status}: {said}");
    host.sh(&format!("mv /tmp/fipd.prerm {script}")).await;
    host.active().await;
}

/// Beside a plugin of another program, for the runtime of a host without K3s.
async fn the_plugin_is_copied_and_taken_back(host: &Host) {
    let other = "/opt/cni/bin/rancher-flat-network-cni";
    host.sh(&format!(
        "mkdir -p /opt/cni/bin && printf foreign >{other} && fipd cni install --network pods"
    ))
    .await;
    let status = host.sh("fipd cni status").await;
    assert_eq!(status.matches("as packaged").count(), 2, "{status}");
    assert!(status.contains("CNI 0.3.0 to 1.1.0"), "{status}");
    host.sh("cmp /usr/lib/cni/fipd-cni /opt/cni/bin/fipd-cni && test -s /etc/cni/net.d/10-pods.conflist")
        .await;
    let said = host
        .said("runuser --user carol -- fipd cni uninstall")
        .await;
    assert!(said.contains("only root"), "{said}");
    host.sh("fipd cni uninstall").await;
    host.sh(&format!(
        "test $(cat {other}) = foreign && rm {other} && rmdir /opt/cni/bin && ! test -e /etc/cni/net.d/10-pods.conflist"
    ))
    .await;
}

/// Which clusters are attached, where the configuration names another place.
async fn the_warning_looks_where_the_data_is(host: &Host) {
    let place = |from: &str, to: &str| {
        format!("sed -i 's#^data-dir = \"{from}\"#data-dir = \"{to}\"#' {CONFIG}")
    };
    host.sh("mkdir /srv/data && echo beta >/srv/data/attached-clusters")
        .await;
    host.sh(&place("/var/lib/fipd", "/srv/data")).await;
    let said = host.said("/usr/lib/fipd/attached").await;
    assert!(said.contains("still attached: beta"), "{said}");
    host.sh(&place("/srv/data", "/var/lib/fipd")).await;
}

/// Installed anew while another one has the store: the service is not started until that has gone and an admin says so.
async fn beside_another(host: &Host) {
    host.sh(&format!(
        "systemd-run --quiet --unit=other --collect flock {STORE} sleep infinity"
    ))
    .await;
    let held = format!("! flock --nonblock {STORE} true");
    host.until("the store is held", &held, |_| true).await;
    let said = host.install(Packages::NEWER).await;
    assert!(said.contains("is not started beside it"), "{said}");
    inactive(host).await;
    host.sh(&format!(
        "systemctl stop other.service && systemctl enable --now {UNITS}"
    ))
    .await;
}

/// Installed, used, configured, upgraded, and taken back to the version before: what the leases are afterwards.
/// `beside` is the end of a new configuration's name where the old one has changed.
async fn first_days(host: &Host, beside: &str) -> String {
    host.install(Packages::OLDER).await;
    host.active().await;
    assert_eq!(
        host.sh(&format!("systemctl is-enabled {UNITS}")).await,
        "enabled\nenabled\nenabled"
    );
    let cni = host
        .sh("CNI_COMMAND=VERSION /usr/lib*/cni/fipd-cni </dev/null")
        .await;
    assert!(cni.contains("supportedVersions"), "{cni}");
    owners(host).await;
    who_may_ask(host).await;

    host.sh("fipd pool create lab --cidr 10.20.0.0/28").await;
    host.sh("fipd lease allocate --pool lab --owner fipd/vm/lab/web")
        .await;
    let leases = host.sh("fipd lease list").await;
    assert!(leases.contains("10.20.0.1"), "{leases}");
    host.sh(&format!(
        "sed -i 's/^keep = 7$/{CHANGE}/' {CONFIG} && grep -q '^{CHANGE}$' {CONFIG}"
    ))
    .await;

    let before = host.property("MainPID").await;
    host.install(Packages::NEWER).await;
    host.active().await;
    assert_ne!(host.property("MainPID").await, before, "restarted");
    assert_eq!(host.sh("fipd lease list").await, leases);
    let kept = host.sh(&format!("cat {CONFIG}")).await;
    assert!(kept.contains(CHANGE) && !kept.contains(NEWS), "{kept}");
    let new = host.sh(&format!("cat {CONFIG}.{beside}")).await;
    assert!(!new.contains(CHANGE) && new.contains(NEWS), "{new}");

    downgrade(host).await;
    assert_eq!(host.sh("fipd lease list").await, leases);
    leases
}

/// A store that a newer fipd has written is left alone, with one line that says why.
async fn downgrade(host: &Host) {
    host.sh(&format!("systemctl stop {UNITS}")).await;
    let known = write_schema(host, None);
    let newer = known + 1;
    write_schema(host, Some(newer));
    host.install(Packages::OLDER).await;
    // What an admin has stopped stays so.
    inactive(host).await;
    host.said("systemctl start fipd.service").await;
    let state = host
        .until(
            "the service has failed",
            "systemctl show --property=ActiveState,SubState,NRestarts fipd.service",
            |said| said.contains("ActiveState=failed"),
        )
        .await;
    assert!(
        state.contains("NRestarts=0"),
        "another start changes nothing: {state}"
    );
    let line = format!(
        "has schema version {newer}, this fipd knows up to {known}; install the fipd that wrote it"
    );
    for look in [
        "journalctl --no-pager --unit=fipd.service",
        "systemctl status --no-pager --full fipd.service",
    ] {
        // The journal may be behind those who write to it, and the status of what has failed is no success.
        let look = format!("{look} || true");
        let said = host
            .until("the line is told", &look, |said| said.contains(&line))
            .await;
        assert_eq!(said.matches(&line).count(), 1, "{look}: {said}");
    }
    // Who asks is not answered, and has it started, but not for ever.
    host.sh("systemctl start fipd.socket").await;
    host.said("timeout 5 fipd pool list").await;
    host.until(
        "systemd gives up",
        "systemctl show --property=ActiveState --value fipd.socket",
        |said| said == "failed",
    )
    .await;
    assert_eq!(write_schema(host, None), newer, "left as it was");
    write_schema(host, Some(known));
    host.sh(&format!(
        "systemctl reset-failed {UNITS}; systemctl start {UNITS}"
    ))
    .await;
    host.active().await;
}

/// Writes the version of the store's schema, if one is given; the version before.
fn write_schema(host: &Host, version: Option<u32>) -> u32 {
    let database = Database::create(host.path(STORE)).unwrap();
    let transaction = database.begin_write().unwrap();
    let mut meta = transaction.open_table(META).unwrap();
    let row = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    let found = row(redb::ReadableTable::get(&meta, "schema")
        .unwrap()
        .unwrap()
        .value());
    if let Some(version) = version {
        meta.insert("schema", version.to_be_bytes().as_slice())
            .unwrap();
    }
    drop(meta);
    transaction.commit().unwrap();
    found
}

pub async fn owners(host: &Host) {
    let seen = host
        .sh("stat --format='%A %U %G %n' /etc/fipd /etc/fipd/fipd.toml /var/lib/fipd /var/lib/fipd/fipd.redb /var/lib/fipd-cni /var/lib/fipd-cni/spool /run/fipd /run/fipd/fipd.sock /run/fipd/cni.sock")
        .await;
    let wanted = "\
drwxr-xr-x root root /etc/fipd
-rw-r--r-- root root /etc/fipd/fipd.toml
drwx------ fipd fipd /var/lib/fipd
-rw------- fipd fipd /var/lib/fipd/fipd.redb
drwxr-xr-x root root /var/lib/fipd-cni
drwxr-x--- root fipd /var/lib/fipd-cni/spool
drwxr-xr-x root root /run/fipd
srw-rw---- root fipd /run/fipd/fipd.sock
srw------- root root /run/fipd/cni.sock";
    assert_eq!(seen, wanted);
}

async fn who_may_ask(host: &Host) {
    host.sh("fipd pool list").await;
    host.sh("useradd carol && usermod --append --groups fipd carol")
        .await;
    host.sh("runuser --user carol -- fipd pool list").await;
    let said = host.said("runuser --user nobody -- fipd pool list").await;
    assert!(said.contains("ermission denied"), "{said}");
}

/// A cluster that is named in the configuration; that nobody answers there does not matter.
async fn attach(host: &Host) {
    std::fs::write(host.path("/etc/fipd/alpha.kubeconfig"), KUBECONFIG).unwrap();
    host.sh("chown root:fipd /etc/fipd/alpha.kubeconfig && chmod 0640 /etc/fipd/alpha.kubeconfig")
        .await;
    let section = "\n[[cluster]]\nname = \"alpha\"\nkubeconfig = \"/etc/fipd/alpha.kubeconfig\"\nsystems = [\"claims\"]\n";
    host.sh(&format!("printf '%s' '{section}' >>{CONFIG}"))
        .await;
    host.sh("systemctl reload fipd.service").await;
    // As fipd notes it once it was in the cluster; no API server is here.
    host.sh("echo alpha >/var/lib/fipd/attached-clusters").await;
}

/// No service, no program, no unit.
async fn gone(host: &Host) {
    inactive(host).await;
    host.sh(
        "! command -v fipd && ! test -e /usr/lib/systemd/system/fipd.service && ! pgrep -x fipd",
    )
    .await;
}

async fn inactive(host: &Host) {
    let state = host.said(&format!("systemctl is-active {UNITS}")).await;
    assert_eq!(state, "inactive\ninactive\ninactive");
}
