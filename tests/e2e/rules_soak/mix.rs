//! A random mix of everything that can happen to rules, and what has to be true after it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use fipd_tests::netlink::{Netlink, RawRule, Told, elsewhere};
use fipd_tests::testbed::Fipd;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::in_namespace;
use super::model::expected;
use fipd_tests::rule_site::{NODE, RuleSite, TAG, delete};

/// Services and IPRules there can be.
const SERVICES: u32 = 24;
const RULES: u32 = 8;
/// Rules that another puts there in a burst.
const BURST: u32 = 3_000;
/// Longest time between two things that happen.
const PAUSE_MS: u32 = 60;
const READY_WITHIN: Duration = Duration::from_secs(60);
/// What fipd may have after it, in a build with debug code.
const MEMORY_KIB: u64 = 200 << 10;

#[test]
fn in_the_end_the_kernel_is_as_the_objects_say_whatever_happened() {
    let seconds = std::env::var("FIPD_SOAK_SECONDS").map_or(30, |text| text.parse().unwrap());
    let seed = std::env::var("FIPD_SOAK_SEED").map_or_else(
        |_| u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()) | 1,
        |text| text.parse().unwrap(),
    );
    println!("FIPD_SOAK_SEED={seed} FIPD_SOAK_SECONDS={seconds}");
    in_namespace(async || {
        let mut soak = Soak::start(seed).await;
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            soak.step().await;
            let pause = soak.dice.roll(PAUSE_MS).into();
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        let (used, memory) = soak.judge().await;
        println!("{:?}", soak.happened);
        println!("idle: {used:?} of processor in 3 s, {memory} KiB");
    });
}

/// A deterministic sequence of numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from((self.0 >> 16) % u64::from(sides)).unwrap()
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        let count = u32::try_from(all.len()).unwrap();
        all[self.roll(count) as usize]
    }
}

struct Soak {
    site: RuleSite,
    /// A namespace without fipd, in which others do the same to their rules.
    twin: Netlink,
    dice: Dice,
    /// Services, and whether they have a second address of their own.
    services: BTreeMap<u32, bool>,
    /// Rules of others that have a tag, so that deleting one of them cannot mean one of fipd's.
    foreign: Vec<RawRule>,
    burst: Vec<RawRule>,
    killed: Instant,
    happened: BTreeMap<&'static str, u32>,
}

impl Soak {
    async fn start(seed: u64) -> Self {
        let site = RuleSite::start().await.unwrap();
        let mut soak = Self {
            site,
            twin: elsewhere().unwrap(),
            dice: Dice(seed),
            services: BTreeMap::new(),
            foreign: Vec::new(),
            burst: Vec::new(),
            killed: Instant::now(),
            happened: BTreeMap::new(),
        };
        assert_eq!(
            soak.site.foreign().await.unwrap(),
            soak.twin.dump().await.unwrap()
        );
        for _ in 0..RULES / 2 {
            soak.change_rule().await;
        }
        for number in 0..SERVICES / 2 {
            soak.create_service(number).await;
            soak.change_vips(number).await;
        }
        soak
    }

    async fn step(&mut self) {
        if self.killed.elapsed() > Duration::from_millis(2_000 + u64::from(self.dice.roll(2_000))) {
            return self.kill().await;
        }
        let what = match self.dice.roll(100) {
            0..15 => {
                self.change_rule().await;
                "IPRules changed"
            }
            15..19 => {
                self.delete_rule().await;
                "IPRules deleted"
            }
            19..24 => {
                let number = self.dice.roll(SERVICES);
                match self.services.contains_key(&number) {
                    true => self.delete_service(number).await,
                    false => self.create_service(number).await,
                }
                "Services created or deleted"
            }
            24..60 => {
                let count = self.services.len();
                let nth = self.dice.roll(u32::try_from(count.max(1)).unwrap()) as usize;
                if let Some(number) = self.services.keys().nth(nth).copied() {
                    self.change_vips(number).await;
                }
                "addresses changed"
            }
            60..72 => {
                self.add_foreign().await;
                "rules of others added"
            }
            72..80 => {
                self.delete_foreign();
                "rules of others deleted"
            }
            80..92 => {
                self.delete_own().await;
                "own rules deleted by hand"
            }
            92..98 => {
                self.plant().await;
                "rules with fipd's tag added by hand"
            }
            _ => {
                self.toggle_burst();
                "bursts"
            }
        };
        *self.happened.entry(what).or_default() += 1;
    }

    /// It is away for up to a second, in which other things happen.
    async fn kill(&mut self) {
        self.site.fipd.kill9().unwrap();
        for _ in 0..self.dice.roll(4) {
            match self.dice.roll(3) {
                0 => self.delete_own().await,
                1 => self.change_rule().await,
                _ => self.delete_rule().await,
            }
            let away = u64::from(self.dice.roll(300));
            tokio::time::sleep(Duration::from_millis(away)).await;
        }
        self.site.fipd.restart().await.unwrap();
        self.killed = Instant::now();
        *self.happened.entry("kills").or_default() += 1;
    }

