//! The page of the host's rules.

use super::*;
use crate::rules::rows::tests::view;

#[tokio::test]
async fn rules_are_shown_with_owner_state_plan_and_those_of_others_apart() {
    let site = Site::new().await;
    let viewer = site.visitor("viewer").await;
    let off = viewer.get("/ui/rules").await;
    assert!(off.html.contains("[[host.rules]]"), "{}", off.html);
    site.api.rules.show(view());
    let page = viewer.get("/ui/rules").await;
    assert_eq!(page.status, StatusCode::OK);
    for text in [
        "from 10.0.0.1 lookup 100 proto 200",
        "from 10.1.0.2 mark 0x1/0xfff lookup 200",
        "class=\"tag bad\">missing",
        ">shop<",
        "table 100 has no route",
        "Steps still to be done: 2.",
        "32766: from all lookup 254 proto 2",
    ] {
        assert!(page.html.contains(text), "no {text} in {}", page.html);
    }
    let found = viewer.get("/ui/rules?filter=farm&state=indexed").await;
    assert!(found.html.contains("from 10.1.0.1 mark"), "{}", found.html);
    let list = listed(&found.html);
    assert!(!list.contains("lookup 100"), "{list}");
    let others = viewer.get("/ui/rules?state=foreign").await;
    assert!(others.html.contains("from 10.9.9.9 lookup 100 proto 0"));
    let list = listed(&others.html);
    assert!(!list.contains("proto 200"), "{list}");
}

#[tokio::test]
async fn each_step_of_the_plan_is_listed() {
    let site = Site::new().await;
    let viewer = site.visitor("viewer").await;
    site.api.rules.show(view());
    let does = async |query: &str| {
        let html = viewer.get(&format!("/ui/rules?of=plan{query}")).await.html;
        let rows = listed(&html).split("<tr><th scope=\"row\">").skip(1);
        let word = |row: &str| row.split('<').next().unwrap().to_owned();
        rows.map(word).collect::<Vec<_>>()
    };
    assert_eq!(does("").await, ["add", "delete"]);
    assert_eq!(does("&sort=-does").await, ["delete", "add"]);
    assert_eq!(does("&does=delete").await, ["delete"]);
    assert_eq!(does("&filter=fd00::1").await, ["add"]);
    let none = viewer.get("/ui/rules?of=plan&filter=nothing").await.html;
    assert!(none.contains("No step is like that."), "{none}");
}

/// The list that filters count for.
fn listed(html: &str) -> &str {
    let list = html.split("id=\"live-rules\"").nth(1).unwrap();
    list.split("Rules of others").next().unwrap()
}
