//! The proxy between real sockets.

use std::time::Instant;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// A way through a proxy with the test at both ends.
struct Place {
    proxy: Proxy,
    target: TcpListener,
}

/// The two ends of one connection.
struct Pair {
    near: TcpStream,
    far: TcpStream,
}

impl Place {
    async fn new() -> Self {
        let target = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let proxy = Proxy::start(target.local_addr().expect("it is bound")).expect("a proxy");
        Self { proxy, target }
    }

    async fn pair(&self) -> Pair {
        let near = self.near().await;
        let (far, _) = within(self.target.accept()).await.expect("it is passed on");
        Pair { near, far }
    }

    async fn near(&self) -> TcpStream {
        within(TcpStream::connect(self.proxy.address())).await.expect("a connection")
    }
}

impl Pair {
    /// Something goes there and something comes back.
    async fn talk(&mut self) {
        say(&mut self.near, b"question").await;
        assert_eq!(hear(&mut self.far, 8).await, b"question");
        say(&mut self.far, b"answer").await;
        assert_eq!(hear(&mut self.near, 6).await, b"answer");
    }
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("it happens in time")
}

async fn say(stream: &mut TcpStream, text: &[u8]) {
    within(stream.write_all(text)).await.expect("it can be said");
}

async fn hear(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut text = vec![0; bytes];
    within(stream.read_exact(&mut text)).await.expect("it is heard");
    text
}

/// Everything that still comes, and how it ends.
async fn rest(stream: &mut TcpStream) -> (Vec<u8>, Result<(), io::ErrorKind>) {
    let mut text = Vec::new();
    let end = within(stream.read_to_end(&mut text)).await;
    (text, end.map(drop).map_err(|error| error.kind()))
}

const RESET: Result<(), io::ErrorKind> = Err(io::ErrorKind::ConnectionReset);

#[tokio::test]
async fn without_trouble_everything_passes_unchanged_and_so_does_the_end() {
    let place = Place::new().await;
    let mut pair = place.pair().await;
    let long: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let (said, heard) = tokio::join!(
        async {
            within(pair.near.write_all(&long)).await.expect("it can be said");
            pair.near.shutdown().await.expect("an end");
        },
        rest(&mut pair.far)
    );
    let () = said;
    assert_eq!(heard, (long, Ok(())));
    // The other direction is still open.
    say(&mut pair.far, b"answer").await;
    drop(pair.far);
    assert_eq!(rest(&mut pair.near).await, (b"answer".to_vec(), Ok(())));
}

#[tokio::test]
async fn a_reset_ends_open_connections_and_new_ones_until_it_is_healed() {
    let place = Place::new().await;
    let mut pair = place.pair().await;
    pair.talk().await;
    place.proxy.set(Trouble::Reset);
    assert_eq!(rest(&mut pair.near).await, (Vec::new(), RESET));
    assert_eq!(rest(&mut pair.far).await, (Vec::new(), RESET));
    // It may be reset before the connection is told to be there.
    let connected = within(TcpStream::connect(place.proxy.address())).await;
    if let Ok(mut late) = connected {
        assert_eq!(rest(&mut late).await, (Vec::new(), RESET));
    }
    place.proxy.heal();
    place.pair().await.talk().await;
}

#[tokio::test]
async fn half_open_swallows_both_ways_keeps_the_sockets_and_resets_them_when_healed() {
    let place = Place::new().await;
    let mut pair = place.pair().await;
    pair.talk().await;
    place.proxy.set(Trouble::HalfOpen);
    let mut late = place.near().await;
    say(&mut pair.near, b"lost").await;
    say(&mut pair.far, b"lost as well").await;
    say(&mut late, b"never heard").await;
    let mut bytes = [[0]; 3];
    let [one, two, three] = &mut bytes;
    tokio::select! {
        biased;
        read = pair.near.read(one) => panic!("the near end heard {read:?}"),
        read = pair.far.read(two) => panic!("the far end heard {read:?}"),
        read = late.read(three) => panic!("the new one heard {read:?}"),
        accepted = place.target.accept() => panic!("the target was reached: {accepted:?}"),
        () = sleep(Duration::from_millis(50)) => {}
    }
    place.proxy.heal();
    for stream in [&mut pair.near, &mut pair.far, &mut late] {
        assert_eq!(rest(stream).await, (Vec::new(), RESET));
    }
    place.pair().await.talk().await;
}

