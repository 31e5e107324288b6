//! The numbers that stand for choices in rows. Frozen: a number is never given another meaning.

use fipd_core::{Action, LeaseState, PortClaim, Protocol, Role};

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
    Ok(match code {
        0 => LeaseState::Allocated,
        1 => LeaseState::Reserved,
        2 => LeaseState::Probing,
        3 => LeaseState::Quarantined,
        4 => LeaseState::Orphaned,
        other => return Err(DecodeError::value("lease state", other)),
    })
}

pub(super) fn of_role(role: Role) -> u8 {
    match role {
        Role::Viewer => 0,
        Role::Operator => 1,
        Role::Admin => 2,
    }
}

pub(super) fn role(code: u8) -> Result<Role, DecodeError> {
    Ok(match code {
        0 => Role::Viewer,
        1 => Role::Operator,
        2 => Role::Admin,
        other => return Err(DecodeError::value("role", other)),
    })
}

pub(super) fn of_port(claim: &PortClaim) -> (u8, u16) {
    let protocol = match claim.protocol {
        Protocol::Tcp => 0,
        Protocol::Udp => 1,
        Protocol::Sctp => 2,
    };
    (protocol, claim.port)
}

pub(super) fn port(protocol: u8, port: u16) -> Result<PortClaim, DecodeError> {
    let protocol = match protocol {
        0 => Protocol::Tcp,
        1 => Protocol::Udp,
        2 => Protocol::Sctp,
        other => return Err(DecodeError::value("protocol", other)),
    };
    Ok(PortClaim { protocol, port })
}

/// Every action with its number. The order of [`action`] and this one are checked against each other by a test.
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
    Ok(match code {
        0 => Action::Allocated,
        1 => Action::Adopted,
        2 => Action::Contended,
        3 => Action::ContenderLeft,
        4 => Action::InstanceChanged,
        5 => Action::HandedOver,
        6 => Action::Released,
        7 => Action::PassedOn,
        8 => Action::Orphaned,
        9 => Action::Forgotten,
        10 => Action::NetworkCreated,
        11 => Action::PoolCreated,
        12 => Action::PoolUpdated,
        13 => Action::PoolDeleted,
        14 => Action::ClusterRecorded,
        15 => Action::ClusterAdopted,
        16 => Action::AdoptionSkipped,
        17 => Action::AccountChanged,
        18 => Action::AccountDeleted,
        19 => Action::TokenCreated,
        20 => Action::TokenDeleted,
        21 => Action::Reserved,
        22 => Action::Expired,
        23 => Action::QuotaSet,
        24 => Action::QuotaDeleted,
        25 => Action::Restored,
        26 => Action::RestoreHoldEnded,
        27 => Action::Imported,
        28 => Action::PortsChanged,
        29 => Action::PoolMoved,
        30 => Action::Probing,
        31 => Action::FoundInUse,
        32 => Action::NetworksSeparated,
        33 => Action::SeparationWithdrawn,
        34 => Action::Labelled,
        35 => Action::KeyRotated,
        36 => Action::TakenOver,
        37 => Action::RulesChanged,
        38 => Action::ServicesChanged,
        39 => Action::SecretRotated,
        40 => Action::ClusterChanged,
        44 => Action::NetworkHeld,
        41 => Action::ClockAccepted,
        42 => Action::ClockReset,
        other => return Err(DecodeError::value("action", other)),
    })
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
