//! The page of settings.

use postrider_server::{EffectiveSettings, ServerOptions, Setting, SettingOrigin, SettingsGroup};

use crate::browser::Browser;
use crate::gateway::Gateway;

#[tokio::test]
async fn an_admin_sees_what_is_in_force_and_where_it_comes_from() {
    let setting = |name: &str, value: &str, origin| Setting {
        name: name.to_owned(),
        about: "What it does".to_owned(),
        value: value.to_owned(),
        origin,
    };
    let group = SettingsGroup {
        name: "Sending".to_owned(),
        settings: vec![
            setting("--timeout", "3s", SettingOrigin::CommandLine),
            setting("--drain", "20s", SettingOrigin::Default),
            setting("--data", "<b>\u{1b}[2J", SettingOrigin::Variable("POSTRIDER_DATA".into())),
        ],
    };
    let settings = EffectiveSettings { groups: vec![group] };
    let gateway = Gateway::start_with(ServerOptions { settings, ..ServerOptions::default() }).await;
    let admin = Browser::with_key(&gateway, &gateway.client.key).await;
    let page = admin.get("/settings").await.expect(200);
    for text in ["Sending", "--timeout", "3s", "command line", "default", "POSTRIDER_DATA"] {
        page.assert_has(text);
    }
    page.assert_lacks("<b>");
    page.assert_lacks("\u{1b}");

    let tenant = Browser::with_key(&gateway, &gateway.tenant("acme").await.key).await;
    let refused = tenant.get("/settings").await.expect(403);
    refused.assert_lacks("--timeout");
}

#[tokio::test]
async fn a_gateway_that_says_nothing_of_itself_says_so() {
    let browser = Browser::signed_in().await;
    browser.get("/settings").await.expect(200).assert_has("says nothing of its settings");
}
