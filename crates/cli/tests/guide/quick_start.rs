//! The quick start, from an empty folder to a webhook that verifies.

use crate::verifying;
use crate::walk::{Walk, rows};

#[test]
fn the_quick_start_ends_with_a_signed_webhook_and_keeps_its_other_promises() {
    let mut walk = Walk::of("docs/guide/quick-start.md");
    walk.types("Start the gateway", "serve");
    walk.types("Start a receiver", "serve_forever");
    let answers = walk.types("Send an event", "order.created");
    assert!(answers.contains("\"secret\":\"whsec_"), "{answers}");
    assert!(answers.contains("\"duplicate\":false"), "{answers}");
    let again = walk.types("Send an event", "order.created");
    assert!(again.contains("\"duplicate\":true"), "{again}");
    walk.sees("/v1/deliveries", |list| {
        (rows(list, &[("state", "delivered")]).len() == 1).then_some(())
    });
    let listed = walk.types("Send an event", "/v1/deliveries");
    assert!(listed.contains("\"state\":\"delivered\""), "{listed}");
    let received = walk.running("serve_forever").output();
    assert_eq!(received.matches("webhook-id").count(), 1, "once: {received}");
    verifying::printed_webhook_is_genuine(&walk, Some("shop"));

    let failing = walk.types("See something fail", "9001");
    assert!(failing.contains("\"state\":\"retrying\""), "{failing}");
    assert!(failing.contains("\"waiting_on\":{\"reason\":\"backoff\""), "{failing}");
    let plan = walk.types("See something fail", "policy show router");
    assert!(plan.contains("30"), "{plan}");

    let url = walk.types("Receive webhooks from others", "SOURCE=");
    assert!(url.starts_with("/in/"), "{url}");
    let taken = walk.types("Receive webhooks from others", "SIGNATURE=");
    assert!(taken.contains("\"type\":\"issues\""), "{taken}");
    walk.types("Watch", "/v1/stream");
    walk.finish();
}
