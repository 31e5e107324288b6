//! What tenants hold of pools, and what they may.

use askama::Template;
use fipd_core::PoolUsage;

use crate::{Column, Form, Pager, Shell, Usage};

/// One tenant in one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRow {
    pub tenant: String,
    /// What people call it; empty: nothing else.
    pub name: String,
    pub pool: u32,
    pub pool_name: String,
    pub used: u64,
    /// `None`: any number.
    pub limit: Option<u64>,
}

/// Tenants by pool, and the form for who may set limits.
#[derive(Clone, Debug, Template)]
#[template(path = "tenants.html")]
pub struct TenantsPage {
    pub shell: Shell,
    pub filters: Form,
    pub columns: Vec<Column>,
    pub rows: Vec<TenantRow>,
    /// How many pools of tenants were looked at, where there are more.
    pub cut: Option<u64>,
    pub pager: Pager,
    /// Tenant, pool and limit; an empty limit takes it away.
    pub form: Option<Form>,
}

/// `ID (NAME)`, or the id alone where there is no name.
pub(crate) fn labelled(id: &str, name: &str) -> String {
    match name {
        "" => id.to_owned(),
        name => format!("{id} ({name})"),
    }
}

impl TenantRow {
    /// The share of its limit that is used; `None` where there is no limit.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let limit = u128::from(self.limit?);
        let used = u128::from(self.used);
        Some(Usage(PoolUsage {
            size: limit,
            used,
            free: limit.saturating_sub(used),
            ..PoolUsage::default()
        }))
    }

    /// What is worth a word; empty while there is room.
    pub(crate) fn remark(&self) -> &'static str {
        match self.limit {
            Some(limit) if self.used > limit => "above the limit",
            Some(limit) if self.used == limit => "no more is given",
            Some(_) | None => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn page(form: Option<Form>) -> TenantsPage {
        let row = |tenant: &str, used, limit| TenantRow {
            tenant: tenant.into(),
            name: if tenant == "b" { "Shop & Co" } else { "" }.into(),
            pool: 3,
            pool_name: "dmz".into(),
            used,
            limit,
        };
        TenantsPage {
            shell: sample::shell(true),
            filters: Form::default(),
            columns: vec![Column::plain("Tenant")],
            rows: vec![
                row("team<a>", 1_204, Some(1_200)),
                row("b", 2, Some(2)),
                row("c", 7, None),
            ],
            cut: None,
            pager: Pager::default(),
            form,
        }
    }

    #[test]
    fn use_and_limit_are_shown() {
        let html = page(None).render().unwrap();
        for text in [
            "team&#60;a&#62;",
            "1,204",
            "1,200",
            "above the limit",
            "no more is given",
            "none",
            "href=\"/ui/pools/3\"",
            "href=\"/ui/leases?tenant=c\"",
            "class=\"bar full\"",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
        assert!(!html.contains("Set limit"), "{html}");
        assert!(!html.contains("There are more"), "{html}");
    }

    #[test]
    fn a_list_that_was_cut_says_so() {
        let page = TenantsPage {
            cut: Some(200_000),
            ..page(None)
        };
        let html = page.render().unwrap();
        assert!(html.contains("only the first 200,000 were looked at"));
    }

    #[test]
    fn mistakes_stand_beside_their_field_and_input_is_kept() {
        let form = sample::form(&[
            ("tenant", "team<a>", ""),
            ("pool", "nope", "nope is wrong"),
            ("limit", "-1", "-1 is wrong"),
        ]);
        assert!(form.failed() && !Form::default().failed());
        let html = page(Some(form)).render().unwrap();
        for text in [
            "action=\"/ui/tenants\" method=\"post\"",
            "value=\"team&#60;a&#62;\"",
            "id=\"pool-error\">nope is wrong",
            "id=\"limit-error\">-1 is wrong",
            "aria-invalid=\"true\" aria-describedby=\"pool-error\"",
            "name=\"csrf\" value=\"c5rf\"",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn without_tenants_it_is_said_where_they_come_from() {
        let page = TenantsPage {
            rows: vec![],
            ..page(None)
        };
        assert!(page.render().unwrap().contains("given for a tenant"));
    }
}
