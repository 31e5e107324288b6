//! What settings of uploaded clusters may not say: they are self-contained, as their kubeconfigs are.

use super::ClusterSettings;

/// References that are not to fipd's host.
const REMOTE: [&str; 3] = ["https://", "http://", "oci://"];

/// # Errors
/// The first setting that names a file of fipd's host.
pub fn check(settings: &ClusterSettings) -> Result<(), String> {
    for (system, settings) in settings.all() {
        let file = settings.webhook().and_then(|one| one.ca_file.as_ref());
        if let Some(file) = file {
            let table = format!("{system}.webhook");
            return Err(refused(&table, "ca-file", &file.display().to_string()));
        }
        for (table, key, value) in settings.references() {
            let value = value.trim();
            let remote = REMOTE.iter().any(|scheme| value.starts_with(scheme));
            if !remote && !value.is_empty() {
                let table = match table {
                    "" => system.to_owned(),
                    table => format!("{system}.{table}"),
                };
                return Err(refused(&table, key, value));
            }
        }
    }
    Ok(())
}

fn refused(table: &str, key: &str, value: &str) -> String {
    let allowed = match key {
        "ca-file" => "leave it out",
        _ => "allowed are https://, http:// and oci://",
    };
    format!(
        "settings: [{table}] {key} = {value:?} is a file of fipd's host, which uploaded settings may not name; {allowed}, or name \
         the cluster in the configuration file"
    )
}

#[cfg(test)]
mod tests {
    use crate::config::ClusterConfig;

    fn uploaded(systems: &str, settings: &str) -> Result<ClusterConfig, String> {
        ClusterConfig::uploaded(
            *crate::systems::SYSTEMS,
            "east",
            &[systems.to_owned()],
            settings,
            &"k".into(),
        )
    }

    #[test]
    fn uploaded_settings_name_no_file_of_the_host() {
        let chart = |name: &str, at: &str| {
            format!("[rancher-fip.cluster-manager.{name}]\nchart-ref = \"{at}\"\n")
        };
        let webhook = |system: &str| format!("[{system}.webhook]\nca-file = \"/etc/shadow\"\n");
        for (system, settings, words) in [
            (
                "rancher-fip",
                webhook("rancher-fip"),
                "[rancher-fip.webhook] ca-file = \"/etc/shadow\"",
            ),
            (
                "ip-rule",
                webhook("ip-rule"),
                "[ip-rule.webhook] ca-file = \"/etc/shadow\"",
            ),
            (
                "rancher-fip",
                chart("lb-controller", "/srv/chart"),
                "[rancher-fip.cluster-manager.lb-controller] chart-ref = \"/srv/chart\"",
            ),
            (
                "rancher-fip",
                chart("purelb", "charts/purelb"),
                "[rancher-fip.cluster-manager.purelb] chart-ref",
            ),
            (
                "rancher-fip",
                chart("metallb", "file:///srv/chart"),
                "[rancher-fip.cluster-manager.metallb] chart-ref",
            ),
            (
                "kube-fip",
                "[kube-fip]\nkubevip-chart-ref = \"/srv/chart\"\n".to_owned(),
                "[kube-fip] kubevip-chart-ref = \"/srv/chart\"",
            ),
        ] {
            let error = uploaded(system, &settings).unwrap_err();
            assert!(
                error.contains(words) && error.contains("the configuration file"),
                "{settings}: {error}"
            );
        }
        for at in ["https://charts.example.com", "oci://r.example.com/p/purelb"] {
            uploaded("rancher-fip", &chart("purelb", at)).unwrap();
        }
        uploaded("ip-rule", "[ip-rule.webhook]\ntimeout = \"2s\"\n").unwrap();
    }
}
