//! The numbers that stand for choices in rows. Frozen: a number is never given another meaning.

use fipd_core::{Action, EndsOf, LeaseState, Order, PortClaim, Protocol, Role};

use super::DecodeError;

pub(super) fn of_state(state: LeaseState) -> u8 {
    match state {
        LeaseState::Allocated => 0,
        LeaseState::Reserved => 1,
        LeaseState::Probing => 2,
        LeaseState::Quarantined => 3,
        LeaseState::Orphaned => 4,
    }
}

pub(super) fn state(code: u8) -> Result<LeaseState, DecodeError> {
    decode("lease state", &LeaseState::ALL, of_state, code)
}

pub(super) fn of_role(role: Role) -> u8 {
    match role {
        Role::Viewer => 0,
        Role::Operator => 1,
        Role::Admin => 2,
    }
}

pub(super) fn role(code: u8) -> Result<Role, DecodeError> {
    decode("role", &Role::ALL, of_role, code)
}

fn of_protocol(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 0,
        Protocol::Udp => 1,
        Protocol::Sctp => 2,
    }
}

pub(super) fn of_port(claim: &PortClaim) -> (u8, u16) {
    (of_protocol(claim.protocol), claim.port)
}

pub(super) fn port(protocol: u8, port: u16) -> Result<PortClaim, DecodeError> {
    let protocol = decode("protocol", &Protocol::ALL, of_protocol, protocol)?;
    Ok(PortClaim { protocol, port })
}

pub(super) fn of_ends(ends: EndsOf) -> u8 {
    match ends {
        EndsOf::Prefix => 0,
        EndsOf::EachCidr => 1,
    }
}

pub(super) fn ends(code: u8) -> Result<EndsOf, DecodeError> {
    decode("reserved ends", &EndsOf::ALL, of_ends, code)
}

pub(super) fn of_order(order: Order) -> u8 {
    match order {
        Order::Lowest => 0,
        Order::Random => 1,
        Order::LeastRecentlyUsed => 2,
    }
}

pub(super) fn order(code: u8) -> Result<Order, DecodeError> {
    decode("order", &Order::ALL, of_order, code)
}

pub(super) fn of_action(action: Action) -> u8 {
    match action {
        Action::Allocated => 0,
        Action::Adopted => 1,
        Action::Contended => 2,
        Action::ContenderLeft => 3,
        Action::InstanceChanged => 4,
        Action::HandedOver => 5,
        Action::Released => 6,
        Action::PassedOn => 7,
        Action::Orphaned => 8,
        Action::Forgotten => 9,
        Action::NetworkCreated => 10,
        Action::PoolCreated => 11,
        Action::PoolUpdated => 12,
        Action::PoolDeleted => 13,
        Action::ClusterRecorded => 14,
        Action::ClusterAdopted => 15,
        Action::AdoptionSkipped => 16,
        Action::AccountChanged => 17,
        Action::AccountDeleted => 18,
        Action::TokenCreated => 19,
        Action::TokenDeleted => 20,
        Action::Reserved => 21,
        Action::Expired => 22,
        Action::QuotaSet => 23,
        Action::QuotaDeleted => 24,
        Action::Restored => 25,
        Action::RestoreHoldEnded => 26,
        Action::Imported => 27,
        Action::PortsChanged => 28,
        Action::PoolMoved => 29,
        Action::Probing => 30,
        Action::FoundInUse => 31,
        Action::NetworksSeparated => 32,
        Action::SeparationWithdrawn => 33,
        Action::Labelled => 34,
        Action::KeyRotated => 35,
        Action::TakenOver => 36,
        Action::RulesChanged => 37,
        Action::ServicesChanged => 38,
        Action::SecretRotated => 39,
        Action::ClusterChanged => 40,
        Action::NetworkHeld => 44,
        Action::ClockAccepted => 41,
        Action::ClockReset => 42,
    }
}

pub(super) fn action(code: u8) -> Result<Action, DecodeError> {
    decode("action", &Action::ALL, of_action, code)
}