    async fn change_rule(&mut self) {
        let number = self.dice.roll(RULES);
        let ranges = [
            "203.0.113.0/24",
            "203.0.113.0/25",
            "203.0.113.64/26",
            "203.0.0.0/16",
            "2001:db8::/64",
            "2001:db8::/112",
        ];
        let dice = &mut self.dice;
        let cidrs: Vec<&str> = (0..=dice.roll(2)).map(|_| dice.one_of(&ranges)).collect();
        let mut spec = json!({ "cidrs": cidrs, "table": 100 + dice.roll(6) });
        let mut may = |key: &str, values: &[Value]| {
            let count = u32::try_from(values.len()).unwrap();
            let chosen = dice.roll(2 * count) as usize;
            if let Some(value) = values.get(chosen) {
                spec[key] = value.clone();
            }
        };
        may("priority", &[json!(1000), json!(5000), json!(20_000)]);
        may("failClosed", &[json!(true)]);
        may("source", &[json!("vip"), json!("clusterIP")]);
        may(
            "nodeSelectorLabel",
            &[json!("lb"), json!("lb=true"), json!("lb=other")],
        );
        self.site
            .apply_rule(&format!("r{number}"), &spec)
            .await
            .unwrap();
    }

    async fn delete_rule(&mut self) {
        let number = self.dice.roll(RULES);
        delete(&self.site.rules, &format!("r{number}"))
            .await
            .unwrap();
    }

    async fn create_service(&mut self, number: u32) {
        let both = self.dice.roll(3) == 0;
        let mut own = vec![IpAddr::from([10, 96, 1, u8::try_from(number + 1).unwrap()])];
        if both {
            own.push(format!("fd00:96::{:x}", number + 0x100).parse().unwrap());
        }
        self.site
            .create_service(&format!("s{number}"), &own)
            .await
            .unwrap();
        self.services.insert(number, both);
    }

    async fn delete_service(&mut self, number: u32) {
        let name = format!("s{number}");
        delete(&self.site.services, &name).await.unwrap();
        self.services.remove(&number);
    }

    /// No, one or two of IPv4, and where it can have some also one of IPv6. No two Services have the same.
    async fn change_vips(&mut self, number: u32) {
        let mut vips = Vec::new();
        for part in 0..self.dice.roll(3) {
            let last = u8::try_from(number + SERVICES * (part + self.dice.roll(4) * 2)).unwrap();
            vips.push(IpAddr::from([203, 0, 113, last]));
        }
        if self.services[&number] && self.dice.roll(2) == 0 {
            let group = self.dice.roll(2);
            let vip = format!("2001:db8::{group:x}:{number:x}");
            vips.push(vip.parse().unwrap());
        }
        vips.dedup();
        self.site
            .set_vips(&format!("s{number}"), &vips)
            .await
            .unwrap();
    }

    fn source(&mut self) -> IpAddr {
        let number = u16::try_from(1 + self.dice.roll(SERVICES)).unwrap();
        match self.dice.roll(3) {
            0 => format!("fd00:96::{:x}", number + 0xff).parse().unwrap(),
            _ => IpAddr::from([10, 96, 1, u8::try_from(number).unwrap()]),
        }
    }

    /// One that looks like one of fipd's, or is only near it. Each kind has a tag, since the kernel deletes the first rule that
    /// has what is said, whatever else it has.
    async fn add_foreign(&mut self) {
        let (source, table) = (self.source(), 100 + self.dice.roll(6));
        let priorities = [1_000, 5_000, 10_000, 10_001, 20_000];
        let priority = priorities[self.dice.roll(5) as usize];
        let rule = match self.dice.roll(6) {
            // As the original leaves them; never deleted here, since that would take the first one of whatever tag.
            0 => RawRule::new(source, table, priority, 0),
            1 => RawRule {
                mark: Some(7),
                ..RawRule::new(source, table, priority, 4)
            },
            2 => RawRule {
                input: Some("eth9".into()),
                ..RawRule::new(source, table, priority, 188)
            },
            3 => RawRule {
                table: None,
                ..RawRule::new(source, table, priority, 5)
            },
            4 => RawRule::new(source, table, priority, TAG - 1),
            _ => RawRule::new(source, table, priority, 3),
        };
        let one = std::slice::from_ref(&rule);
        // Others cannot add one twice either, with the flag that they use.
        let there = self.twin.dump().await.unwrap();
        if there.iter().any(|told| told.rule() == rule) {
            return;
        }
        self.site.kernel.add(one).unwrap();
        self.twin.add(one).unwrap();
        if rule.protocol != 0 {
            self.foreign.push(rule);
        }
    }