#[tokio::test]
async fn half_open_does_not_even_pass_an_end() {
    let place = Place::new().await;
    let mut pair = place.pair().await;
    pair.talk().await;
    place.proxy.set(Trouble::HalfOpen);
    pair.near.shutdown().await.expect("an end");
    let mut byte = [0];
    let heard = timeout(Duration::from_millis(50), pair.far.read(&mut byte)).await;
    assert!(heard.is_err(), "{heard:?}");
    place.proxy.heal();
    assert_eq!(rest(&mut pair.far).await, (Vec::new(), RESET));
}

#[tokio::test]
async fn a_connection_that_said_nothing_while_half_open_goes_on() {
    let place = Place::new().await;
    let mut pair = place.pair().await;
    pair.talk().await;
    place.proxy.set(Trouble::HalfOpen);
    tokio::task::yield_now().await;
    place.proxy.heal();
    pair.talk().await;
}

#[tokio::test]
async fn mute_lets_questions_pass_and_answers_vanish() {
    let place = Place::new().await;
    place.proxy.set(Trouble::Mute);
    let mut pair = place.pair().await;
    say(&mut pair.near, b"question").await;
    assert_eq!(hear(&mut pair.far, 8).await, b"question");
    say(&mut pair.far, b"answer").await;
    let mut byte = [0];
    let heard = timeout(Duration::from_millis(50), pair.near.read(&mut byte)).await;
    assert!(heard.is_err(), "{heard:?}");
    place.proxy.heal();
    assert_eq!(rest(&mut pair.near).await, (Vec::new(), RESET));
}

#[tokio::test]
async fn a_truncated_answer_ends_after_exactly_so_many_bytes() {
    for bytes in [0, 1, 5, 6] {
        let place = Place::new().await;
        let mut open = place.pair().await;
        open.talk().await;
        place.proxy.set(Trouble::Truncate(bytes));
        for mut pair in [open, place.pair().await] {
            // Where nothing may pass, the connection may be closed before this is sent.
            let _ = within(pair.near.write_all(b"question")).await;
            let _ = within(pair.far.write_all(b"answer, and more")).await;
            let expected = b"answer"[..bytes].to_vec();
            assert_eq!(rest(&mut pair.near).await, (expected, Ok(())), "{bytes}");
        }
    }
}

#[tokio::test]
async fn a_delay_holds_each_piece_back_and_passes_it_when_healed() {
    const DELAY: Duration = Duration::from_millis(30);
    let place = Place::new().await;
    let mut pair = place.pair().await;
    place.proxy.set(Trouble::Delay(DELAY));
    let started = Instant::now();
    pair.talk().await;
    assert!(started.elapsed() >= 2 * DELAY, "{:?}", started.elapsed());
    // Nobody could wait for this one.
    place.proxy.set(Trouble::Delay(Duration::from_hours(1)));
    say(&mut pair.near, b"question").await;
    tokio::task::yield_now().await;
    place.proxy.heal();
    assert_eq!(hear(&mut pair.far, 8).await, b"question");
}

#[tokio::test]
async fn one_connection_more_than_the_bound_waits_for_another_to_end() {
    let target = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = target.local_addr().expect("it is bound");
    let proxy = Proxy::start_bounded(address, 1).expect("a proxy");
    let place = Place { proxy, target };
    let first = place.pair().await;
    let near = place.near().await;
    let passed = timeout(Duration::from_millis(50), place.target.accept()).await;
    assert!(passed.is_err(), "{passed:?}");
    drop(first);
    let (far, _) = within(place.target.accept()).await.expect("its turn has come");
    Pair { near, far }.talk().await;
}
