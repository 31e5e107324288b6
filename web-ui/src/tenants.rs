//! What tenants hold of pools, and what they may.

use askama::Template;

use crate::{Column, Field, Form, Pager, Shell, Usage, count, links, shorten};

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

/// Sets a limit, or takes it away.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct QuotaForm {
    pub tenant: Field,
    pub pool: Field,
    /// Empty: none.
    pub limit: Field,
    /// What is wrong with no field.
    pub error: Option<String>,
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
    pub form: Option<QuotaForm>,
}

/// `ID (NAME)`, or the id alone where there is no name.
pub(crate) fn labelled(id: &str, name: &str) -> String {
    match name {
        "" => id.to_owned(),
        name => format!("{id} ({name})"),
    }
}

impl TenantRow {
    pub(crate) fn pool_link(&self) -> String {
        links::pool(self.pool)
    }

    pub(crate) fn short_tenant(&self) -> String {
        shorten(&self.tenant, 80)
    }

    /// Id and name, or the id alone.
    pub(crate) fn label(&self) -> String {
        labelled(&self.short_tenant(), &shorten(&self.name, 80))
    }

    pub(crate) fn short_pool(&self) -> String {
        shorten(&self.pool_name, 80)
    }

    /// What it holds.
    pub(crate) fn leases_link(&self) -> String {
        links::leases_of_tenant(&self.tenant)
    }

    /// The share of its limit that is used; `None` where there is no limit.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let limit = u128::from(self.limit?);
        let used = u128::from(self.used);
        Some(Usage {
            size: limit,
            used,
            free: limit.saturating_sub(used),
            ..Usage::default()
        })
    }

    pub(crate) fn used_count(&self) -> String {
        count(self.used.into())
    }

    pub(crate) fn limit_text(&self) -> String {
        self.limit
            .map_or_else(|| "none".to_owned(), |limit| count(limit.into()))
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

impl TenantsPage {
    /// How far the list goes; empty where it is whole.
    pub(crate) fn reach(&self) -> String {
        let cut = self.cut.map(|cut| count(cut.into()));
        cut.map_or_else(String::new, |cut| {
            format!("There are more: only the first {cut} were looked at, pool by pool.")
        })
    }
}

impl QuotaForm {
    /// Whether something has to be put right.
    pub fn failed(&self) -> bool {
        let fields = [&self.tenant, &self.pool, &self.limit];
        self.error.is_some() || fields.iter().any(|field| field.error.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn page(form: Option<QuotaForm>) -> TenantsPage {
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
        let wrong = |value: &str| Field {
            value: value.into(),
            error: Some(format!("{value} is wrong")),
        };
        let form = QuotaForm {
            tenant: Field {
                value: "team<a>".into(),
                error: None,
            },
            pool: wrong("nope"),
            limit: wrong("-1"),
            error: None,
        };
        assert!(form.failed() && !QuotaForm::default().failed());
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