    fn delete_foreign(&mut self) {
        let Some(count) = u32::try_from(self.foreign.len())
            .ok()
            .filter(|count| *count > 0)
        else {
            return;
        };
        let rule = self.foreign.swap_remove(self.dice.roll(count) as usize);
        let one = std::slice::from_ref(&rule);
        self.site.kernel.delete(one).unwrap();
        self.twin.delete(one).unwrap();
    }

    /// All of a source, one, or every second.
    async fn delete_own(&mut self) {
        let mut own = self.site.kernel.dump().await.unwrap();
        own.retain(|rule| rule.protocol() == TAG);
        if own.is_empty() {
            return;
        }
        let way = self.dice.roll(6);
        let count = u32::try_from(own.len()).unwrap();
        let one = self.dice.roll(count) as usize;
        for (index, rule) in own.iter().enumerate() {
            if way == 0 || (way == 1 && index % 2 == 0) || index == one {
                // fipd may have been quicker.
                let _ = self.site.kernel.delete_told(rule).await.unwrap();
            }
        }
    }

    /// With fipd's tag and not fipd's: a leftover of a crash, or a second one of a rule that is there.
    async fn plant(&mut self) {
        let own = self.site.own().await.unwrap();
        let twice = own.first().filter(|_| self.dice.roll(2) == 0).cloned();
        let source = self.source();
        let rule = twice.unwrap_or_else(|| RawRule::new(source, 77, 12_345, TAG));
        self.site.kernel.add(&[rule]).unwrap();
    }

    fn toggle_burst(&mut self) {
        let rules = std::mem::take(&mut self.burst);
        if rules.is_empty() {
            // Descending, as fast as the kernel takes them.
            let all = (0..BURST).rev().map(|number| {
                let [_, _, high, low] = number.to_be_bytes();
                RawRule::new([10, 77, high, low].into(), 100, 30_000 - BURST + number, 4)
            });
            self.burst = all.collect();
            self.site.kernel.add(&self.burst).unwrap();
            self.twin.add(&self.burst).unwrap();
            return;
        }
        let rules: Vec<RawRule> = rules.into_iter().rev().collect();
        self.site.kernel.delete(&rules).unwrap();
        self.twin.delete(&rules).unwrap();
    }

    /// What has to be true after it.
    ///
    /// What fipd then needs while nothing happens: processor time in 3 s, and KiB.
    async fn judge(&mut self) -> (Duration, u64) {
        let fipd: &Fipd = &self.site.fipd;
        fipd.wait_ready(READY_WITHIN).await.unwrap();
        let all = ListParams::default();
        let rules = self.site.rules.list(&all).await.unwrap();
        let rules: Vec<_> = rules
            .into_iter()
            .filter(|rule| rule.metadata.deletion_timestamp.is_none())
            .collect();
        let services = self.site.services.list(&all).await.unwrap();
        let labels = [("lb", "true")];
        let expected = expected(&rules, &services.items, &labels);
        let what = format!(
            "the {} rules that the objects of {NODE} want",
            expected.len()
        );
        self.site.settles(&what, &expected).await.unwrap();
        self.nothing_of_others_is_touched().await;
        let needs = self.is_calm(&expected).await;
        self.site.clear().await.unwrap();
        self.nothing_of_others_is_touched().await;
        assert!(self.happened["kills"] > 0, "{:?}", self.happened);
        needs
    }

    async fn nothing_of_others_is_touched(&self) {
        let (here, there) = (
            self.site.foreign().await.unwrap(),
            self.twin.dump().await.unwrap(),
        );
        let lost: Vec<_> = there.iter().filter(|rule| !here.contains(rule)).collect();
        let more: Vec<_> = here.iter().filter(|rule| !there.contains(rule)).collect();
        let shown = |all: &[&Told]| all.iter().map(|told| told.rule()).collect::<Vec<_>>();
        assert!(
            here == there,
            "rules of others: lost {:?}, too many {:?}",
            shown(&lost),
            shown(&more)
        );
    }

    /// Nobody is busy once there is nothing to do, and the rules stay.
    async fn is_calm(&mut self, expected: &[RawRule]) -> (Duration, u64) {
        let fipd = &self.site.fipd;
        let before = processor_time(fipd);
        tokio::time::sleep(Duration::from_secs(3)).await;
        let used = processor_time(fipd) - before;
        let memory = fipd.resident_kib().unwrap();
        assert!(used < Duration::from_millis(900), "{used:?} in 3 s");
        assert!(memory < MEMORY_KIB, "{memory} KiB");
        assert_eq!(self.site.own().await.unwrap(), expected);
        (used, memory)
    }
}

/// User and system time since its start.
fn processor_time(fipd: &Fipd) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", fipd.pid().unwrap())).unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks: u64 = fields[11..13]
        .iter()
        .map(|field| field.parse::<u64>().unwrap())
        .sum();
    // A hundred a second on every Linux.
    Duration::from_millis(ticks * 10)
}
