//! The faults themselves: what is done to the nodes, their disk, their clock, their database and
//! their network while producers send, each time until it has got over it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::time::timeout;

use super::clock::Clock;
use super::database::Database;
use super::disk::Disk;
use super::fleet::{Fleet, victims};
use super::kind::Kind;
use super::ledger::Ledger;
use super::proxy::{Proxy, Trouble};
use super::random::Random;
use super::sink::Sink;

/// For as long a node is believed to live where several share a database; short, so that rounds are.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// How long it may take after a fault until an event is accepted and arrives.
const RECOVERED_WITHIN: Duration = Duration::from_mins(1);
/// The most events that are acknowledged, or arrive, before the next fault.
const MOST_BEFORE_A_FAULT: u64 = 80;
/// How long a disk is full before it need not be noticed: what was there may have had room in it.
const NOTICED_WITHIN: Duration = Duration::from_secs(2);
/// A start that is cut off is cut off by then.
const CUT_OFF: Duration = Duration::from_millis(250);

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
const STEPS: [i64; 6] = [-DAY, -HOUR, 0, HOUR, DAY, DAY + HOUR];

/// What there is to be broken, beside the nodes.
#[derive(Debug, Default)]
pub(crate) struct Props {
    pub(crate) database: Option<Arc<Database>>,
    pub(crate) disk: Option<Disk>,
    pub(crate) clock: Option<Clock>,
    pub(crate) to_endpoints: Option<Proxy>,
    pub(crate) to_database: Option<Proxy>,
}

pub(crate) struct Stage<'a> {
    pub(crate) fleet: &'a mut Fleet,
    pub(crate) ledger: &'a Ledger,
    pub(crate) sink: &'a Sink,
    pub(crate) props: &'a Props,
    pub(crate) random: &'a mut Random,
    pub(crate) toll: Toll,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Toll {
    pub(crate) faults: usize,
    /// How many times everything in flight may have gone unrecorded.
    pub(crate) interruptions: usize,
    /// The longest time from the end of a fault, or from a kill, until an event that was made after
    /// it had been accepted and had arrived.
    pub(crate) recovery: Duration,
}

