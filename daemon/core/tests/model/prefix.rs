//! Prefixes of the model: bits compared one address at a time.

use std::net::IpAddr;

use fipd_core::{AddressSpec, Family, Lease, LeaseKey, LeasePrefix, PoolError, PoolSpec, Refusal};

use super::{Flight, Model, Stop};

fn bits(address: IpAddr) -> (u8, u128) {
    match address {
        IpAddr::V4(address) => (32, address.to_bits().into()),
        IpAddr::V6(address) => (128, address.to_bits()),
    }
}

/// Bits of what the pool gives.
pub fn length(spec: &PoolSpec) -> u8 {
    let whole = bits(spec.addresses[0].span().first_address()).0;
    spec.allocation_length.unwrap_or(whole)
}

/// Whether the first `length` bits of both are the same.
pub fn together(a: IpAddr, b: IpAddr, length: u8) -> bool {
    let ((whole, a), (other, b)) = (bits(a), bits(b));
    let behind = u32::from(whole.saturating_sub(length));
    let front = |number: u128| number.checked_shr(behind).unwrap_or(0);
    whole == other && front(a) == front(b)
}

/// Whether no bit behind the length is set.
pub fn aligned(prefix: LeasePrefix) -> bool {
    let (whole, number) = bits(prefix.key.address);
    prefix.length <= whole && (prefix.length..whole).all(|bit| number >> (whole - 1 - bit) & 1 == 0)
}

/// The lowest address with the same first bits.
pub fn first(address: IpAddr, length: u8) -> IpAddr {
    let (whole, mut number) = bits(address);
    for bit in length..whole {
        number &= !(1 << (whole - 1 - bit));
    }
    match address {
        IpAddr::V4(_) => IpAddr::V4(u32::try_from(number).expect("32 bits").into()),
        IpAddr::V6(_) => IpAddr::V6(number.into()),
    }
}

pub fn covers(prefix: LeasePrefix, address: IpAddr) -> bool {
    together(prefix.key.address, address, prefix.length)
}

/// Whether they have an address in common: then one has the first of the other.
pub fn touch(a: LeasePrefix, b: LeasePrefix) -> bool {
    a.key.network == b.key.network && (covers(a, b.key.address) || covers(b, a.key.address))
}

/// The largest parts of the prefix in which there is none of these leases.
pub fn beside(prefix: LeasePrefix, leases: &[Lease], parts: &mut Vec<LeasePrefix>) {
    if !leases.iter().any(|lease| touch(lease.prefix(), prefix)) {
        parts.push(prefix);
    } else if prefix.length < prefix.key.bits() {
        let half = prefix.length + 1;
        let (whole, number) = bits(prefix.key.address);
        let upper = number | 1 << (whole - half);
        for number in [number, upper] {
            let address = match whole {
                32 => IpAddr::V4(u32::try_from(number).expect("32 bits").into()),
                _ => IpAddr::V6(number.into()),
            };
            let key = LeaseKey {
                address,
                ..prefix.key
            };
            let length = half;
            beside(LeasePrefix { key, length }, leases, parts);
        }
    }
}

/// What the pool gives around the address, whether it lists that or not; of the other family, the address.
pub fn around(spec: &PoolSpec, address: IpAddr) -> LeasePrefix {
    let length = match spec.addresses[0].family() == Family::of(address) {
        true => length(spec),
        false => bits(address).0,
    };
    let key = LeaseKey {
        network: spec.network,
        address: first(address, length),
    };
    LeasePrefix { key, length }
}

/// Whether it is as long as what the pool gives.
pub fn fits(lease: &Lease, spec: &PoolSpec) -> bool {
    lease.length == length(spec)
}

/// What is wrong with a pool of prefixes. The histories make no other mistakes.
pub fn check(spec: &PoolSpec) -> Result<(), Stop> {
    let Some(length) = spec.allocation_length else {
        return Ok(());
    };
    let whole = bits(spec.addresses[0].span().first_address()).0;
    let fits = |entry: &AddressSpec| match entry {
        AddressSpec::Cidr(net) => net.prefix_len() <= length,
        AddressSpec::Single(_) | AddressSpec::Range(..) => false,
    };
    let field = if length == 0 || length > whole {
        "allocation_length"
    } else if !spec.addresses.iter().all(fits) {
        "addresses"
    } else if spec.ends.first + spec.ends.last > 0 {
        "ends"
    } else {
        return Ok(());
    };
    Err(Stop::Refused(Refusal::Pool(PoolError {
        field,
        value: String::new(),
        allowed: String::new(),
    })))
}

impl Flight {
    pub fn takes(&self, prefix: LeasePrefix) -> bool {
        self.taken.iter().any(|one| touch(*one, prefix))
    }

    /// Whether it takes what begins there.
    pub fn takes_at(&self, key: LeaseKey) -> bool {
        self.taken.iter().any(|one| one.key == key)
    }
}

impl Model {
    /// The lowest lease that has any of it.
    pub fn lease_over(&self, prefix: LeasePrefix) -> Option<&Lease> {
        let mut leases = self.leases.iter();
        leases.find(|lease| touch(lease.prefix(), prefix))
    }

    pub fn taken(&self, prefix: LeasePrefix) -> bool {
        self.flights.iter().any(|flight| flight.takes(prefix))
    }

    /// What would be free but for decisions in flight.
    pub fn may_come_back(&self, prefix: LeasePrefix) -> bool {
        self.taken(prefix) && self.lease_over(prefix).is_none()
    }

    /// Free for planning: no address of it is leased or taken.
    pub fn is_free(&self, prefix: LeasePrefix) -> bool {
        self.lease_over(prefix).is_none() && !self.taken(prefix)
    }

    /// Busy while a decision in flight is about what is over the prefix.
    pub fn settled(&self, prefix: LeasePrefix) -> Result<(), Stop> {
        let over = self.lease_over(prefix);
        let busy = self.taken(prefix)
            || self.locked(prefix.key)
            || over.is_some_and(|lease| self.locked(lease.key));
        if busy { Err(Stop::Busy) } else { Ok(()) }
    }
}
