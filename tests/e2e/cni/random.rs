//! Random verbs with the daemon and the plugin killed at random and the host rebooted: ledger, containers, host and API agree at
//! the end. Some of the containers are pods.

use super::pods::{Pods, is_pod};
use super::*;

/// So many that most verbs meet one that is attached: on pools, and pods.
const CONTAINERS: [&str; 12] = [
    "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "p0", "p1", "p2", "p3",
];
/// It has addresses of both families. One only: each ADD waits for a second or two until the kernel has found no duplicate.
const DUAL_STACK: &str = "c7";
/// Verbs between two looks at everything.
const BETWEEN_LOOKS: u32 = 50;

/// A deterministic sequence of numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 % u64::from(sides)).unwrap()
    }
}

/// What is known about a container.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    Detached,
    /// With the result.
    Attached(Value),
    /// A verb did not end, or failed: the runtime deletes it, or it is garbage.
    Unknown,
}

struct Random {
    dice: Dice,
    /// Of containers on pools.
    conf: Value,
    dual_stack: Value,
    pods: Pods,
    all: BTreeMap<String, Known>,
    /// What was done, for the message.
    done: BTreeMap<&'static str, u32>,
}

impl Random {
    fn live(&self) -> Live {
        let live = self.all.iter().filter_map(|(name, known)| match known {
            Known::Attached(result) => Some((name.clone(), given(result))),
            Known::Detached | Known::Unknown => None,
        });
        live.collect()
    }

