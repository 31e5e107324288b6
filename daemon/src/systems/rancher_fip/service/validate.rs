//! Whether a Service is ours, and what it asks for.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::{Family, Tenant};

use super::observe::{Projects, Stack, Svc};
use crate::{
    controller::unserved::Unserved,
    systems::rancher_fip::names::{
        CLASS, FLOATING_IP, HOLDER, PROJECT, RANCHER_PROJECT, STATIC_IP, STATIC_NETWORK,
        rancher_project,
    },
};

/// What a Service asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// In the order of the ingress; one or two.
    pub families: Vec<Family>,
    /// Whether the second family may be left out.
    pub second_optional: bool,
    /// The pool its owner names.
    pub pool: Option<String>,
    /// The addresses its owner names.
    pub addresses: BTreeMap<Family, IpAddr>,
}

/// Who pays, and the Rancher cluster if the project's mark names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    pub tenant: Tenant,
    pub rancher_cluster: Option<String>,
}

/// Whether fipd serves this Service. One without class is another's if it has an address that we did not give;
/// one that has our lease and shows our marks stays ours even if `class_less` ones are not taken (any more).
pub fn is_ours(svc: &Svc, class_less: bool, has_lease: bool) -> bool {
    if !svc.balanced || svc.terminating {
        return false;
    }
    match svc.class.as_deref() {
        Some(class) => class == CLASS,
        None => {
            let known =
                has_lease || svc.marks.contains_key(HOLDER) || svc.marks.contains_key(FLOATING_IP);
            let taken = has_lease && svc.is_marked();
            taken || class_less && (svc.ingress.is_empty() || known)
        }
    }
}

/// Whether fipd serves this Service, also while it goes, or it carries what the family has written. `here`: fipd serves Services
/// of its class in this cluster; else they are another program's.
pub fn is_or_was_ours(svc: Svc, here: bool, class_less: bool) -> bool {
    let noted = svc.mark(FLOATING_IP).is_some_and(|noted| !noted.is_empty());
    let marked = noted || svc.has_finalizer() || svc.marks.contains_key(HOLDER);
    let living = Svc {
        terminating: false,
        ..svc
    };
    marked || here && is_ours(&living, class_less, false)
}

/// The wish for any address of the families, whatever the annotations say.
pub fn any(svc: &Svc) -> Wish {
    let mut families = svc.families.clone();
    families.dedup();
    if families.is_empty() {
        families.push(Family::V4);
    }
    families.truncate(if svc.stack == Stack::Single { 1 } else { 2 });
    Wish {
        families,
        second_optional: svc.stack == Stack::PreferDual,
        pool: None,
        addresses: BTreeMap::new(),
    }
}

/// Reads the wish.
pub fn wish(svc: &Svc) -> Result<Wish, Unserved> {
    let invalid = |message| Err(Unserved::new("Invalid", message, None));
    let mut wish = any(svc);
    if svc.stack == Stack::RequireDual && wish.families.len() < 2 {
        let message =
            "spec.ipFamilyPolicy is RequireDualStack but spec.ipFamilies names one family only";
        return invalid(message.to_owned());
    }
    let named = svc.mark(STATIC_IP).unwrap_or("");
    let texts = named.split(',').map(str::trim);
    for text in texts.filter(|text| !text.is_empty()) {
        let Ok(address) = text.parse() else {
            return invalid(format!(
                "annotation {STATIC_IP}: {text:?} is no IP address; correct it or remove the annotation"
            ));
        };
        let family = Family::of(address);
        if !wish.families.contains(&family) {
            return invalid(format!(
                "annotation {STATIC_IP}: {text} is of a family that spec.ipFamilies does not name"
            ));
        }
        if wish.addresses.insert(family, address).is_some() {
            return invalid(format!(
                "annotation {STATIC_IP}: {named:?} names two addresses of one family; one is allowed"
            ));
        }
    }
    let pool = svc.mark(STATIC_NETWORK).filter(|name| !name.is_empty());
    wish.pool = pool.map(str::to_owned);
    Ok(wish)
}

