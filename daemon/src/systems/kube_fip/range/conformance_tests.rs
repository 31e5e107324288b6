use std::sync::Arc;

use fipd_core::System;
use fipd_crds::kube_fip::FloatingIPRange;
use serde_json::{Value, json};

use super::{RangeSource, RangeView, view};
use crate::{
    controller::{
        kind::Kind,
        pool_source::conformance_tests::{Subject, conforms},
        site::Site,
        store::Objects,
    },
    systems::kube_fip::{names::RANGE, settings::KubeFipSettings},
};

struct FloatingIpRanges;

impl Subject for FloatingIpRanges {
    type Source = RangeSource;

    const KIND: Kind = RANGE;

    fn system() -> System {
        System::kube_fip()
    }

    fn source(_: &Arc<Site>) -> RangeSource {
        RangeSource::new(&KubeFipSettings::default(), None, Objects::new())
    }

    fn object(first: u8, last: u8) -> Value {
        let outside = match first <= last {
            true => format!("10.7.0.{}-10.7.0.254", u32::from(last) + 1),
            false => format!("10.7.0.{first}-10.7.0.{last}"),
        };
        json!({ "iprange": format!("10.7.0.{first}/24"), "exclusions": [outside] })
    }

    fn view(object: Value) -> Option<RangeView> {
        let object: Result<FloatingIPRange, _> = serde_json::from_value(object);
        object.ok().map(view)
    }
}

#[tokio::test]
async fn floating_ip_ranges_conform() {
    assert_eq!(conforms::<FloatingIpRanges>().await, Ok(()));
}
