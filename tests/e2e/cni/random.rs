//! Random verbs with the daemon and the plugin killed at random and the host rebooted: ledger, containers and host agree at the end.

use super::*;

/// Containers, so that most verbs meet one that is attached.
const CONTAINERS: u32 = 12;
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
    conf: Value,
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
        let name = format!("c{}", self.dice.roll(CONTAINERS));
        let known = self.all.get(&name).cloned();
        (name, known.unwrap_or(Known::Detached))
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
                let conf = with_previous(&self.conf, &result);
                bed.call("CHECK", &name, &conf).await?.result().map(drop)
            }
            Known::Attached(_) | Known::Unknown => self.del(bed, &name).await,
        }
    }

    async fn add(&mut self, bed: &CniBed, name: &str) -> Result<()> {
        self.count("ADD");
        let called = bed.call("ADD", name, &self.conf).await?;
        let known = match called.code {
            Some(0) => Known::Attached(called.result()?),
            _ => {
                // Only a daemon that is away is a reason.
                called.failed_with(11)?;
                Known::Unknown
            }
        };
        self.all.insert(name.to_owned(), known);
        Ok(())
    }

    /// It always succeeds.
    async fn del(&mut self, bed: &CniBed, name: &str) -> Result<()> {
        self.count("DEL");
        bed.call("DEL", name, &self.conf).await?.result()?;
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
        let call = bed.call_of(verb, &name, &self.conf);
        let after = Duration::from_micros(u64::from(self.dice.roll(20_000)));
        bed.host.call_and_kill(&call, after).await?;
        self.all.insert(name, Known::Unknown);
        Ok(())
    }

    /// The runtime lists what it knows to be attached.
    async fn garbage(&mut self, bed: &CniBed) -> Result<()> {
        self.count("GC");
        let valid = self.live().into_keys();
        let valid = valid.map(|name| json!({ "containerID": name, "ifname": "eth0" }));
        let mut conf = self.conf.clone();
        conf["cni.dev/valid-attachments"] = valid.collect();
        bed.host.call(&CniCall::new("GC", &conf)).await?.result()?;
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
        bed.fipd.restart().await
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
        let (called, killed) = futures::join!(bed.call(verb, &name, &self.conf), kill);
        killed?;
        let called = called?;
        let known = match (verb, called.code) {
            ("ADD", Some(0)) => Known::Attached(called.result()?),
            ("DEL", Some(0)) => Known::Detached,
            _ => Known::Unknown,
        };
        self.all.insert(name, known);
        bed.fipd.restart().await
    }

    /// All namespaces are gone, what is on the disk is not. The runtime then deletes what it had, or lists nothing.
    async fn reboot(&mut self, bed: &mut CniBed) -> Result<()> {
        self.count("reboot");
        bed.fipd.kill9()?;
        let names: Vec<_> = self.all.keys().cloned().collect();
        for name in &names {
            bed.host.remove_container(name).await?;
        }
        bed.fipd.restart().await?;
        if self.dice.roll(2) == 0 {
            for name in &names {
                if self.all[name] != Known::Detached {
                    self.del(bed, name).await?;
                }
            }
        }
        for name in &names {
            self.all.insert(name.clone(), Known::Detached);
            bed.host.make_container(name).await?;
        }
        self.garbage(bed).await
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
        wait_agree(bed, &live, &others).await
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
            // With IPv6 each ADD waits for a second or two until the kernel has found no duplicate.
            conf: bed.conf(V4),
            all: BTreeMap::new(),
            done: BTreeMap::new(),
        };
        for number in 0..CONTAINERS {
            let name = format!("c{number}");
            bed.host.make_container(&name).await?;
            random.all.insert(name, Known::Detached);
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
        println!("{cycles} cycles: {:?}", random.done);
        bed.fipd.restart().await?;
        random.look(bed).await
    });
}
