//! Rows that are pasted or uploaded.

use super::*;

const IMPORT: &str = "/ui/import";

/// `rows` as a form sends it.
fn rows(text: &str) -> String {
    let escaped = text.bytes().map(|byte| format!("%{byte:02X}"));
    format!("rows={}", escaped.collect::<String>())
}

/// A form sent in parts, as browsers do where a file may come with it.
fn parts(visitor: &Visitor<'_>, fields: &[(&str, &[u8])]) -> Request<Body> {
    let mut body = Vec::new();
    let csrf = ("csrf", visitor.csrf.as_bytes());
    for (name, value) in [csrf].iter().chain(fields) {
        let head = "--edge\r\nContent-Disposition: form-data; name=";
        let file = if *name == "file" {
            "; filename=\"rows.csv\"\r\nContent-Type: text/csv"
        } else {
            ""
        };
        body.extend_from_slice(format!("{head}\"{name}\"{file}\r\n\r\n").as_bytes());
        body.extend_from_slice(value);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--edge--\r\n");
    Request::post(IMPORT)
        .header(header::COOKIE, &visitor.cookie)
        .header(header::CONTENT_TYPE, "multipart/form-data; boundary=edge")
        .body(Body::from(body))
        .unwrap()
}

async fn admin(site: &Site) -> Visitor<'_> {
    site.account("root", Role::Admin, PASSWORD).await;
    site.visitor("root").await
}

#[tokio::test]
async fn rows_are_looked_at_and_then_written() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    assert!(admin.get("/ui/leases").await.html.contains(IMPORT));
    let form = admin.get(IMPORT).await;
    assert!(form.html.contains("multipart/form-data"), "{}", form.html);
    let operator = site.visitor("operator").await;
    assert!(!operator.get("/ui/leases").await.html.contains(IMPORT));

    let text = "address,owner\r\n10.0.0.7,fipd/host/lab/a\r\n10.0.0.8,fipd/host/lab/b\r\n";
    let page = admin.post(IMPORT, &rows(text)).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.html);
    for part in ["Import 2 rows?", "lease 10.0.0.8", "fipd/host/lab/b"] {
        assert!(page.html.contains(part), "no {part} in {}", page.html);
    }
    assert!(!site.holds("10.0.0.7"), "it was only looked at");
    let seen = field(&page.html, "seen");
    let page = admin
        .post(IMPORT, &format!("step=edit&{}", rows(text)))
        .await;
    assert!(
        page.html
            .contains("10.0.0.8,fipd/host/lab/b\r\n</textarea>")
    );
    // Another page of it is the same import, unless something changed meanwhile.
    let turn = |seen: &str| format!("page=1&seen={seen}&{}", rows(text));
    let page = admin.post(IMPORT, &turn(&seen)).await;
    assert!(field(&page.html, "seen") == seen && !page.html.contains("Something changed"));
    let page = admin.post(IMPORT, &turn("0123456789abcdef")).await;
    assert!(page.html.contains("Something changed"), "{}", page.html);
    let go = format!("step=do&seen={seen}&{}", rows(text));
    let page = admin.post(IMPORT, &go).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    let list = admin.get("/ui/leases").await.html;
    assert!(list.contains("Imported: 2 made, 0 changed."), "{list}");
    assert!(site.holds("10.0.0.7") && site.holds("10.0.0.8"));

    // Once more: what was shown is not what would happen.
    let page = admin.post(IMPORT, &go).await;
    assert_eq!(page.status, StatusCode::CONFLICT);
    assert!(
        page.html.contains("Something changed since") && page.html.contains("Nothing to import")
    );
}

#[tokio::test]
async fn one_wrong_row_keeps_all_others_out_and_the_text_stays() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    let good = |at: usize| format!("10.0.0.{at},fipd/host/lab/m-{at}");
    let mut lines: Vec<_> = (2..150).map(good).collect();
    lines.insert(0, "address,owner".to_owned());
    lines.push("10.0.0.300,fipd/host/lab/<b>".to_owned());
    let text = lines.join("\n");
    let page = admin.post(IMPORT, &rows(&text)).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    let html = &page.html;
    for part in [
        "1 row is wrong",
        "These are 1 to 100 of 149 rows, the wrong ones first.",
        "name=\"page\" value=\"2\"",
        "10.0.0.300,fipd/host/lab/&#60;b&#62;</textarea>",
    ] {
        assert!(html.contains(part), "no {part} in {html}");
    }
    let (_, first) = html.split_once("<tbody>").unwrap();
    let first = first.split("</tr>").next().unwrap();
    assert!(
        first.contains(">150<") && first.contains("wrong</span>"),
        "{first}"
    );
    let second = admin.post(IMPORT, &format!("page=2&{}", rows(&text))).await;
    let second = second.html;
    for part in ["These are 101 to 149 of 149 rows", ">lease 10.0.0.149<"] {
        assert!(second.contains(part), "no {part} in {second}");
    }
    assert!(!second.contains(">lease 10.0.0.2<"), "{second}");
    let wrong = admin
        .post(IMPORT, &format!("step=look&only=wrong&{}", rows(&text)))
        .await;
    let table = wrong.html.split_once("<tbody>").unwrap().1;
    let table = table.split_once("</tbody>").unwrap().0;
    assert_eq!(table.matches("<tr>").count(), 1, "{table}");
    assert!(wrong.html.contains("<option value=\"wrong\" selected>"));
    let go = format!("step=do&seen=&{}", rows(&text));
    assert_eq!(admin.post(IMPORT, &go).await.status, StatusCode::CONFLICT);
    assert!(!site.holds("10.0.0.2"));

    let page = admin.post(IMPORT, &rows(" \n")).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    let error = "id=\"rows-error\">Paste rows, or choose a file.";
    assert!(page.html.contains(error), "{}", page.html);
}

#[tokio::test]
async fn a_file_is_read_and_what_is_no_text_is_refused() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    let line = b"{\"address\":\"10.0.0.9\",\"owner\":\"fipd/host/lab/a\"}\n";
    let page = site
        .send(parts(&admin, &[("rows", b""), ("file", line)]))
        .await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.html);
    assert!(page.html.contains("Import 1 row?"), "{}", page.html);
    let both: [(&str, &[u8]); 2] = [("rows", line), ("file", line)];
    let page = site.send(parts(&admin, &both)).await;
    assert!(page.html.contains("id=\"file-error\">Choose a file"));
    let page = site.send(parts(&admin, &[("file", b"\xff\xfe")])).await;
    assert_eq!(page.status, StatusCode::BAD_REQUEST);
    assert!(
        page.html.contains("file is no text in UTF-8"),
        "{}",
        page.html
    );
    let large = vec![b'a'; 5 << 20];
    let page = site.send(parts(&admin, &[("file", &large)])).await;
    assert_eq!(page.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(page.html.contains("larger than 4,112 KiB"), "{}", page.html);
    let large = [("file", large.split_at(3 << 20).0)];
    let page = site.send(parts(&admin, &large)).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(page.html.contains("id=\"file-error\">At most 2 MiB here"));
    let seen = field(
        &site.send(parts(&admin, &[("file", line)])).await.html,
        "seen",
    );
    let go: [(&str, &[u8]); 3] = [("rows", line), ("seen", seen.as_bytes()), ("step", b"do")];
    let page = site.send(parts(&admin, &go)).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    assert!(site.holds("10.0.0.9"));
    // A form of another session, or of none.
    let mut stranger = admin;
    stranger.csrf = "stolen".to_owned();
    let page = site.send(parts(&stranger, &go)).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
}
