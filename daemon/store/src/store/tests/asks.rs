//! What random histories ask: everything that a ledger is ever asked.

use std::sync::Arc;

use fipd_core::{
    Account, AccountEdit, Adopt, Adoption, Allocate, ClusterId, ClusterRecord, Ends, Epoch, Family,
    Handover, Holder, Import, ImportRow, ImportedLease, KeyBytes, KeyId, Label, Lease, LeaseFilter,
    LeaseKey, LeasePrefix, LeaseState, Member, NetworkId, Order, Origin, PoolEdit, PoolId,
    PoolSpec, ProbeVerdict, Probed, Quota, QuotaUnit, Release, ReleaseScope, Request, Reserve,
    Role, Scope, Share, Span, Sticky, Tenant, Timestamp, Token, TokenId, Transfer, Want,
};

use super::history::History;

impl History {
    fn holder(&mut self) -> Holder {
        let system = ["fipd", "kube-fip/c-1"][self.dice.below(2) as usize];
        let identity = format!("{system}/Service/apps/s{}", self.dice.below(60));
        Holder {
            identity: identity.parse().unwrap(),
            instance: format!("i{}", self.dice.below(2)).into(),
        }
    }

    /// Who gives up its addresses: now and then one that others wait for.
    fn leaver(&mut self) -> Holder {
        let anybody = self.holder();
        if self.dice.below(3) > 0 {
            return anybody;
        }
        let page = self.ledger.leases(&LeaseFilter::default(), None, 1_000);
        let mut leases = page.leases.iter();
        let contended = leases.find(|lease| !lease.contenders.is_empty());
        let owner = contended.and_then(|lease| lease.owner().cloned());
        owner.unwrap_or(anybody)
    }

    fn pool(&mut self) -> PoolId {
        let pools: Vec<_> = self.ledger.pools().map(|pool| pool.id).collect();
        match pools.len() as u64 {
            0 => PoolId(1),
            count => pools[self.dice.below(count) as usize],
        }
    }

    pub(super) fn request(&mut self) -> Request {
        let actor = "test".into();
        if self.ledger.restore_hold().is_some() && self.dice.below(12) == 0 {
            return self.of_a_hold();
        }
        let pools = self.ledger.pools().count();
        match self.dice.below(37) {
            _ if pools == 0 => self.new_pool(),
            0 => self.new_pool(),
            24 => self.import(),
            25..=27 => self.of_an_admin(),
            28..=29 => self.of_a_cluster(),
            32..=35 => self.of_access(),
            30..=31 => self.hand_on(),
            36 => self.label(),
            1 => {
                // Now and then one that may go.
                let empty =
                    |id: &PoolId| self.ledger.usage(*id).is_some_and(|usage| usage.used == 0);
                let empty = self.ledger.pools().map(|pool| pool.id).find(empty);
                let pool = empty.unwrap_or_else(|| self.pool());
                Request::DeletePool { pool, actor }
            }
            2..=6 => {
                let scope = ReleaseScope::Holder(self.leaver());
                Request::Release(Release {
                    scope,
                    actor,
                    reason: "done".into(),
                })
            }
            7 => {
                let LeasePrefix { key, length } = self.prefix();
                let holder = self.holder();
                Request::Adopt(Adopt {
                    length: Some(length),
                    key,
                    holder,
                    tenant: None,
                    since: Timestamp(self.time),
                    actor,
                })
            }
            13 => Request::SetQuota {
                quota: Quota {
                    pool: self.pool(),
                    tenant: self.tenant(),
                    limit: self.dice.below(20),
                },
                actor,
            },
            14 if self.dice.coin() => Request::DeleteQuota {
                pool: self.pool(),
                tenant: self.tenant(),
                actor,
            },
            8 => Request::CreateNetwork {
                name: format!("net-{}", self.dice.below(5)).into(),
                actor,
            },
            9 => Request::Expire { most: 3, actor },
            10..=12 => {
                let until = self.time + 1 + self.dice.below(3_000);
                let until = self.dice.coin().then_some(Timestamp(until));
                let share = None;
                let ask = Allocate {
                    share,
                    probe: false,
                    ..self.allocate()
                };
                Request::Reserve(Reserve { ask, until })
            }
            _ => Request::Allocate(self.allocate()),
        }
    }

    fn allocate(&mut self) -> Allocate {
        let share = self.share();
        let count = match share {
            Some(_) => 1,
            None => 1 + self.dice.below(3) as u32,
        };
        let wants = vec![Want {
            pool: self.pool().into(),
            address: None,
            count,
        }];
        Allocate {
            holder: self.holder(),
            tenant: Some(self.tenant()),
            wants,
            waiting_since: None,
            by_admin: false,
            probe: share.is_none() && self.dice.below(4) == 0,
            share,
            actor: "test".into(),
        }
    }

