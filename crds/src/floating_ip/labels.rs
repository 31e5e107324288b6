//! Every name the rancher-fip family and fipd agree on: labels, annotations, finalizers, Secret keys, object names.
//!
//! These texts stand in users' clusters; none may ever change.

mod services;

pub use services::{
    ServiceSlot, Slot, add_service, next_service_id, remove_all_services, remove_service, services,
};

// --- on floating IPs ---

/// Label: the project id. Mandatory.
pub const PROJECT_NAME: &str = "rancher.k8s.binbash.org/project-name";
/// Label: the cluster id. Present while the address is assigned.
pub const CLUSTER_NAME: &str = "rancher.k8s.binbash.org/cluster-name";
/// Label, first generation: name of the one Service.
pub const SERVICE_NAME: &str = "rancher.k8s.binbash.org/service-name";
/// Label, first generation: namespace of the one Service.
pub const SERVICE_NAMESPACE: &str = "rancher.k8s.binbash.org/service-namespace";
/// Start of the labels `service-<n>-name` and `service-<n>-namespace` of the second generation.
pub const SERVICE_PREFIX: &str = "rancher.k8s.binbash.org/service-";
/// Label on a floating IP and annotation on a Service: the sharing group.
pub const FLOATINGIP_GROUP: &str = "rancher.k8s.binbash.org/floatingip-group";
/// Finalizer on floating IPs, and on the Services that have one.
pub const FLOATINGIP_CLEANUP: &str = "rancher.k8s.binbash.org/floatingip-cleanup";

// --- on pools and quotas ---

/// Annotation on a pool, `"true"`: the default pool of its bare-metal cluster.
pub const DEFAULT_NETWORK: &str = "rancher-fip-default-network";
/// Finalizer on quotas: the project's floating IPs go first.
pub const QUOTA_CLEANUP: &str = "rancher.k8s.binbash.org/floatingipprojectquota-cleanup";
/// Finalizer on quotas: the project's Secrets go first.
pub const SECRET_CLEANUP: &str = "rancher.k8s.binbash.org/clustermanager-secret-cleanup";

// --- read from Rancher ---

/// Label on a management cluster; [`ENABLED`] switches floating IPs on.
pub const RANCHER_FIP: &str = "rancher-fip";
/// The one value of [`RANCHER_FIP`] that counts.
pub const ENABLED: &str = "enabled";
/// The value of [`RANCHER_FIP`] that switches them off.
pub const DISABLED: &str = "disabled";
/// Label on a management cluster: `metallb`; anything else means PureLB.
pub const LOAD_BALANCER_TYPE: &str = "rancher-fip-lbtype";
/// Label on a management cluster: who made it; [`HARVESTER`] clusters are served through their guests.
pub const PROVIDER: &str = "provider.cattle.io";
/// Value of [`PROVIDER`].
pub const HARVESTER: &str = "harvester";
/// The management cluster that is Rancher itself; never served.
pub const LOCAL_CLUSTER: &str = "local";
/// Annotation `<cluster>:<project>` on a Harvester namespace; label with the project id on a downstream namespace.
pub const PROJECT_ID: &str = "field.cattle.io/projectId";
/// Key of a cloud credential Secret: the Harvester cluster's id.
pub const HARVESTER_CLUSTER_ID_KEY: &str = "harvestercredentialConfig-clusterId";
/// Namespace of provisioning clusters and of kubeconfig Secrets.
pub const FLEET_NAMESPACE: &str = "fleet-default";
/// End of a kubeconfig Secret's name, after the cluster's id or display name.
pub const KUBECONFIG_SUFFIX: &str = "-kubeconfig";
/// Key of a kubeconfig Secret.
pub const KUBECONFIG_KEY: &str = "value";
/// Kind a machine pool refers to for machines on Harvester.
pub const HARVESTER_CONFIG_KIND: &str = "HarvesterConfig";

// --- the family's own objects ---