/// The one of these choices that has the number.
fn decode<T: Copy>(
    what: &'static str,
    all: &[T],
    code_of: impl Fn(T) -> u8,
    code: u8,
) -> Result<T, DecodeError> {
    let found = all.iter().copied().find(|one| code_of(*one) == code);
    found.ok_or_else(|| DecodeError::value(what, code))
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    /// Frozen: rows of every store have them.
    const ACTIONS: [(u8, Action); Action::ALL.len()] = [
        (0, Action::Allocated),
        (1, Action::Adopted),
        (2, Action::Contended),
        (3, Action::ContenderLeft),
        (4, Action::InstanceChanged),
        (5, Action::HandedOver),
        (6, Action::Released),
        (7, Action::PassedOn),
        (8, Action::Orphaned),
        (9, Action::Forgotten),
        (10, Action::NetworkCreated),
        (11, Action::PoolCreated),
        (12, Action::PoolUpdated),
        (13, Action::PoolDeleted),
        (14, Action::ClusterRecorded),
        (15, Action::ClusterAdopted),
        (16, Action::AdoptionSkipped),
        (17, Action::AccountChanged),
        (18, Action::AccountDeleted),
        (19, Action::TokenCreated),
        (20, Action::TokenDeleted),
        (21, Action::Reserved),
        (22, Action::Expired),
        (23, Action::QuotaSet),
        (24, Action::QuotaDeleted),
        (25, Action::Restored),
        (26, Action::RestoreHoldEnded),
        (27, Action::Imported),
        (28, Action::PortsChanged),
        (29, Action::PoolMoved),
        (30, Action::Probing),
        (31, Action::FoundInUse),
        (32, Action::NetworksSeparated),
        (33, Action::SeparationWithdrawn),
        (34, Action::Labelled),
        (35, Action::KeyRotated),
        (36, Action::TakenOver),
        (37, Action::RulesChanged),
        (38, Action::ServicesChanged),
        (39, Action::SecretRotated),
        (40, Action::ClusterChanged),
        (41, Action::ClockAccepted),
        (42, Action::ClockReset),
        (44, Action::NetworkHeld),
    ];

    fn assert_frozen<T: Copy + PartialEq + Debug, const N: usize>(
        numbers: [(u8, T); N],
        of: fn(T) -> u8,
        read: fn(u8) -> Result<T, DecodeError>,
    ) {
        for (number, choice) in numbers {
            assert_eq!(of(choice), number, "{choice:?}");
        }
        for code in 0..=u8::MAX {
            let known = numbers.iter().find(|(number, _)| *number == code);
            assert_eq!(read(code).ok(), known.map(|(_, choice)| *choice), "{code}");
        }
    }

    #[test]
    fn every_choice_keeps_its_number() {
        assert_frozen(ACTIONS, of_action, action);
        let states: [_; LeaseState::ALL.len()] = [
            (0, LeaseState::Allocated),
            (1, LeaseState::Reserved),
            (2, LeaseState::Probing),
            (3, LeaseState::Quarantined),
            (4, LeaseState::Orphaned),
        ];
        assert_frozen(states, of_state, state);
        let roles: [_; Role::ALL.len()] =
            [(0, Role::Viewer), (1, Role::Operator), (2, Role::Admin)];
        assert_frozen(roles, of_role, role);
        let protocols: [_; Protocol::ALL.len()] =
            [(0, Protocol::Tcp), (1, Protocol::Udp), (2, Protocol::Sctp)];
        let protocol = |code| port(code, 1).map(|claim| claim.protocol);
        assert_frozen(protocols, of_protocol, protocol);
        let orders: [_; Order::ALL.len()] = [
            (0, Order::Lowest),
            (1, Order::Random),
            (2, Order::LeastRecentlyUsed),
        ];
        assert_frozen(orders, of_order, order);
        let reserved: [_; EndsOf::ALL.len()] = [(0, EndsOf::Prefix), (1, EndsOf::EachCidr)];
        assert_frozen(reserved, of_ends, ends);
    }
}
