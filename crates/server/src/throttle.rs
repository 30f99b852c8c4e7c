//! How often somebody may ask: token buckets for failed logins, for addresses and for keys.
//!
//! A bucket is one number, the time at which it would be full again, in microseconds. So a key's
//! bucket is an atomic, and an address that has not been seen for a while needs no memory at all.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use http::Extensions;
use parking_lot::Mutex;
use postrider_core::Timestamp;

use crate::ServerOptions;
use crate::problem::Problem;

/// Keys that nobody knows, from one address: this many at once …
const FAILED_LOGINS_BURST: u32 = 20;
/// … and then this many a second.
const FAILED_LOGINS_PER_SECOND: u32 = 1;
/// How many addresses a table remembers; whoever has been away longest is forgotten first.
const MAX_ADDRESSES: usize = 16_384;

const SECOND_US: i64 = 1_000_000;

/// What a request may cost whom.
#[derive(Debug)]
pub(crate) struct Throttle {
    failed_logins: Addresses,
    /// Until then some address or other has failed too often. Before any has, and after, a request
    /// pays for nothing but a look at this.
    somebody_waits_until: AtomicI64,
    per_address: Option<Addresses>,
    per_key: Option<Rate>,
}

impl Throttle {
    pub(crate) fn new(options: &ServerOptions) -> Self {
        // What a second allows may come at once.
        let even = |per_second: u32| Rate::new(per_second, per_second);
        Self {
            failed_logins: Addresses::new(Rate::new(FAILED_LOGINS_PER_SECOND, FAILED_LOGINS_BURST)),
            somebody_waits_until: AtomicI64::new(0),
            per_address: options.requests_per_second_per_address.map(even).map(Addresses::new),
            per_key: options.requests_per_second_per_key.map(even),
        }
    }

    /// Whether a request may go on to show its key. `about` says which address it is from; without
    /// one, as where another server carries the router, addresses are not counted.
    pub(crate) fn admit(&self, about: &Extensions, now: Timestamp) -> Result<(), Problem> {
        let now = micros(now);
        let somebody_waits = now < self.somebody_waits_until.load(Ordering::Relaxed);
        if !somebody_waits && self.per_address.is_none() {
            return Ok(());
        }
        let Some(&Peer(address)) = about.get() else { return Ok(()) };
        if somebody_waits && let Some(wait) = self.failed_logins.wait(address, now) {
            return Err(too_many_failed_logins(wait));
        }
        match &self.per_address {
            None => Ok(()),
            Some(addresses) => addresses.take(address, now).map_err(|wait| {
                Problem::too_many("this address asks more often than it may; go slower", wait)
            }),
        }
    }

    /// Counts a key or a token that nobody knows, and says how to refuse it: with `unknown`, or
    /// because there were too many.
    pub(crate) fn failed_login(
        &self,
        about: &Extensions,
        now: Timestamp,
        unknown: &str,
    ) -> Problem {
        let now = micros(now);
        if let Some(&Peer(address)) = about.get() {
            let taken = self.failed_logins.take(address, now);
            if let Some(wait) = self.failed_logins.wait(address, now) {
                let until = now.saturating_add(duration_micros(wait));
                self.somebody_waits_until.fetch_max(until, Ordering::Relaxed);
            }
            if let Err(wait) = taken {
                return too_many_failed_logins(wait);
            }
        }
        Problem::unauthorized(unknown)
    }

    /// How often one key may be used, if that is limited.
    pub(crate) fn per_key(&self) -> Option<Rate> {
        self.per_key
    }
}

fn too_many_failed_logins(wait: Duration) -> Problem {
    Problem::too_many("too many unknown keys came from this address; no key is looked at yet", wait)
}

/// Where a request comes from: what a connection hands on with each of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer(Address);

/// An address as it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Address {
    V4([u8; 4]),
    /// Whoever has one address of a /64 has all of them.
    V6Network([u16; 4]),
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => Address::V4(address.octets()),
            IpAddr::V6(address) => {
                let [first, second, third, fourth, ..] = address.segments();
                Address::V6Network([first, second, third, fourth])
            }
        })
    }
}

/// How fast a bucket fills, and how much is in it when it is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    /// What one token takes to come back.
    token_us: i64,
    /// What an empty bucket takes to be full.
    whole_us: i64,
}

