//! What the webhook is told of a cluster.

use std::sync::Arc;

use fipd_core::{ClusterId, Text};

use super::{
    admission::FlatFacts,
    names::pod_key,
    pod::{PodController, observe::PodView, plan::is_of},
    subnet::link_of,
};
use crate::{
    config::PoolFacts,
    controller::{kind::JOB, store::Key, webhook::OwnUser},
    validation::flat_network::{mac::MacAddress, subnet::FlatSubnet, workload::WorkloadRef},
};

/// A cluster that is known completely, and fipd's user there.
pub struct ClusterFacts(pub Arc<PodController>, pub OwnUser);

impl FlatFacts for ClusterFacts {
    fn id(&self) -> &ClusterId {
        &self.0.context.site.id
    }

    fn namespace(&self) -> &Text {
        &self.0.settings.namespace
    }

    fn lives(&self) -> bool {
        !self.0.context.site.cancel().is_cancelled()
    }

    fn is_fipd(&self, user: &str) -> bool {
        self.1.is(user)
    }

    fn subnets(&self) -> Vec<(String, Arc<FlatSubnet>)> {
        let all = self.0.subnets.all().into_iter();
        let own = all.filter(|(key, _)| *key.namespace == *self.0.settings.namespace);
        own.filter_map(|(key, _)| Some((key.name.to_string(), self.subnet(&key.name)?)))
            .collect()
    }

    fn subnet(&self, name: &str) -> Option<Arc<FlatSubnet>> {
        let goes = self.0.subnet(name)?.meta.is_terminating();
        self.0.in_force(name).filter(|_| !goes)
    }

    fn partner(&self, name: &str) -> Result<String, String> {
        self.0.partner(name)
    }

    fn network(&self, name: &str, subnet: &FlatSubnet, annotation: Option<&str>) -> String {
        let site = &self.0.context.site;
        let facts = PoolFacts {
            cluster: &site.session.names,
            system: &site.system,
            namespace: Some(&self.0.settings.namespace),
            interface: None,
            link: &link_of(subnet),
            pool: name,
            annotation,
            own_network: None,
        };
        site.session
            .network_choice(&facts, None)
            .network
            .to_string()
    }

    fn mac_user(&self, subnet: &str, mac: &MacAddress) -> Option<Key> {
        let ip = self.0.mac_user(subnet, &mac.to_string())?;
        Some(pod_key(&ip))
    }

    fn workload_of(&self, pod: &Key) -> Option<WorkloadRef> {
        let found = self.0.context.objects.get(pod);
        let found = found.and_then(|pod| pod.workload.clone());
        let ip = self.0.ips.context.objects.get(pod);
        let says = ip.and_then(|ip| ip.workload.clone());
        match found {
            // A Job of a CronJob: its address says so.
            Some(job) if job.kind == JOB.kind => says.or(Some(job)),
            Some(found) => Some(found),
            // It waits for the next pod of its name.
            None => says,
        }
    }

    fn is_used(&self, ip: &Key) -> bool {
        let pods = &self.0.context.objects;
        let lives = |pod: &PodView| !pod.is_over();
        let asks = pods.get(ip).is_some_and(|pod| lives(&pod));
        let has = || {
            let pod = pods.get(&pod_key(ip)).filter(|pod| lives(pod));
            let object = self.0.ips.context.objects.get(ip);
            pod.zip(object)
                .is_some_and(|(pod, object)| is_of(&object, &pod))
        };
        asks || has()
    }
}