    fn count(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    fn container(&mut self) -> (String, Known) {
        let sides = u32::try_from(CONTAINERS.len()).unwrap();
        let name = CONTAINERS[self.dice.roll(sides) as usize];
        let known = self.all.get(name).cloned();
        (name.to_owned(), known.unwrap_or(Known::Detached))
    }

    fn conf_of(&self, name: &str) -> Value {
        let conf = match name {
            DUAL_STACK => &self.dual_stack,
            _ if is_pod(name) => &self.pods.conf,
            _ => &self.conf,
        };
        conf.clone()
    }

    async fn call_of(
        &mut self,
        bed: &CniBed,
        verb: &str,
        name: &str,
        conf: &Value,
    ) -> Result<CniCall> {
        let call = match is_pod(name) {
            true => self.pods.call_of(bed, verb, name, conf).await?,
            false => bed.call_of(verb, name, conf),
        };
        Ok(emptying(call))
    }

    async fn call(&mut self, bed: &CniBed, verb: &str, name: &str) -> Result<Called> {
        let conf = self.conf_of(name);
        let call = self.call_of(bed, verb, name, &conf).await?;
        bed.host.call(&call).await
    }

    async fn step(&mut self, bed: &mut CniBed) -> Result<()> {
        match self.dice.roll(100) {
            0..70 => self.verb(bed).await,
            70..82 => self.killed_plugin(bed).await,
            82..90 => self.garbage(bed).await,
            90..95 => self.without_daemon(bed).await,
            95..98 => self.restart(bed).await,
            _ => self.reboot(bed).await,
        }
    }

    /// What a runtime does next with one of its containers.
    async fn verb(&mut self, bed: &CniBed) -> Result<()> {
        let (name, known) = self.container();
        match known {
            Known::Detached => self.add(bed, &name).await,
            Known::Attached(result) if self.dice.roll(2) == 0 => {
                self.count("CHECK");
                let conf = with_previous(&self.conf_of(&name), &result);
                let call = self.call_of(bed, "CHECK", &name, &conf).await?;
                bed.host.call(&call).await?.result().map(drop)
            }
            Known::Attached(_) | Known::Unknown => self.del(bed, &name).await,
        }
    }

    async fn add(&mut self, bed: &CniBed, name: &str) -> Result<()> {
        self.count("ADD");
        let called = self.call(bed, "ADD", name).await?;
        let known = match called.code {
            Some(0) => {
                if is_pod(name) {
                    self.count("pod attached");
                }
                Known::Attached(called.result()?)
            }
            _ => {
                // Only what is not there yet or any more is a reason: the daemon, or a pod's address.
                called.failed_with(11)?;
                Known::Unknown
            }
        };
        self.all.insert(name.to_owned(), known);
        Ok(())
    }

    /// It always succeeds. A pod mostly ends with it, and else is attached once more.
    async fn del(&mut self, bed: &CniBed, name: &str) -> Result<()> {
        self.count("DEL");
        self.call(bed, "DEL", name).await?.result()?;
        if is_pod(name) && self.dice.roll(3) != 0 {
            self.pods.delete(name).await?;
        }
        self.all.insert(name.to_owned(), Known::Detached);
        Ok(())
    }

    /// The plugin ends somewhere in the middle.
    async fn killed_plugin(&mut self, bed: &CniBed) -> Result<()> {
        let (name, known) = self.container();
        let verb = if known == Known::Detached {
            "ADD"
        } else {
            "DEL"
        };
        self.count("kill of the plugin");
        let conf = self.conf_of(&name);
        let call = self.call_of(bed, verb, &name, &conf).await?;
        let after = Duration::from_micros(u64::from(self.dice.roll(20_000)));
        bed.host.call_and_kill(&call, after).await?;
        self.all.insert(name, Known::Unknown);
        Ok(())
    }

    /// The runtime lists what it knows to be attached.
    async fn garbage(&mut self, bed: &CniBed) -> Result<()> {
        self.count("GC");
        let live = self.live();
        for (ifname, pods) in [("eth0", false), ("eth1", true)] {
            let valid = live.keys().filter(|name| is_pod(name) == pods);
            let valid = valid.map(|name| json!({ "containerID": name, "ifname": ifname }));
            let mut conf = if pods { &self.pods.conf } else { &self.conf }.clone();
            conf["cni.dev/valid-attachments"] = valid.collect();
            bed.host.call(&CniCall::new("GC", &conf)).await?.result()?;
        }
        Ok(())
    }

    /// Some verbs while the daemon is down.
    async fn without_daemon(&mut self, bed: &mut CniBed) -> Result<()> {
        self.count("time without the daemon");
        bed.fipd.kill9()?;
        for _ in 0..3 {
            let (name, known) = self.container();
            match known {
                Known::Detached => self.add(bed, &name).await?,
                Known::Attached(_) | Known::Unknown => self.del(bed, &name).await?,
            }
        }
        self.pods.restart(bed).await
    }

    /// The daemon is killed in the middle of a verb.
    async fn restart(&mut self, bed: &mut CniBed) -> Result<()> {
        self.count("kill of the daemon");
        let (name, known) = self.container();
        let verb = if known == Known::Detached {
            "ADD"
        } else {
            "DEL"
        };
        let pid = nix::unistd::Pid::from_raw(i32::try_from(bed.fipd.pid()?)?);
        let after = Duration::from_micros(u64::from(self.dice.roll(20_000)));
        let kill = async {
            tokio::time::sleep(after).await;
            nix::sys::signal::kill(pid, nix::sys::signal::SIGKILL)
        };
        let conf = self.conf_of(&name);
        let call = self.call_of(bed, verb, &name, &conf).await?;
        let (called, killed) = futures::join!(bed.host.call(&call), kill);
        killed?;
        let called = called?;
        let known = match (verb, called.code) {
            ("ADD", Some(0)) => Known::Attached(called.result()?),
            ("DEL", Some(0)) => Known::Detached,
            _ => Known::Unknown,
        };
        self.all.insert(name, known);
        self.pods.restart(bed).await
    }

    /// All namespaces are gone, what is on the disk is not. The runtime then deletes what it had, or lists nothing.
    async fn reboot(&mut self, bed: &mut CniBed) -> Result<()> {
        self.count("reboot");
        bed.fipd.kill9()?;
        let names: Vec<_> = self.all.keys().cloned().collect();
        for name in &names {
            bed.host.remove_container(name).await?;
        }
        // Mostly only the namespaces tell: after another boot the daemon waits for its earlier leadership to expire. The kernel has
        // forgotten then what was set.
        if self.dice.roll(3) == 0 {
            self.count("another boot");
            bed.host.name_next_boot()?;
            let forgotten = format!("ip link set {MASTER} promisc off");
            bed.host.run(&forgotten).await?;
        }
        self.pods.restart(bed).await?;
        self.pods.wait_forgotten(bed).await?;
        if self.dice.roll(2) == 0 {
            for name in &names {
                if self.all[name] != Known::Detached {
                    self.del(bed, name).await?;
                }
            }
        }
        for name in &names {
            self.all.insert(name.clone(), Known::Detached);
            self.make_container(bed, name).await?;
        }
        self.garbage(bed).await
    }

    async fn make_container(&self, bed: &CniBed, name: &str) -> Result<()> {
        match is_pod(name) {
            true => self.pods.make_container(bed, name).await,
            false => bed.host.make_container(name).await.map(drop),
        }
    }

    /// The runtime deletes what it does not know, and then all agree.
    async fn look(&mut self, bed: &CniBed) -> Result<()> {
        let unknown = self
            .all
            .iter()
            .filter(|(_, known)| **known == Known::Unknown);
        let unknown: Vec<_> = unknown.map(|(name, _)| name.clone()).collect();
        for name in unknown {
            self.del(bed, &name).await?;
        }
        let live = self.live();
        let others: Vec<_> = self.all.keys().cloned().collect();
        let others: Vec<_> = others
            .into_iter()
            .filter(|name| !live.contains_key(name))
            .collect();
        let what = "ledger, containers, host and API agree";
        wait_until(what, SOON, || async {
            let of_pods = self.pods.agree(bed, &live).await?;
            agree_beside(bed, &live, &others, &of_pods).await
        })
        .await
    }
}

#[test]
fn after_random_verbs_and_kills_everything_agrees() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
    };
    let cycles = u32::try_from(number("FIPD_CNI_CYCLES", 200)).unwrap();
    let seed = number("FIPD_CNI_SEED", 0x9e37_79b9_7f4a_7c15);
    on_host(async |bed| {
        let mut random = Random {
            dice: Dice(seed),
            conf: bed.conf(V4),
            dual_stack: bed.conf(BOTH),
            pods: Pods::start(bed).await?,
            all: BTreeMap::new(),
            done: BTreeMap::new(),
        };
        for name in CONTAINERS {
            random.make_container(bed, name).await?;
            random.all.insert(name.to_owned(), Known::Detached);
        }
        for cycle in 0..cycles {
            let done = random.step(bed).await;
            done.with_context(|| {
                format!("cycle {cycle}, FIPD_CNI_SEED={seed}, {:?}", random.done)
            })?;
            if cycle % BETWEEN_LOOKS == BETWEEN_LOOKS - 1 {
                let agreed = random.look(bed).await;
                agreed.with_context(|| {
                    format!(
                        "after cycle {cycle}, FIPD_CNI_SEED={seed}, {:?}",
                        random.done
                    )
                })?;
            }
        }
        random.look(bed).await?;
        let attached = random.done.get("pod attached").copied().unwrap_or_default();
        ensure!(
            attached >= cycles / 50,
            "{attached} pods attached in {cycles} cycles"
        );
        println!("{cycles} cycles: {:?}", random.done);
        random.pods.restart(bed).await?;
        random.look(bed).await
    });
}
