//! The numbers that stand for choices in rows. Frozen: a number is never given another meaning.

use fipd_core::{Action, EndsOf, LeaseState, Order, PortClaim, Protocol, Role};

use super::DecodeError;

/// The functions from the choices of a kind to their numbers and back.
macro_rules! codes {
    ($of:ident, $back:ident: $type:ident, $what:literal {
        $($choice:ident = $code:literal,)+
    }) => {
        pub(super) fn $of(choice: $type) -> u8 {
            match choice {
                $($type::$choice => $code,)+
            }
        }

        pub(super) fn $back(code: u8) -> Result<$type, DecodeError> {
            match code {
                $($code => Ok($type::$choice),)+
                _ => Err(DecodeError::value($what, code)),
            }
        }
    };
}

codes!(of_state, state: LeaseState, "lease state" {
    Allocated = 0,
    Reserved = 1,
    Probing = 2,
    Quarantined = 3,
    Orphaned = 4,
});

codes!(of_role, role: Role, "role" {
    Viewer = 0,
    Operator = 1,
    Admin = 2,
});

codes!(of_protocol, protocol: Protocol, "protocol" {
    Tcp = 0,
    Udp = 1,
    Sctp = 2,
});

pub(super) fn of_port(claim: &PortClaim) -> (u8, u16) {
    (of_protocol(claim.protocol), claim.port)
}

pub(super) fn port(code: u8, port: u16) -> Result<PortClaim, DecodeError> {
    let protocol = protocol(code)?;
    Ok(PortClaim { protocol, port })
}

codes!(of_ends, ends: EndsOf, "reserved ends" {
    Prefix = 0,
    EachCidr = 1,
});

codes!(of_order, order: Order, "order" {
    Lowest = 0,
    Random = 1,
    LeastRecentlyUsed = 2,
});

codes!(of_action, action: Action, "action" {
    Allocated = 0,
    Adopted = 1,
    Contended = 2,
    ContenderLeft = 3,
    InstanceChanged = 4,
    HandedOver = 5,
    Released = 6,
    PassedOn = 7,
    Orphaned = 8,
    Forgotten = 9,
    NetworkCreated = 10,
    PoolCreated = 11,
    PoolUpdated = 12,
    PoolDeleted = 13,
    ClusterRecorded = 14,
    ClusterAdopted = 15,
    AdoptionSkipped = 16,
    AccountChanged = 17,
    AccountDeleted = 18,
    TokenCreated = 19,
    TokenDeleted = 20,
    Reserved = 21,
    Expired = 22,
    QuotaSet = 23,
    QuotaDeleted = 24,
    Restored = 25,
    RestoreHoldEnded = 26,
    Imported = 27,
    PortsChanged = 28,
    PoolMoved = 29,
    Probing = 30,
    FoundInUse = 31,
    NetworksSeparated = 32,
    SeparationWithdrawn = 33,
    Labelled = 34,
    KeyRotated = 35,
    TakenOver = 36,
    RulesChanged = 37,
    ServicesChanged = 38,
    SecretRotated = 39,
    ClusterChanged = 40,
    NetworkHeld = 44,
    ClockAccepted = 41,
    ClockReset = 42,
});

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
