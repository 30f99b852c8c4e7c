//! The chapter about operating: its commands work, and do what it says.

use crate::walk::Walk;

#[test]
fn the_commands_for_operators_work() {
    let mut walk = Walk::of("docs/guide/operating.md");
    walk.types("Operating", "postrider serve");
    walk.types("Operating", "POSTRIDER_KEY");
    let seen = walk.types("What to watch", "top --once");
    assert!(!seen.trim().is_empty());
    let metrics = walk.types("What to watch", "/metrics");
    assert!(metrics.contains("postrider_events_received_total"), "{metrics}");
    walk.types("Something is wrong, and you do not know what", "postrider doctor");
    let stuck = walk.types("A delivery is stuck", "deliveries list");
    assert!(stuck.contains("dlv_"), "{stuck}");
    walk.types("Dead letters", "dead groups");
    walk.types("Backup", "postrider backup");
    assert!(walk.world.here().join("backup.db").is_file());
    walk.types("Restore", "--store sqlite:restored.db");
    walk.stops("--store sqlite:restored.db");
    walk.types("Upgrade", "migrate");
    walk.types("The disk is full", "postrider export");
    let exported = std::fs::read_to_string(walk.world.here().join("yesterday.ndjson"));
    assert!(exported.is_ok_and(|lines| lines.contains("refund.made")));
    walk.finish();
}
