//! Lists of addresses and numbers, as objects write them.

use fipd_core::AddressSpec;

/// Each entry of a field, or which one is wrong.
pub fn address_specs(field: &str, texts: &[String]) -> Result<Vec<AddressSpec>, String> {
    let parse = |(index, text): (usize, &String)| {
        text.parse()
            .map_err(|wrong| format!("{field}[{index}]: {wrong}"))
    };
    texts.iter().enumerate().map(parse).collect()
}

/// The number in the type that takes it.
pub fn number<T: TryFrom<i64>>(field: &str, number: i64) -> Result<T, String> {
    T::try_from(number).map_err(|_| format!("{field}: {number} is out of range"))
}
