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
        "<th scope=\"row\">delete</th>",
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

/// The list that filters count for.
fn listed(html: &str) -> &str {
    let list = html.split("id=\"live-rules\"").nth(1).unwrap();
    list.split("Rules of others").next().unwrap()
}