impl Rate {
    fn new(per_second: u32, burst: u32) -> Self {
        // A rate of none would be a wait without end.
        let per_second = i64::from(per_second.max(1));
        // Rounded in favour of whoever asks: what was allowed for a second is there after one.
        let token_us = (SECOND_US / per_second).max(1);
        Self { token_us, whole_us: token_us * i64::from(burst.max(1)) }
    }

    /// How long until there is a token; none if there is one.
    fn wait(self, full_at: &mut i64, now: i64) -> Option<Duration> {
        // Emptier than empty it cannot be: then the clock was set back, and nobody has to wait
        // until it has caught up.
        *full_at = (*full_at).clamp(now, now + self.whole_us);
        let missing = *full_at + self.token_us - now - self.whole_us;
        u64::try_from(missing).ok().filter(|wait| *wait > 0).map(Duration::from_micros)
    }

    /// Takes a token, or says how long until there is one.
    fn take(self, full_at: &mut i64, now: i64) -> Result<(), Duration> {
        if let Some(wait) = self.wait(full_at, now) {
            return Err(wait);
        }
        *full_at += self.token_us;
        Ok(())
    }
}

/// A bucket that many use at once without waiting for each other.
#[derive(Debug, Default)]
pub(crate) struct SharedBucket {
    full_at: AtomicI64,
}

impl SharedBucket {
    pub(crate) fn take(&self, rate: Rate, now: Timestamp) -> Result<(), Duration> {
        let now = micros(now);
        let mut full_at = self.full_at.load(Ordering::Relaxed);
        loop {
            let mut next = full_at;
            let taken = rate.take(&mut next, now);
            let swapped = self.full_at.compare_exchange_weak(
                full_at,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match swapped {
                Ok(_) => return taken,
                Err(changed) => full_at = changed,
            }
        }
    }
}

/// A bucket for each address that was seen lately.
#[derive(Debug)]
struct Addresses {
    rate: Rate,
    seen: Mutex<Generations>,
}

/// When the young have filled their half, they become the old, and the old are forgotten.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Address, i64>,
    old: HashMap<Address, i64>,
}

impl Addresses {
    fn new(rate: Rate) -> Self {
        Self { rate, seen: Mutex::default() }
    }

    fn take(&self, address: Address, now: i64) -> Result<(), Duration> {
        self.rate.take(self.seen.lock().bucket(address), now)
    }

    fn wait(&self, address: Address, now: i64) -> Option<Duration> {
        let mut seen = self.seen.lock();
        // Whoever has not been seen is not remembered for being asked about.
        if seen.young.contains_key(&address) || seen.old.contains_key(&address) {
            self.rate.wait(seen.bucket(address), now)
        } else {
            None
        }
    }
}

impl Generations {
    fn bucket(&mut self, address: Address) -> &mut i64 {
        if !self.young.contains_key(&address) && self.young.len() >= MAX_ADDRESSES / 2 {
            std::mem::swap(&mut self.young, &mut self.old);
            // It may have been among the old, and is not to get away by that.
            let remembered = self.young.remove(&address);
            self.young.clear();
            self.young.extend(remembered.map(|full_at| (address, full_at)));
        }
        let old = &mut self.old;
        self.young.entry(address).or_insert_with(|| old.remove(&address).unwrap_or_default())
    }
}

/// Within the years that a timestamp knows this is far from the end of the numbers.
fn micros(time: Timestamp) -> i64 {
    time.as_millis() * 1_000
}