/// Namespace of the family's programs, and the default one downstream.
pub const APP_NAMESPACE: &str = "rancher-fip-manager";
/// ConfigMap with the cluster manager's settings.
pub const CONFIG_NAME: &str = "rancher-fip-config";
/// Start of the per-project Secret's name, before the project id; the same on both sides.
pub const PROJECT_SECRET_PREFIX: &str = "rancher-fip-config-";
/// Key of the per-project Secret: the shared secret.
pub const SECRET_CLIENT_SECRET: &str = "clientSecret";
/// Key of the per-project Secret in Rancher: the shared secret before, which is accepted until [`PREVIOUS_SECRET_UNTIL`].
pub const SECRET_PREVIOUS: &str = "previousClientSecret";
/// Annotation on the per-project Secret in Rancher: RFC 3339 time until which [`SECRET_PREVIOUS`] is accepted.
pub const PREVIOUS_SECRET_UNTIL: &str = "fipd.io/previous-client-secret-until";
/// Key of the per-project Secret: the project id.
pub const SECRET_PROJECT: &str = "project";
/// Key of the per-project Secret downstream: where the API is, version prefix included.
pub const SECRET_API_URL: &str = "apiUrl";
/// Key of the per-project Secret downstream: the management cluster's id.
pub const SECRET_CLUSTER: &str = "cluster";
/// Key of the per-project Secret downstream: the computed pool name.
pub const SECRET_POOL: &str = "floatingIPPool";
/// Key of the per-project Secret downstream: [`PURELB`] or [`METALLB`].
pub const SECRET_LOAD_BALANCER_TYPE: &str = "loadBalancerType";
/// Value of [`SECRET_LOAD_BALANCER_TYPE`], and name of the chart.
pub const PURELB: &str = "purelb";
/// Value of [`SECRET_LOAD_BALANCER_TYPE`] and [`LOAD_BALANCER_TYPE`], and name of the chart.
pub const METALLB: &str = "metallb";
/// Secret with the authority of the API's certificate, on both sides.
pub const CA_SECRET: &str = "cacerts";
/// Key of [`CA_SECRET`].
pub const CA_KEY: &str = "ca.crt";
/// ConfigMap downstream: pool name to interface of the nodes.
pub const INTERFACE_MAPPINGS: &str = "network-interface-mappings";
/// Name of the downstream controller's Deployment and chart; also the source of its Events.
pub const LB_CONTROLLER: &str = "rancher-fip-lb-controller";
/// Annotation on the pod template of [`LB_CONTROLLER`]: RFC 3339 time of the last restart by label change.
pub const RESTARTED_AT: &str = "rancher.k8s.binbash.org/lb-controller-restarted-at";
/// Secret with the key that signs the API's tokens.
pub const JWT_SECRET: &str = "jwt-private-key";
/// Key of [`JWT_SECRET`]: PEM, PKCS#1.
pub const JWT_KEY: &str = "key";
/// Secret with the validating webhook's certificate.
pub const WEBHOOK_TLS_SECRET: &str = "rancher-fip-manager-webhook-tls";
/// The original's ValidatingWebhookConfiguration.
pub const WEBHOOK_CONFIGURATION: &str = "rancher-fip-manager-validator";
/// The original API server: its Deployment and its Service.
pub const API_SERVICE: &str = "rancher-fip-api-server";
/// Leader-election Lease of the original manager.
pub const MANAGER_LEASE: &str = "rancher-fip-manager-lock";
/// Leader-election Lease of the original API server.
pub const API_SERVER_LEASE: &str = "rancher-fip-api-server-lock";
/// Leader-election Lease of the original cluster manager.
pub const CLUSTER_MANAGER_LEASE: &str = "rancher-fip-cluster-manager-lock";
/// Leader-election Lease of the original downstream controller.
pub const LB_CONTROLLER_LEASE: &str = "rancher-fip-lb-controller-lock";

// --- on downstream Services ---