/// The project that is charged: of the configuration, of the app namespace, of the Service's namespace.
pub fn project(
    configured: Option<&str>,
    app: Option<&Projects>,
    namespace: Option<&Projects>,
    namespace_name: &str,
) -> Result<Project, Unserved> {
    let of_app = app.and_then(|app| app.own.as_deref());
    let of_namespace = namespace.and_then(|namespace| namespace.rancher.as_deref());
    let Some(value) = configured.or(of_app).or(of_namespace) else {
        let message = format!(
            "no Rancher project is known: set the label {RANCHER_PROJECT} on namespace {namespace_name:?}, the label {PROJECT} on the app namespace, or `project` in fipd's configuration"
        );
        return Err(Unserved::new("MissingProject", message, None));
    };
    let (_, tenant) = rancher_project(value);
    let rancher_cluster = of_namespace
        .and_then(|mark| rancher_project(mark).0)
        .map(str::to_owned);
    Ok(Project {
        tenant: Tenant(tenant.into()),
        rancher_cluster,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::rancher_fip::names::FINALIZER;

    fn svc() -> Svc {
        Svc {
            balanced: true,
            families: vec![Family::V4],
            ..Svc::default()
        }
    }

    fn marked(key: &'static str, value: &str) -> Svc {
        let mut svc = svc();
        svc.marks.insert(key, value.into());
        svc
    }

    #[test]
    fn ours_by_class_or_without_where_allowed() {
        let class = |class: &str| Svc {
            class: Some(class.into()),
            ..svc()
        };
        assert!(is_ours(&class(CLASS), false, false));
        assert!(!is_ours(&class("other"), true, true));
        assert!(is_ours(&svc(), true, false));
        assert!(!is_ours(&svc(), false, false));
        let served = Svc {
            ingress: vec!["10.0.0.9".into()],
            ..svc()
        };
        assert!(!is_ours(&served, true, false), "another gave it an address");
        assert!(is_ours(&served, true, true));
        let stock = Svc {
            ingress: vec!["10.0.0.9".into()],
            ..marked(FLOATING_IP, "10.0.0.9")
        };
        assert!(
            is_ours(&stock, true, false),
            "the original of this family gave it"
        );
        assert!(!is_ours(
            &Svc {
                balanced: false,
                ..class(CLASS)
            },
            true,
            true
        ));
        assert!(!is_ours(
            &Svc {
                terminating: true,
                ..class(CLASS)
            },
            true,
            true
        ));
    }

    #[test]
    fn another_programs_are_of_another_class_or_of_none_and_carry_no_mark() {
        let class = |class: Option<&str>| Svc {
            class: class.map(str::to_owned),
            ingress: vec!["10.0.0.9".into()],
            terminating: true,
            ..svc()
        };
        assert!(!is_or_was_ours(class(Some("other")), true, false));
        assert!(!is_or_was_ours(class(None), true, false));
        let given = is_or_was_ours(class(None), true, true);
        assert!(!given, "another gave it the address");
        assert!(is_or_was_ours(class(Some(CLASS)), true, false));
        let elsewhere = is_or_was_ours(class(Some(CLASS)), false, false);
        assert!(!elsewhere, "the original serves it");
        let finalizer = Svc {
            finalizers: vec![FINALIZER.into()],
            ..svc()
        };
        let holder = marked(HOLDER, "Service/X/ns/web/1");
        for marked in [finalizer, holder, marked(FLOATING_IP, "10.60.0.1")] {
            assert!(is_or_was_ours(marked, false, false));
        }
        assert!(!is_or_was_ours(marked(FLOATING_IP, ""), false, false));
    }

    #[test]
    fn a_class_less_one_that_was_taken_stays_when_no_more_are_taken() {
        let taken = Svc {
            finalizers: vec![FINALIZER.into()],
            ingress: vec!["10.0.0.9".into()],
            ..marked(HOLDER, "Service/c/ns/web/u")
        };
        assert!(is_ours(&taken, false, true));
        assert!(!is_ours(&taken, false, false), "it has no lease");
        assert!(!is_ours(&svc(), false, true), "it never showed one");
        let foreign = Svc {
            class: Some("other".into()),
            ..taken.clone()
        };
        assert!(!is_ours(&foreign, false, true));
        let plain = Svc {
            balanced: false,
            ..taken
        };
        assert!(!is_ours(&plain, false, true));
    }

    #[test]
    fn families_by_policy_in_their_order() {
        let both = Svc {
            families: vec![Family::V6, Family::V4],
            ..svc()
        };
        assert_eq!(wish(&both).expect("a wish").families, [Family::V6]);
        let prefer = wish(&Svc {
            stack: Stack::PreferDual,
            ..both.clone()
        })
        .expect("a wish");
        assert_eq!(
            (prefer.families.as_slice(), prefer.second_optional),
            (&[Family::V6, Family::V4][..], true)
        );
        let require = wish(&Svc {
            stack: Stack::RequireDual,
            ..both
        })
        .expect("a wish");
        assert!(!require.second_optional);
        assert!(
            wish(&Svc {
                stack: Stack::RequireDual,
                ..svc()
            })
            .is_err()
        );
    }

    #[test]
    fn a_bad_annotation_leaves_the_families() {
        let mut bad = marked(STATIC_IP, "10.0.0.700");
        bad.marks.insert(STATIC_NETWORK, "nowhere".into());
        let any = any(&bad);
        assert_eq!(any.families, [Family::V4]);
        assert_eq!((any.pool, any.addresses), (None, BTreeMap::new()));
    }

    #[test]
    fn wanted_addresses_are_read_and_checked() {
        let good = wish(&marked(STATIC_IP, " 10.0.0.7 ")).expect("a wish");
        assert_eq!(
            good.addresses.get(&Family::V4).map(ToString::to_string),
            Some("10.0.0.7".into())
        );
        for wrong in ["10.0.0.700", "2001:db8::1", "10.0.0.1,10.0.0.2"] {
            assert_eq!(
                wish(&marked(STATIC_IP, wrong)).expect_err(wrong).reason,
                "Invalid"
            );
        }
        assert_eq!(
            wish(&marked(STATIC_NETWORK, "dc--net"))
                .expect("a wish")
                .pool,
            Some("dc--net".into())
        );
    }

    #[test]
    fn projects_in_their_order() {
        let app = Projects {
            own: Some("p-app".into()),
            rancher: None,
        };
        let namespace = Projects {
            own: None,
            rancher: Some("c-m-1:p-ns".into()),
        };
        let of = |configured, app, namespace| {
            project(configured, app, namespace, "ns").map(|one| one.tenant.0)
        };
        assert_eq!(
            of(Some("p-conf"), Some(&app), Some(&namespace)).as_deref(),
            Ok("p-conf")
        );
        assert_eq!(
            of(None, Some(&app), Some(&namespace)).as_deref(),
            Ok("p-app")
        );
        let unmarked = Projects::default();
        assert_eq!(
            of(None, Some(&unmarked), Some(&namespace)).as_deref(),
            Ok("p-ns")
        );
        assert_eq!(
            of(None, None, None).expect_err("none").reason,
            "MissingProject"
        );
        let found = project(None, None, Some(&namespace), "ns").expect("a project");
        assert_eq!(found.rancher_cluster.as_deref(), Some("c-m-1"));
    }
}
