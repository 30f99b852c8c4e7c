//! That these tests could fail: what a page does wrong is seen.

use crate::gateway::Launch;
use crate::page::Visit;

#[tokio::test]
async fn what_the_policy_stops_and_what_a_script_throws_is_in_the_log() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    let visit = Visit::new(&gateway).await;
    visit.open("/sign-in").await;
    assert!(visit.browser.title().await.expect("a title").contains("Postrider"));
    let quiet = visit.complaints().await;
    assert!(quiet.is_empty(), "{quiet:?}");
    for (wrong, says) in [
        (
            "const script = document.createElement('script'); script.textContent = '1'; \
             document.body.append(script);",
            "Content Security Policy",
        ),
        ("setTimeout(() => { throw new Error('thrown'); });", "thrown"),
        ("fetch('/no-such-page').catch(() => {});", "404"),
    ] {
        visit.browser.run(wrong, &[]).await.expect("it runs");
        visit.until_complaint(says).await;
    }
}