    fn share(&mut self) -> Option<Share> {
        let port = match self.dice.below(6) {
            0 => "TCP/80",
            1 => "TCP/443",
            2 => "UDP/53",
            _ => return None,
        };
        let port = port.parse().unwrap();
        Some(Share {
            key: "g".into(),
            ports: vec![port],
        })
    }

    /// A lease changes hands.
    fn hand_on(&mut self) -> Request {
        let (from, to, actor) = (self.holder(), self.holder(), "test".into());
        let key = self.key();
        if self.dice.coin() {
            return Request::Handover(Handover {
                from,
                to,
                keys: Vec::new(),
                actor,
                reason: "it lives on".into(),
            });
        }
        Request::Transfer(Transfer {
            key,
            from: None,
            to,
            tenant: Some(self.tenant()),
            force: self.dice.coin(),
            actor,
            reason: "moved".into(),
        })
    }

    fn label(&mut self) -> Request {
        let value = format!("v{}", self.dice.below(3));
        Request::Label(Label {
            key: self.key(),
            set: [("app".into(), value.into())].into(),
            remove: vec!["team".into()],
            actor: "test".into(),
        })
    }

    /// Many rows in one decision.
    fn import(&mut self) -> Request {
        let mut rows = vec![ImportRow::Network("default".into())];
        for _ in 0..self.dice.below(30) {
            let LeasePrefix { key, length } = self.prefix();
            let holder = self.holder();
            let member = Member {
                holder,
                ports: Vec::new(),
            };
            let lease = Lease {
                length,
                key,
                pool: None,
                state: LeaseState::Allocated,
                members: std::iter::once(member).collect(),
                contenders: Vec::new(),
                tenant: Some(self.tenant()),
                group: None,
                since: Timestamp(self.time),
                until: None,
                labels: Default::default(),
            };
            rows.push(ImportRow::Lease(Box::new(ImportedLease {
                network: "default".into(),
                pool: None,
                since: None,
                lease,
            })));
        }
        Request::Import(Import {
            rows,
            force: true,
            actor: "test".into(),
        })
    }

    fn of_a_hold(&mut self) -> Request {
        let actor = "test".into();
        if self.dice.coin() {
            let reason = "all clusters were asked".into();
            return Request::LiftHold { reason, actor };
        }
        let elapsed = Epoch::HOLD / 3;
        Request::PassHold { elapsed, actor }
    }

    fn of_an_admin(&mut self) -> Request {
        let actor = "test".into();
        match self.dice.below(7) {
            6 => Request::Separate {
                networks: (NetworkId(0), NetworkId(1)),
                apart: self.dice.coin(),
                actor,
            },
            4 => Request::MoveNetwork {
                pool: self.pool(),
                network: NetworkId(self.dice.below(2) as u32),
                actor,
            },
            5 => self.probed(),
            0 => Request::Release(Release {
                scope: ReleaseScope::Quarantine(self.key()),
                actor,
                reason: "needed".into(),
            }),
            _ => {
                let pool = self.pool();
                let Some(known) = self.ledger.pool(pool) else {
                    return self.new_pool();
                };
                let mut spec = known.spec.clone();
                let third = self.dice.below(3) * 16;
                let out = format!("10.0.{}.{third}/28", self.dice.below(4));
                spec.exclusions = vec![out.parse().unwrap()];
                spec.priority = self.dice.below(3) as u16;
                Request::UpdatePool(PoolEdit {
                    pool,
                    spec,
                    if_generation: None,
                    force: self.dice.coin(),
                    actor,
                    reason: "smaller".into(),
                })
            }
        }
    }

    /// The check of an address on the wire has come to an end.
    fn probed(&mut self) -> Request {
        let filter = LeaseFilter {
            state: Some(LeaseState::Probing),
            ..LeaseFilter::default()
        };
        let page = self.ledger.leases(&filter, None, 1);
        let known = page.leases.first();
        let owner = known.and_then(|lease| Some((lease.key, lease.owner()?.identity.clone())));
        let (key, identity) = owner.unwrap_or_else(|| (self.key(), self.holder().identity));
        let verdict = match self.dice.coin() {
            true => ProbeVerdict::Free,
            false => ProbeVerdict::Taken { by: "a MAC".into() },
        };
        Request::Probed(Probed {
            key,
            identity,
            verdict,
            actor: "test".into(),
        })
    }