impl Stage<'_> {
    /// Faults of one kind, one after another, for some time, but at least one.
    pub(crate) async fn play(&mut self, kind: Kind, length: Duration) -> Result<()> {
        let started = Instant::now();
        loop {
            self.moment().await?;
            self.toll.faults += 1;
            match kind {
                Kind::Kill => self.kill().await?,
                Kind::Stop => self.stop().await?,
                Kind::Disk => self.fill_disk().await?,
                Kind::Restart => self.restart().await?,
                Kind::Proxy => self.disturb().await?,
                Kind::Clock => self.set_clock().await?,
                // Is played without nodes that run: see there.
                Kind::Power => {}
            }
            if started.elapsed() >= length {
                break;
            }
        }
        if let Some(clock) = &self.props.clock {
            // What was to be done at a time that the clock has shown is due now.
            clock.set(STEPS.into_iter().max().unwrap_or(0))?;
        }
        Ok(())
    }

    async fn kill(&mut self) -> Result<()> {
        let victims = victims(self.fleet.len(), self.random);
        let killed = Instant::now();
        for victim in &victims {
            self.fleet.kill(*victim);
        }
        self.toll.interruptions += 1;
        if self.random.one_in(3) {
            let after = self.random.span(Duration::ZERO..CUT_OFF);
            self.fleet.launch_and_kill(victims[0], after).await?;
            self.toll.interruptions += 1;
        }
        self.fleet.launch_missing().await?;
        self.recovered(killed).await
    }

    /// Where several nodes share a database, for longer than others believe in one.
    async fn stop(&mut self) -> Result<()> {
        let victims = victims(self.fleet.len(), self.random);
        let least = if self.props.database.is_some() { LEASE } else { Duration::ZERO };
        let span = self.random.span(Duration::from_millis(300)..Duration::from_millis(1_500));
        for victim in &victims {
            self.fleet.pause(*victim)?;
        }
        tokio::time::sleep(least + span).await;
        for victim in &victims {
            self.fleet.resume(*victim)?;
        }
        self.toll.interruptions += 1;
        self.recovered(Instant::now()).await
    }

    async fn fill_disk(&mut self) -> Result<()> {
        let disk = self.props.disk.as_ref().context("there is no disk to fill")?;
        let refused = self.ledger.read().refused;
        disk.fill(self.random.index(64 << 10))?;
        let mut books = self.ledger.books();
        // Where it was not noticed, there was still room within the files.
        let _ = timeout(NOTICED_WITHIN, books.wait_for(|books| books.refused > refused)).await;
        tokio::time::sleep(self.random.span(Duration::ZERO..Duration::from_millis(400))).await;
        self.fleet.require_life()?;
        if self.random.one_in(3) {
            self.fleet.kill(0);
            let after = self.random.span(Duration::ZERO..CUT_OFF);
            self.fleet.launch_and_kill(0, after).await?;
            self.toll.interruptions += 2;
        }
        let emptied = Instant::now();
        disk.empty()?;
        self.fleet.launch_missing().await?;
        self.recovered(emptied).await
    }

    async fn restart(&mut self) -> Result<()> {
        let database = self.props.database.clone().context("there is no server to restart")?;
        let choice = self.random.below(3);
        let away = self.random.span(Duration::ZERO..Duration::from_millis(800));
        let restart = move || match choice {
            0 => database.crash(),
            1 => database.restart(away),
            _ => database.kill_connections(),
        };
        tokio::task::spawn_blocking(restart).await.context("the server does not start again")?;
        self.toll.interruptions += 1;
        self.recovered(Instant::now()).await
    }

    async fn disturb(&mut self) -> Result<()> {
        let trouble = self.draw_trouble();
        let to_database = self.props.to_database.as_ref().filter(|_| self.random.one_in(2));
        let span = self.random.span(Duration::from_millis(200)..Duration::from_millis(1_500));
        if let Some(way) = to_database {
            way.set(trouble);
            tokio::time::sleep(span).await;
            way.heal();
        } else {
            let way = self.props.to_endpoints.as_ref().context("there is no way to disturb")?;
            self.sink.set_troubled(true);
            way.set(trouble);
            tokio::time::sleep(span).await;
            way.heal();
            self.sink.set_troubled(false);
        }
        // What was on its way when it began, and when it ended.
        self.toll.interruptions += 2;
        self.recovered(Instant::now()).await
    }

    fn draw_trouble(&mut self) -> Trouble {
        match self.random.below(6) {
            0 => {
                let most = Duration::from_millis(800);
                Trouble::Delay(self.random.span(Duration::from_millis(20)..most))
            }
            1 => Trouble::Reset,
            2 => Trouble::HalfOpen,
            3 => Trouble::Mute,
            // Often within the head of an answer.
            4 => Trouble::Truncate(self.random.index(120)),
            _ => Trouble::Truncate(self.random.index(16 << 10)),
        }
    }

    async fn set_clock(&mut self) -> Result<()> {
        let clock = self.props.clock.as_ref().context("there is no clock to set")?;
        clock.set(STEPS[self.random.index(STEPS.len())])?;
        let set = Instant::now();
        if self.random.one_in(4) {
            self.fleet.kill(0);
            self.toll.interruptions += 1;
            self.fleet.launch_missing().await?;
        }
        self.recovered(set).await
    }

    /// Waits until some more has been acknowledged, or has arrived.
    async fn moment(&mut self) -> Result<()> {
        let more = usize::try_from(self.random.below(MOST_BEFORE_A_FAULT)).unwrap_or(0);
        let by_acks = self.random.one_in(2);
        let (mut books, mut seen) = (self.ledger.books(), self.sink.seen());
        let acks = self.ledger.acknowledged() + more;
        let arrivals = self.sink.arrived() + more;
        let come = async {
            if by_acks {
                books.wait_for(|books| books.acks.len() >= acks).await.map(drop)
            } else {
                seen.wait_for(|seen| seen.arrivals.len() >= arrivals).await.map(drop)
            }
        };
        let come = timeout(RECOVERED_WITHIN, come).await;
        come.context("nothing is accepted, or nothing arrives, before the next fault")??;
        Ok(())
    }

    /// Waits until an event that is made from now on has been accepted and has arrived.
    async fn recovered(&mut self, since: Instant) -> Result<()> {
        let next = Some(self.ledger.next_number());
        let (mut books, mut seen) = (self.ledger.books(), self.sink.seen());
        let recovered = async {
            books.wait_for(|books| books.newest >= next).await.map(drop)?;
            seen.wait_for(|seen| seen.newest >= next).await.map(drop)
        };
        let in_time = timeout(RECOVERED_WITHIN, recovered).await;
        self.fleet.require_life()?;
        in_time.with_context(|| {
            format!("{RECOVERED_WITHIN:?} after a fault no new event had been accepted and arrived")
        })??;
        self.toll.recovery = self.toll.recovery.max(since.elapsed());
        Ok(())
    }
}
