//! Several statements in one round trip: each is sent without waiting for the answer to the one
//! before.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio_postgres::Row;

use super::fault::Fault;
use super::session::Session;

type Answer<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send + 'a>>;

/// Statements under way.
pub(crate) struct Pipeline<'a> {
    session: &'a Session,
    sent: Vec<Sent<'a>>,
}

enum Sent<'a> {
    Waiting(Answer<'a>),
    Answered(Result<Vec<Row>, tokio_postgres::Error>),
}

impl<'a> Pipeline<'a> {
    pub(crate) fn new(session: &'a Session) -> Self {
        Self { session, sent: Vec::new() }
    }

    /// Sends a statement. The driver writes it when the future is first polled, which is here.
    pub(crate) fn send(
        &mut self,
        statement: impl Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send + 'a,
    ) {
        let mut answer: Answer<'a> = Box::pin(statement);
        self.sent.push(match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answered) => Sent::Answered(answered),
            Poll::Pending => Sent::Waiting(answer),
        });
    }

    /// Sends a word without parameters, such as `COMMIT`.
    pub(crate) fn say(&mut self, word: &'static str) {
        let client = self.session.client();
        self.send(async move { client.batch_execute(word).await.map(|()| Vec::new()) });
    }

    /// The answers in the order of the statements, or the first failure.
    pub(crate) async fn finish(self) -> Result<Vec<Vec<Row>>, Fault> {
        let Self { session, sent } = self;
        session
            .within(async {
                let mut answers = Vec::with_capacity(sent.len());
                for sent in sent {
                    answers.push(match sent {
                        Sent::Waiting(answer) => answer.await?,
                        Sent::Answered(answered) => answered?,
                    });
                }
                Ok(answers)
            })
            .await
    }
}
