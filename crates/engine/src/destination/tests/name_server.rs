//! A name server on a real socket, UDP and TCP, that answers as a test says.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

/// The most that a UDP answer may have without being cut, as is usual.
const MAX_DATAGRAM: usize = 1232;
const HEADER_BYTES: usize = 12;
const ANSWER_CUT: u8 = 0x02;
const IN: [u8; 2] = [0, 1];
/// Where the name of the question stands in every message.
const QUESTION_NAME: [u8; 2] = [0xc0, 12];

pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    questions: Arc<AtomicUsize>,
}

pub(crate) struct Question {
    pub(crate) name: String,
    pub(crate) family: Family,
    /// How many questions came before this one, of any family.
    pub(crate) number: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

pub(crate) enum Reply {
    /// Those of the question's family, with a time to live.
    Addresses(Vec<IpAddr>, u32),
    Alias(String),
    Code(u8),
    Silence,
}

pub(crate) const NXDOMAIN: Reply = Reply::Code(3);
pub(crate) const SERVFAIL: Reply = Reply::Code(2);

impl NameServer {
    pub(crate) async fn start(script: impl Fn(&Question) -> Reply + Send + Sync + 'static) -> Self {
        let (udp, tcp) = sockets().await;
        let address = udp.local_addr().expect("as a test wants it");
        let questions: Arc<AtomicUsize> = Arc::default();
        let server = Self { address, questions: questions.clone() };
        let answer = Arc::new(move |message: &[u8]| {
            let (name, family, end) = read_question(message);
            let number = questions.fetch_add(1, Ordering::SeqCst);
            write_answer(&message[..end], family, &script(&Question { name, family, number }))
        });
        tokio::spawn(serve_udp(udp, answer.clone()));
        tokio::spawn(serve_tcp(tcp, answer));
        server
    }

    pub(crate) fn questions(&self) -> usize {
        self.questions.load(Ordering::SeqCst)
    }
}

/// One port for both protocols; another is tried where the second socket finds it taken.
async fn sockets() -> (UdpSocket, TcpListener) {
    for _ in 0..64 {
        let udp = UdpSocket::bind("127.0.0.1:0").await.expect("as a test wants it");
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().expect("as a test wants it")).await {
            return (udp, tcp);
        }
    }
    panic!("no port is free for UDP and TCP");
}

async fn serve_udp(socket: UdpSocket, answer: Arc<impl Fn(&[u8]) -> Option<Vec<u8>>>) {
    let mut message = [0; MAX_DATAGRAM];
    loop {
        let (length, asker) = socket.recv_from(&mut message).await.expect("as a test wants it");
        let Some(mut answer) = answer(&message[..length]) else { continue };
        if answer.len() > MAX_DATAGRAM {
            let (_, _, end) = read_question(&answer);
            answer.truncate(end);
            answer[2] |= ANSWER_CUT;
            answer[6..HEADER_BYTES].fill(0);
        }
        socket.send_to(&answer, asker).await.expect("as a test wants it");
    }
}

async fn serve_tcp<A>(listener: TcpListener, answer: Arc<A>)
where
    A: Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
{
    loop {
        let (mut stream, _) = listener.accept().await.expect("as a test wants it");
        let answer = answer.clone();
        tokio::spawn(async move {
            while let Ok(length) = stream.read_u16().await {
                let mut message = vec![0; usize::from(length)];
                stream.read_exact(&mut message).await.expect("as a test wants it");
                let Some(answer) = answer(&message) else { continue };
                stream
                    .write_u16(u16::try_from(answer.len()).expect("as a test wants it"))
                    .await
                    .expect("as a test wants it");
                stream.write_all(&answer).await.expect("as a test wants it");
            }
        });
    }
}

/// The name and the family asked for, and where the question ends.
fn read_question(message: &[u8]) -> (String, Family, usize) {
    let mut labels = Vec::new();
    let mut at = HEADER_BYTES;
    while message[at] != 0 {
        let length = usize::from(message[at]);
        labels.push(
            String::from_utf8(message[at + 1..=at + length].to_vec()).expect("as a test wants it"),
        );
        at += length + 1;
    }
    let family = match message[at + 2] {
        1 => Family::V4,
        28 => Family::V6,
        other => panic!("asked for records of type {other}"),
    };
    (labels.join("."), family, at + 5)
}

fn write_answer(question: &[u8], family: Family, reply: &Reply) -> Option<Vec<u8>> {
    let mut answer = question.to_vec();
    // A response, recursion wanted and had; one question, nothing else yet.
    answer[2..HEADER_BYTES].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0]);
    let mut records = 0_u16;
    match reply {
        Reply::Addresses(addresses, ttl) => {
            for address in addresses {
                let data = match (address, family) {
                    (IpAddr::V4(address), Family::V4) => address.octets().to_vec(),
                    (IpAddr::V6(address), Family::V6) => address.octets().to_vec(),
                    (IpAddr::V4(_), Family::V6) | (IpAddr::V6(_), Family::V4) => continue,
                };
                let kind = if family == Family::V4 { 1 } else { 28 };
                write_record(&mut answer, kind, *ttl, &data);
                records += 1;
            }
        }
        Reply::Alias(name) => {
            let mut data = Vec::new();
            for label in name.split('.') {
                data.push(u8::try_from(label.len()).expect("as a test wants it"));
                data.extend(label.as_bytes());
            }
            data.push(0);
            write_record(&mut answer, 5, 0, &data);
            records = 1;
        }
        Reply::Code(code) => answer[3] |= code,
        Reply::Silence => return None,
    }
    answer[6..8].copy_from_slice(&records.to_be_bytes());
    Some(answer)
}

fn write_record(answer: &mut Vec<u8>, kind: u8, ttl: u32, data: &[u8]) {
    answer.extend(QUESTION_NAME);
    answer.extend([0, kind]);
    answer.extend(IN);
    answer.extend(ttl.to_be_bytes());
    answer.extend(u16::try_from(data.len()).expect("as a test wants it").to_be_bytes());
    answer.extend(data);
}
