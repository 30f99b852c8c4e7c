//! Lines, and the locks that keep two transactions from deciding about one at the same time.
//!
//! Who is the head of a line is decided from what is in it. A transaction that appends to lines, or
//! ends deliveries of them, first takes the locks of their endpoints and holds them to its end, and
//! only then looks: its statements see all that was committed before. The locks are taken in one
//! order by everybody, so nobody waits in a circle.

use postrider_core::EndpointId;

/// Of the two numbers that name a lock, the first says that it is one of these.
pub(crate) const CLASS: i32 = i32::from_be_bytes(*b"Line");

/// A server has room for a few thousand locks. Endpoints that share one wait for each other, and do
/// no other harm.
const LOCKS: i64 = 1_024;

pub(crate) const LOCK: &str =
    "SELECT pg_advisory_xact_lock($1, l.lock) FROM unnest($2::int4[]) l (lock)";

/// The locks to be taken for `endpoints`, in the order in which to take them.
pub(crate) fn locks(endpoints: impl Iterator<Item = EndpointId>) -> Vec<i32> {
    let mut locks: Vec<i32> = endpoints.map(lock).collect();
    locks.sort_unstable();
    locks.dedup();
    locks
}

/// Ids made at about the same time differ in few bits, so all of them are mixed.
fn lock(endpoint: EndpointId) -> i32 {
    let mixed = endpoint.as_i64().wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed());
    i32::try_from((mixed >> 40).rem_euclid(LOCKS)).expect("the remainder is small")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_in_one_order_and_taken_once() {
        let ids = [5, 3, 5, 1 << 40, (1 << 40) + 4_194_304, 3].map(EndpointId::from_i64);
        let there = locks(ids.into_iter());
        let back = locks(ids.into_iter().rev());
        assert_eq!(there, back);
        assert!(there.is_sorted() && there.len() == 4, "{there:?}");
        let many = locks((0..10_000).map(|id| EndpointId::from_i64(id << 22)));
        assert!(many.len() > 900 && many.iter().all(|lock| (0..1_024).contains(lock)));
    }
}
