//! An agent that runs, and what it reports.

use std::net::SocketAddr;
use std::time::Duration;

use postrider_client::hub::{Agent, AgentError, AgentOptions, Happening, Routes, Timing};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::gateway::{Gateway, TOKEN};
use crate::within;

pub(crate) struct Running {
    happenings: mpsc::UnboundedReceiver<Happening>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), AgentError>>,
}

/// Options with short waits between connections, so that no test is long.
pub(crate) fn options(gateway: &Gateway, target: SocketAddr) -> AgentOptions {
    let routes = Routes::to(&format!("http://{target}")).expect("a URL");
    let mut options = AgentOptions::new(gateway.url(), TOKEN, routes);
    options.timing = Timing {
        first_retry: Duration::from_millis(10),
        longest_retry: Duration::from_millis(50),
        ..Timing::default()
    };
    options
}

impl Running {
    pub(crate) fn start(options: AgentOptions) -> Self {
        let agent = Agent::new(options).expect("valid options");
        let (sender, happenings) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let stop = async move { stopped.await.unwrap_or(()) };
            agent.run(stop, move |happening| drop(sender.send(happening))).await
        });
        Self { happenings, stop: Some(stop), task }
    }

    pub(crate) async fn happening(&mut self) -> Happening {
        within("a happening", self.happenings.recv()).await.expect("the agent runs")
    }

    /// The reason of the next disconnection, how many were unanswered, and the wait.
    pub(crate) async fn disconnection(&mut self) -> (String, usize, Duration) {
        loop {
            if let Happening::Disconnected { reason, unanswered, retry_in } = self.happening().await
            {
                return (reason, unanswered, retry_in);
            }
        }
    }

    /// What has happened and was not looked at yet.
    pub(crate) fn so_far(&mut self) -> Vec<Happening> {
        std::iter::from_fn(|| self.happenings.try_recv().ok()).collect()
    }

    pub(crate) fn stop(&mut self) {
        let stop = self.stop.take().expect("it was not stopped before");
        stop.send(()).expect("it runs");
    }

    /// How the agent ends.
    pub(crate) async fn end(&mut self) -> Result<(), AgentError> {
        within("the agent to end", &mut self.task).await.expect("no panic")
    }
}
