//! Clusters that are taken in and out on the pages.

use super::*;

pub(super) const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{ name: a, cluster: { server: \"https://127.0.0.1:1\" } }]\nusers: [{ name: a, user: { token: t-o-p } }]\ncontexts: [{ name: a, context: { cluster: a, user: a } }]\n";

/// The form as a browser sends it.
pub(super) fn upload(name: &str, kubeconfig: &str) -> String {
    let escaped = kubeconfig.bytes().map(|byte| format!("%{byte:02X}"));
    let escaped: String = escaped.collect();
    format!("name={name}&claims=yes&kubeconfig={escaped}")
}

#[tokio::test]
async fn admins_upload_a_kubeconfig_leave_the_cluster_and_remove_it() {
    let site = Site::new().await;
    site.account("root", Role::Admin, PASSWORD).await;
    let (admin, operator) = (site.visitor("root").await, site.visitor("operator").await);
    let form = admin.get("/ui/clusters/new").await;
    assert!(form.html.contains("multipart/form-data"), "{}", form.html);
    let page = operator
        .post("/ui/clusters/new", &upload("east", KUBECONFIG))
        .await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    let page = admin
        .post("/ui/clusters/new", &upload("east", KUBECONFIG))
        .await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    let east = admin.get("/ui/clusters/east").await;
    for text in [
        "Cluster east",
        "added here",
        "claims",
        "/ui/clusters/east/remove",
    ] {
        assert!(east.html.contains(text), "no {text} in {}", east.html);
    }
    assert!(!east.html.contains("t-o-p"), "{}", east.html);
    let seen = operator.get("/ui/clusters/east").await;
    assert!(!seen.html.contains("/ui/clusters/east/detach"));

    let ask = admin.get("/ui/clusters/east/detach").await;
    assert!(ask.html.contains("run it again when"), "{}", ask.html);
    let ask = admin.get("/ui/clusters/east/remove").await;
    assert!(
        ask.html.contains("fipd clusters forget east"),
        "{}",
        ask.html
    );
    let page = admin.post("/ui/clusters/east/remove", "").await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    let gone = admin.get("/ui/clusters/east").await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn another_kubeconfig_keeps_what_was_said_of_the_cluster() {
    let site = Site::new().await;
    site.account("root", Role::Admin, PASSWORD).await;
    let admin = site.visitor("root").await;
    let settings = "settings=insecure-skip-tls-verify+%3D+true";
    let first = format!("{}&ip-rule=yes&{settings}", upload("east", KUBECONFIG));
    let page = admin.post("/ui/clusters/new", &first).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    let systems = || {
        let view = site.api.clusters.view("east").unwrap();
        view.systems
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let both = ["claims", "ip-rule"];
    assert_eq!(systems(), both);

    let form = admin.get("/ui/clusters/new?name=east").await.html;
    for text in [
        "name=\"filled\" value=\"east\"",
        "insecure-skip-tls-verify = true",
    ] {
        assert!(form.contains(text), "no {text} in {form}");
    }
    assert_eq!(form.matches("checked").count(), 2, "{form}");
    // Sent from the page of a new cluster, which shows none of it.
    let blind = upload("east", KUBECONFIG).replace("&claims=yes", "");
    let page = admin.post("/ui/clusters/new", &blind).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    assert_eq!(systems(), both);
    let said = site.api.clusters.said_of("east").unwrap();
    assert_eq!(said.settings, "insecure-skip-tls-verify = true");
    // Whoever saw them and took a tick away means it.
    let meant = format!("{}&filled=east", upload("east", KUBECONFIG));
    admin.post("/ui/clusters/new", &meant).await;
    assert_eq!(systems(), ["claims"]);
    assert_eq!(site.api.clusters.said_of("east").unwrap().settings, "");
}

#[tokio::test]
async fn a_form_without_its_file_keeps_what_was_typed() {
    let site = Site::new().await;
    site.account("root", Role::Admin, PASSWORD).await;
    let admin = site.visitor("root").await;
    let form = "name=east&claims=yes&settings=typed+before";
    let page = admin.post("/ui/clusters/new", form).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(page.html.contains("typed before"), "{}", page.html);
    assert_eq!(page.html.matches("checked").count(), 1, "{}", page.html);
}

#[tokio::test]
async fn what_is_refused_of_a_cluster_is_said_beside_its_field_and_the_rest_is_kept() {
    let site = Site::new().await;
    site.account("root", Role::Admin, PASSWORD).await;
    let admin = site.visitor("root").await;
    let program = KUBECONFIG.replace("{ token: t-o-p }", "{ exec: { command: sh } }");
    for (form, field, why) in [
        (upload("east", &program), "kubeconfig", "exec is refused"),
        (upload("EAST", KUBECONFIG), "name", "must be 1 to 63 of"),
        (upload("east", KUBECONFIG), "settings", "unknown field"),
    ] {
        let form = match field {
            "settings" => format!("{form}&settings=typed-before+%3D+1"),
            _ => format!("{form}&settings=%23+typed-before"),
        };
        let page = admin.post("/ui/clusters/new", &form).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
        let beside = format!("<p class=\"wrong\" id=\"{field}-error\">");
        let (_, said) = page.html.split_once(&beside).unwrap_or_default();
        let said = said.split("</p>").next().unwrap_or_default();
        assert!(said.contains(why), "{field}: {}", page.html);
        assert!(page.html.contains("typed-before"), "{}", page.html);
        assert_eq!(page.html.matches("checked").count(), 1, "{}", page.html);
    }
    let page = admin.post("/ui/clusters/new", "name=east").await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        admin.get("/ui/clusters/east").await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn who_leaves_a_cluster_that_is_not_there_is_told_that_nothing_was_changed() {
    let site = Site::new().await;
    site.account("root", Role::Admin, PASSWORD).await;
    let admin = site.visitor("root").await;
    let page = admin.post("/ui/clusters/nowhere/detach", "").await;
    assert_eq!(page.status, StatusCode::NOT_FOUND);
    let said = page.html.contains("Nothing was changed here.");
    assert!(said, "{}", page.html);
}

#[tokio::test]
async fn what_cannot_be_noted_is_not_done() {
    let site = Site::new().await;
    site.account("root", Role::Admin, PASSWORD).await;
    let admin = site.visitor("root").await;
    let page = admin
        .post("/ui/clusters/new", &upload("east", KUBECONFIG))
        .await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    let file = site.api.data_dir.join("clusters.json");
    let before = std::fs::read(&file).unwrap();
    // The audit log takes nothing more.
    site.api.ipam.shutdown().await;
    for (path, form, untouched) in [
        ("/ui/clusters/new", upload("west", KUBECONFIG), false),
        ("/ui/clusters/east/remove", String::new(), true),
        ("/ui/clusters/east/detach", String::new(), true),
    ] {
        let page = admin.post(path, &form).await;
        assert_eq!(page.status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(page.html.contains("Nothing was changed here."), untouched);
        assert_eq!(std::fs::read(&file).unwrap(), before, "{path}");
    }
}
