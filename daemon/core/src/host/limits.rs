//! Numbers that a rule may have.

use std::ops::RangeInclusive;

/// Where fipd puts rules that name no priority, unless the configuration says otherwise. It ends before the rule that asks
/// the table `main`.
pub const BAND_FIRST: u32 = 10_000;
pub const BAND_LAST: u32 = 19_999;
/// The part of the packet mark that fipd writes in indexed mode, unless the configuration says otherwise.
pub const MARK_MASK: u32 = 0xff;

/// The kernel's own rules ask `main` and `default` at these.
const MAIN: u32 = 32_766;
const DEFAULT: u32 = 32_767;
/// Where any of these bits is set (`MARK_MAGIC_HOST_MASK`), the whole mark is Cilium's: it has an identity in the upper 16 bits
/// and its cluster's number in the lower 8. No mask is apart from that, so such packets are left alone.
pub const CILIUM_MARKS: u32 = 0x0f00;
/// Of kube-proxy (masquerade and drop) and of Cilium.
const FOREIGN_MARKS: [(&str, u32); 2] = [("kube-proxy", 0xc000), ("Cilium", CILIUM_MARKS)];
/// `RTPROT_*` of `linux/rtnetlink.h` and of the daemons that chose one: unspecified, redirects, the kernel, boot, static, and
/// 8 to 18, babel, ovn, openr, bgp, isis, ospf, rip, eigrp.
const FOREIGN_PROTOCOLS: [RangeInclusive<u8>; 7] = [
    0..=4,
    8..=18,
    42..=42,
    84..=84,
    99..=99,
    186..=189,
    192..=192,
];

/// A number that is not allowed, and what is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value} is not allowed; allowed is {allowed}")]
pub struct LimitError {
    pub value: String,
    pub allowed: String,
}

fn refused<T>(value: impl ToString, allowed: impl Into<String>) -> Result<T, LimitError> {
    Err(LimitError {
        value: value.to_string(),
        allowed: allowed.into(),
    })
}

/// A routing table. The kernel takes 0 as "choose one for me".
///
/// # Errors
/// It is not 1 to 2^32 - 1.
pub fn check_table(table: i64) -> Result<u32, LimitError> {
    match u32::try_from(table) {
        Ok(table) if table > 0 => Ok(table),
        Ok(_) | Err(_) => refused(table, "1 to 4294967295"),
    }
}

/// A priority; `None`: fipd chooses one from its band, as it does for 0.
///
/// # Errors
/// It is not 0 to 2^32 - 1, or the kernel has rules of its own there, were it those that come with `fail_closed`, whose
/// rule is at the next one.
pub fn check_priority(priority: i64, fail_closed: bool) -> Result<Option<u32>, LimitError> {
    let allowed = "0 (fipd chooses), 1 to 32765 and 32768 to 4294967295; with failClosed one less than each of these ends";
    let Ok(number) = u32::try_from(priority) else {
        return refused(priority, allowed);
    };
    let taken = |number: u32| number == MAIN || number == DEFAULT;
    let next_is_free = || number.checked_add(1).is_some_and(|next| !taken(next));
    match number {
        0 => Ok(None),
        _ if taken(number) => refused(priority, allowed),
        _ if fail_closed && !next_is_free() => refused(priority, allowed),
        _ => Ok(Some(number)),
    }
}

/// The tag of fipd's rules.
///
/// # Errors
/// It means somebody else.
pub fn check_protocol(protocol: u8) -> Result<(), LimitError> {
    match FOREIGN_PROTOCOLS.iter().any(|all| all.contains(&protocol)) {
        true => refused(
            protocol,
            "1 to 255 but those of others: 0 to 4, 8 to 18, 42, 84, 99, 186 to 189, 192",
        ),
        false => Ok(()),
    }
}

/// Where rules go that name no priority.
///
/// # Errors
/// It is empty, has 1000, where the kernel puts the rule of VRFs, or does not end before the rule of `main`.
pub fn check_band(first: u32, last: u32) -> Result<RangeInclusive<u32>, LimitError> {
    let band = first..=last;
    // The rule that fails closed is at the next one.
    match first == 0 || first >= last || last >= MAIN - 1 || band.contains(&1000) {
        true => refused(
            format!("{first}-{last}"),
            "two priorities or more from 1 to 32764 that leave out 1000, which is that of VRFs",
        ),
        false => Ok(band),
    }
}

/// The bits of the packet mark that are fipd's.
///
/// # Errors
/// They are none, not one run, or those of kube-proxy or Cilium.
pub fn check_mark_mask(mask: u32) -> Result<u32, LimitError> {
    let run = mask.checked_shr(mask.trailing_zeros()).unwrap_or_default();
    if mask == 0 || run & run.wrapping_add(1) != 0 {
        return refused(format!("{mask:#x}"), "one run of bits, such as 0xff");
    }
    match FOREIGN_MARKS.iter().find(|(_, bits)| bits & mask != 0) {
        Some((who, bits)) => refused(
            format!("{mask:#x}"),
            format!("one run of bits without {bits:#x}, by which {who} knows its packets"),
        ),
        None => Ok(mask),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conformance_11_tables_are_1_to_the_last() {
        for refused in [0, -1, 1 << 32, i64::MIN, i64::MAX] {
            assert!(check_table(refused).is_err(), "{refused}");
        }
        assert_eq!(check_table(1), Ok(1));
        assert_eq!(check_table(4_294_967_295), Ok(u32::MAX));
    }

    #[test]
    fn priorities_of_the_kernel_are_refused() {
        for refused in [-1, 32_766, 32_767, 1 << 32] {
            assert!(check_priority(refused, false).is_err(), "{refused}");
        }
        for refused in [32_765, i64::from(u32::MAX)] {
            assert!(check_priority(refused, true).is_err(), "{refused}");
            assert!(check_priority(refused, false).is_ok(), "{refused}");
        }
        assert_eq!(check_priority(0, true), Ok(None));
        assert_eq!(check_priority(1000, true), Ok(Some(1000)));
    }

    #[test]
    fn what_is_somebody_elses_is_refused() {
        for refused in [0, 2, 3, 4, 16, 42, 186, 192] {
            assert!(check_protocol(refused).is_err(), "{refused}");
        }
        assert!(check_protocol(200).is_ok() && check_protocol(5).is_ok());
        for (first, last) in [(0, 9), (900, 1100), (9, 9), (20_000, 32_765), (9, 8)] {
            assert!(check_band(first, last).is_err(), "{first}-{last}");
        }
        assert!(check_band(BAND_FIRST, BAND_LAST).is_ok());
        for refused in [0, 0x4000, 0xff00, 0x101, 0x0f00, u32::MAX] {
            assert!(check_mark_mask(refused).is_err(), "{refused:#x}");
        }
        for allowed in [MARK_MASK, 0x00ff_0000, 1 << 31, 1] {
            assert_eq!(check_mark_mask(allowed), Ok(allowed));
        }
    }
}
