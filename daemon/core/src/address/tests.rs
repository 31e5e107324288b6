use super::*;

fn spec(text: &str) -> AddressSpec {
    text.parse().expect(text)
}

#[test]
fn the_three_forms_come_back_as_they_were_written() {
    for text in [
        "10.0.0.0/24",
        "10.0.0.7",
        "10.0.0.10-10.0.0.20",
        "2001:db8::/64",
        "::1",
        "fd00::1-fd00::ff",
        "0.0.0.0/0",
        "::/0",
    ] {
        assert_eq!(spec(text).to_string(), text);
    }
}

#[test]
fn text_is_normalised() {
    assert_eq!(spec("2001:0DB8:0:0::0001").to_string(), "2001:db8::1");
    assert_eq!(spec("::ffff:10.0.0.1").to_string(), "10.0.0.1");
    assert_eq!(spec("::ffff:10.0.0.0/120").to_string(), "10.0.0.0/24");
    assert_eq!(
        spec("::ffff:10.0.0.1-10.0.0.3").to_string(),
        "10.0.0.1-10.0.0.3"
    );
}

#[test]
fn what_is_no_set_of_addresses_is_refused_with_the_reason() {
    for text in [
        "",
        " 10.0.0.1",
        "10.0.0",
        "10.0.0.01",
        "10.0.0.0/33",
        "10.0.0.0/+8",
        "10.0.0.0/08",
        "10.0.0.0/",
        "fe80::1%eth0",
        "a-b",
        "10.0.0.1-",
    ] {
        assert!(
            matches!(
                text.parse::<AddressSpec>(),
                Err(AddressError::Unparsable(_))
            ),
            "{text}"
        );
    }
    assert_eq!(
        "10.0.0.7/24"
            .parse::<AddressSpec>()
            .unwrap_err()
            .to_string(),
        "\"10.0.0.7/24\": the CIDR has host bits set; did you mean 10.0.0.0/24?"
    );
    assert!(matches!(
        "10.0.0.1-::1".parse::<AddressSpec>(),
        Err(AddressError::MixedFamilies(_))
    ));
    assert!(matches!(
        "10.0.0.2-10.0.0.1".parse::<AddressSpec>(),
        Err(AddressError::Reversed(_))
    ));
}

#[test]
fn spans_count_without_overflow() {
    assert_eq!(spec("10.0.0.0/8").span().len(), 1 << 24);
    assert_eq!(spec("0.0.0.0/0").span().len(), 1 << 32);
    assert_eq!(spec("2001:db8::/64").span().len(), 1 << 64);
    assert_eq!(spec("::/0").span().len(), u128::MAX);
    assert_eq!(spec("255.255.255.255").span().len(), 1);
}

#[test]
fn networks_around_a_number() {
    let last = number("10.1.2.255".parse().unwrap());
    assert_eq!(Family::V4.network(last, 24), spec("10.1.2.0/24").span());
    assert_eq!(Family::V4.network(last, 0), spec("0.0.0.0/0").span());
    assert_eq!(Family::V4.network(last, 32), spec("10.1.2.255").span());
    assert_eq!(Family::V6.network(u128::MAX, 0), spec("::/0").span());
    assert_eq!(Family::V6.network(5, 128), spec("::5").span());
}

#[test]
fn serde_uses_the_text() {
    let value: AddressSpec = AddressSpec::try_from(String::from("10.0.0.0/30")).unwrap();
    assert_eq!(String::from(value), "10.0.0.0/30");
}