/// Annotation by the user: the wanted address.
pub const STATIC_IP: &str = "rancher.k8s.binbash.org/static-ip";
/// Annotation by the user: the pool, instead of the Secret's.
pub const STATIC_NETWORK: &str = "rancher.k8s.binbash.org/static-network";
/// Annotation: the address the Service got.
pub const FLOATINGIP: &str = "rancher.k8s.binbash.org/floatingip";
/// Label: the Service's own name, for MetalLB's selectors.
pub const SERVICE: &str = "rancher.k8s.binbash.org/service";
/// Label: the Service's own namespace, for MetalLB's selectors.
pub const SERVICE_NAMESPACE_SELECTOR: &str = "rancher.k8s.binbash.org/servicenamespace";
/// Label: the sharing group, for MetalLB's selectors.
pub const SERVICE_GROUP: &str = "rancher.k8s.binbash.org/servicegroup";
/// Annotation: the PureLB service group to use.
pub const PURELB_SERVICE_GROUP: &str = "purelb.io/service-group";
/// Value of `aggregation` in PureLB pools.
pub const PURELB_AGGREGATION: &str = "default";
/// How older releases begin the names of pool objects.
pub const LEGACY_PREFIX: &str = "rancher-fip-";

// --- fipd's own ---

/// `spec.loadBalancerClass` of Services meant for fipd.
pub const LOAD_BALANCER_CLASS: &str = "fipd.io/floating-ip";
/// Annotation on pools: the network (routing domain) the addresses belong to.
pub const NETWORK: &str = "fipd.io/network";
/// Annotation on pools: the pool of the other family, for dual stack.
pub const PARTNER_POOL: &str = "fipd.io/partner-pool";
/// Annotation on pools: an address that no cluster has any more goes back to the pool after this time, such as `72h`.
pub const RETURN_AFTER: &str = "fipd.io/return-after";
/// Annotation on FloatingIPs and FloatingIPPools: with the value `true` the object may be deleted while its addresses are in
/// use. The leases stay with who uses them.
pub const FORCE_DELETE: &str = "fipd.io/force-delete";
/// Annotation: who holds the address, in fipd's words.
pub const HOLDER: &str = "fipd.io/holder";
/// Annotation on FloatingIPs: the Services that were taken off it last, `CLUSTER/NAMESPACE/NAME` with spaces between, newest
/// first. A release of one of these that is asked for again has happened.
pub const RELEASED_BY: &str = "fipd.io/released-by";
/// Finalizer on claims: the address is free before the object goes.
pub const CLAIM_CLEANUP: &str = "fipd.io/address";
/// Finalizer on pools that are the source of one of fipd: nobody holds an address of it before the object goes.
pub const POOL_CLEANUP: &str = "fipd.io/pool";
/// Field manager of everything fipd applies.
pub const FIELD_MANAGER: &str = "fipd";
/// Annotation on a management cluster: what installs its charts, `helm` or `helm-chart`.
pub const CHART_ENGINE: &str = "fipd.io/chart-engine";
/// Label on a helm release that fipd did not install but took over.
pub const ADOPTED: &str = "fipd.io/adopted";
/// Label on everything fipd creates, with the value [`FIELD_MANAGER`].
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Annotation on the ConfigMap `kubevip` of a guest: the keys that fipd wrote, separated by commas.
pub const KUBE_VIP_KEYS: &str = "fipd.io/kube-fip-keys";

/// The name of a project's Secret, on both sides.
#[must_use]
pub fn project_secret(project: &str) -> String {
    format!("{PROJECT_SECRET_PREFIX}{project}")
}

/// The name of the pool object of an address downstream: `ip4-192.0.2.7`, `ip6-2001.db8.0.0.0.0.0.7`.
///
/// IPv6 is written in full: the `::` of a shortened address would give two dots in a row, which no object's name may have.
#[must_use]
pub fn pool_object(address: std::net::IpAddr) -> String {
    match address {
        std::net::IpAddr::V4(v4) => format!("ip4-{v4}"),
        std::net::IpAddr::V6(v6) => {
            let groups = v6.segments().map(|group| format!("{group:x}"));
            format!("ip6-{}", groups.join("."))
        }
    }
}

/// The name of the pool object of a Service downstream, as older releases made it.
#[must_use]
pub fn legacy_pool_object(namespace: &str, service: &str) -> String {
    format!("{LEGACY_PREFIX}{namespace}-{service}")
}

#[cfg(test)]
mod tests;
