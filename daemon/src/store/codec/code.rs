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
    use super::{action, of_action, of_role, of_state, role, state};

    #[test]
    fn codes_are_read_back_as_written() {
        for code in 0..=u8::MAX {
            assert!(
                action(code).map(of_action).is_ok_and(|again| again == code) || code > 39,
                "action {code}"
            );
            assert!(
                state(code).map(of_state).is_ok_and(|again| again == code) || code > 4,
                "state {code}"
            );
            assert!(
                role(code).map(of_role).is_ok_and(|again| again == code) || code > 2,
                "role {code}"
            );
        }
    }
}
