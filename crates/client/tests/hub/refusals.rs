//! Gateways that will have no more of a hub: the agent ends and says why.

use postrider_client::hub::AgentError;
use postrider_core::hub::close;

use crate::gateway::{Gateway, deliver};
use crate::running::{Running, options};
use crate::service::Service;

#[tokio::test]
async fn a_refused_handshake_ends_the_agent() {
    let token = |detail: &str| AgentError::TokenRefused { detail: detail.to_owned() };
    let version = |detail: &str| AgentError::VersionRefused { detail: detail.to_owned() };
    for (status, body, expected) in [
        (401, r#"{"detail":"this token is not known"}"#, token("this token is not known")),
        (401, "", token("Unauthorized")),
        (401, "{\"detail\":\"\\u001b[2Jno\"}", token(" [2Jno")),
        (
            400,
            r#"{"detail":"offer the subprotocol postrider.hub.v2"}"#,
            version("offer the subprotocol postrider.hub.v2"),
        ),
        (426, "not json", version("Upgrade Required")),
    ] {
        let (gateway, target) = (Gateway::start().await, Service::answering(200).await);
        let mut running = Running::start(options(&gateway, target));
        gateway.refuse(status, body).await;
        assert_eq!(running.end().await, Err(expected));
    }
}

#[tokio::test]
async fn a_socket_of_another_kind_ends_the_agent() {
    let (gateway, target) = (Gateway::start().await, Service::answering(200).await);
    let mut running = Running::start(options(&gateway, target));
    let stream = gateway.stream().await;
    // It takes the upgrade, but not the subprotocol.
    let accepted = tokio_tungstenite::accept_async(stream).await;
    let error = running.end().await.expect_err("not a hub socket");
    let says =
        "the gateway does not speak postrider.hub.v1: it answers with a WebSocket of another kind";
    assert_eq!(error.to_string(), says);
    drop(accepted);
}

#[tokio::test]
async fn a_hub_that_is_revoked_or_replaced_ends() {
    for (code, expected, says) in [
        (
            close::REVOKED,
            AgentError::Revoked,
            "the hub was deleted at the gateway, or has been given another token",
        ),
        (close::TAKEN_OVER, AgentError::TakenOver, "another hub uses this token"),
    ] {
        let (gateway, mut service) = (Gateway::start().await, Service::start().await);
        let mut running = Running::start(options(&gateway, service.address()));
        let mut peer = gateway.welcome().await;
        peer.deliver(deliver(1)).await;
        let arrival = service.next().await;
        peer.close(code, "go").await;
        // The hub takes note of it in the manner of the protocol.
        assert_eq!(peer.closed().await.0, code);
        let error = running.end().await.expect_err("it has ended");
        assert_eq!(error.to_string(), says);
        assert_eq!(error, expected);
        arrival.given_up().await;
    }
}