fn duration_micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

    fn peer(text: &str) -> Extensions {
        let mut about = Extensions::new();
        about.insert(Peer::from(text.parse::<IpAddr>().expect("an address")));
        about
    }

    fn is_limited(problem: &Problem) -> bool {
        problem.retry_after().is_some()
    }

    /// Fails logins until one is refused for being one too many; answers how many were not.
    fn fail_until_limited(throttle: &Throttle, about: &Extensions, now: Timestamp) -> u32 {
        (0..1_000)
            .find(|_| is_limited(&throttle.failed_login(about, now, "unknown")))
            .expect("a limit")
    }

    #[test]
    fn a_bucket_gives_its_burst_at_once_and_then_its_rate() {
        for (per_second, burst) in [(1, 1), (1, 20), (3, 3), (7, 2), (1_000, 1_000), (0, 0)] {
            let rate = Rate::new(per_second, burst);
            let (mut full_at, mut now) = (0, micros(START));
            let mut at_once = 0;
            while rate.take(&mut full_at, now).is_ok() {
                at_once += 1;
            }
            assert_eq!(at_once, burst.max(1), "{per_second} {burst}");
            let end = now + 10 * SECOND_US;
            let mut later = 0;
            while now < end {
                match rate.take(&mut full_at, now) {
                    Ok(()) => later += 1,
                    Err(wait) => now += duration_micros(wait),
                }
            }
            let due = 10 * per_second.max(1);
            assert!((due - 1..=due).contains(&later), "{per_second} {burst}: {later}");
        }
    }

    #[test]
    fn a_clock_set_back_stops_nobody_until_it_has_caught_up() {
        let rate = Rate::new(1, 2);
        let (mut full_at, now) = (0, micros(START));
        assert_eq!(rate.take(&mut full_at, now), Ok(()));
        let yesterday = now - 86_400 * SECOND_US;
        let wait = rate.take(&mut full_at, yesterday).expect_err("as if empty");
        assert_eq!(wait, Duration::from_secs(1));
        assert_eq!(rate.take(&mut full_at, yesterday + SECOND_US), Ok(()));
    }

    #[test]
    fn a_shared_bucket_gives_no_token_twice() {
        let (rate, bucket) = (Rate::new(1, 1_000), SharedBucket::default());
        let taken: usize = std::thread::scope(|scope| {
            let take = || (0..500).filter(|_| bucket.take(rate, START).is_ok()).count();
            let takers: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            takers.into_iter().map(|taker| taker.join().expect("no panic")).sum()
        });
        assert_eq!(taken, 1_000);
    }

    #[test]
    fn failed_logins_count_for_the_address_they_come_from() {
        // Two addresses, and whether they count as one.
        let cases = [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ];
        for (guesser, other, same) in cases {
            let throttle = Throttle::new(&ServerOptions::default());
            assert!(throttle.admit(&peer(guesser), START).is_ok());
            assert_eq!(fail_until_limited(&throttle, &peer(guesser), START), FAILED_LOGINS_BURST);
            let refused = throttle.admit(&peer(other), START).is_err();
            assert_eq!(refused, same, "{guesser} {other}");
            let later = START.plus(Duration::from_secs(1));
            assert!(throttle.admit(&peer(other), later).is_ok(), "{guesser} {other}");
        }
    }

    #[test]
    fn a_wait_is_over_when_it_was_said_to_be() {
        let (throttle, about) = (Throttle::new(&ServerOptions::default()), peer("192.0.2.1"));
        fail_until_limited(&throttle, &about, START);
        let refused = throttle.admit(&about, START).expect_err("refused");
        let wait = refused.retry_after().expect("a wait");
        assert!(throttle.admit(&about, START.plus(wait)).is_ok());
        assert_eq!(fail_until_limited(&throttle, &about, START.plus(wait)), 1);
    }

    #[test]
    fn the_table_is_bounded_and_forgets_whoever_was_away_longest() {
        let addresses = Addresses::new(Rate::new(1, 1));
        let now = micros(START);
        let address = |index: u32| Address::V4(index.to_be_bytes());
        let busy = address(u32::MAX);
        assert_eq!(addresses.take(busy, now), Ok(()));
        let first = address(0);
        for index in 0..4 * u32::try_from(MAX_ADDRESSES).expect("small") {
            assert_eq!(addresses.take(address(index), now), Ok(()));
            assert!(addresses.take(busy, now).is_err(), "forgotten after {index} others");
            let seen = addresses.seen.lock();
            assert!(seen.young.len() + seen.old.len() <= MAX_ADDRESSES);
        }
        assert_eq!(addresses.wait(first, now), None);
    }

    #[test]
    fn requests_are_limited_only_where_that_is_asked_for() {
        let about = peer("192.0.2.1");
        let unlimited = Throttle::new(&ServerOptions::default());
        assert_eq!(unlimited.per_key(), None);
        assert!((0..10_000).all(|_| unlimited.admit(&about, START).is_ok()));

        let options =
            ServerOptions { requests_per_second_per_address: Some(5), ..ServerOptions::default() };
        let limited = Throttle::new(&options);
        let admitted = (0..100).filter(|_| limited.admit(&about, START).is_ok()).count();
        assert_eq!(admitted, 5);
        assert!(limited.admit(&peer("192.0.2.2"), START).is_ok());
        assert!(limited.admit(&Extensions::new(), START).is_ok(), "no address to count");
    }
}