    fn of_a_cluster(&mut self) -> Request {
        let (cluster, actor) = (ClusterId("c-1".into()), "test".into());
        match self.dice.below(4) {
            0 => Request::Orphan {
                cluster,
                system: None,
                most: 5,
                actor,
            },
            1 => Request::Forget {
                cluster,
                most: 5,
                actor,
            },
            2 => Request::MarkAdopted {
                marker: Adoption {
                    network: NetworkId::DEFAULT,
                    cluster: cluster.0,
                    system: ["kube-fip", "claims"][self.dice.below(2) as usize]
                        .parse()
                        .unwrap(),
                    at: Timestamp(self.time),
                    skipped: self.dice.coin(),
                },
                actor,
            },
            _ => Request::RecordCluster {
                record: ClusterRecord {
                    id: cluster,
                    names: vec![format!("east-{}", self.dice.below(3)).into()],
                    discovered: true,
                    first_seen: Timestamp(self.time),
                    proof: None,
                },
            },
        }
    }

    fn of_access(&mut self) -> Request {
        let actor = "test".into();
        let name = format!("user-{}", self.dice.below(3)).into();
        let id = TokenId(self.dice.below(3));
        match self.dice.below(6) {
            0 => Request::CreateAccount {
                account: Account {
                    name,
                    role: [Role::Admin, Role::Viewer][self.dice.below(2) as usize],
                    password_hash: "x".into(),
                    created: Timestamp(self.time),
                    disabled: false,
                },
                actor,
            },
            1 => Request::EditAccount(AccountEdit {
                name,
                role: Some(Role::Viewer),
                password_hash: Some("y".into()),
                disabled: None,
                actor,
            }),
            2 => Request::DeleteAccount { name, actor },
            3 => Request::PutToken {
                token: Token {
                    id,
                    name,
                    role: Role::Operator,
                    hash: [7; 32],
                    created: Timestamp(self.time),
                    expires: None,
                    scope: Scope::default(),
                    from: vec!["10.0.0.0/8".parse().unwrap()],
                },
                actor,
            },
            4 if self.dice.below(3) == 0 => Request::ImportKey {
                bytes: KeyBytes(Arc::from([self.dice.below(9) as u8; 2])),
                actor,
            },
            4 => Request::RotateKey {
                bytes: KeyBytes(Arc::from([self.dice.below(9) as u8; 3])),
                after: self.dice.below(3).checked_sub(1).map(KeyId),
                actor,
            },
            _ => Request::DeleteToken { id, actor },
        }
    }

    fn key(&mut self) -> LeaseKey {
        let address = format!("10.0.{}.{}", self.dice.below(4), self.dice.below(64));
        LeaseKey {
            network: NetworkId::DEFAULT,
            address: address.parse().unwrap(),
        }
    }

    /// An address, or now and then the /30 around it.
    fn prefix(&mut self) -> LeasePrefix {
        let key = self.key();
        let length = match self.dice.below(8) {
            0 => 30,
            _ => return key.whole(),
        };
        let address = Span::of_prefix(key.address, length).first_address();
        let key = LeaseKey { address, ..key };
        LeasePrefix { key, length }
    }

    fn tenant(&mut self) -> Tenant {
        Tenant(format!("p-{}", self.dice.below(4)).into())
    }

    fn new_pool(&mut self) -> Request {
        let number = self.dice.below(8);
        // The last two have addresses of others.
        let (addresses, family, allocation_length) = match number {
            0..4 => (format!("10.0.{number}.0/26"), Family::V4, None),
            4..6 => (format!("fd00:{number}::/120"), Family::V6, None),
            6 => ("10.0.1.0/25".to_owned(), Family::V4, Some(30)),
            _ => ("fd00:4::/118".to_owned(), Family::V6, Some(122)),
        };
        let spec = PoolSpec {
            allocation_length,
            quota_unit: match number {
                6 => QuotaUnit::Address,
                _ => QuotaUnit::Lease,
            },
            name: format!("pool-{number}").into(),
            network: NetworkId::DEFAULT,
            network_by_default: number == 2,
            addresses: vec![addresses.parse().unwrap()],
            exclusions: Vec::new(),
            gateway: None,
            prefix_len: None,
            subnet: None,
            ends: match allocation_length {
                Some(_) => Ends::NONE,
                None => Ends::own_default(family),
            },
            order: match number % 3 {
                0 => Order::Lowest,
                1 => Order::Random,
                _ => Order::LeastRecentlyUsed,
            },
            sticky: Sticky {
                lasts: (number % 4) as u32,
                most: 3,
            },
            share_across_clusters: number == 1,
            quota_required: number == 3,
            origin: Origin::Own,
            closed: false,
            quarantine: (number % 2) as u32,
            priority: 0,
            scopes: Vec::new(),
        };
        Request::CreatePool {
            spec,
            actor: "test".into(),
        }
    }
}
