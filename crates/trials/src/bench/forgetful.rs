//! A store that says yes and forgets: the gateway on it is the same server, acknowledging with nothing
//! stored. All but events goes to a real store.

use std::future::ready;

use async_trait::async_trait;
use postrider_core::{
    DeliveryId, Endpoint, EndpointId, EventId, HubId, JobId, KeyId, Source, SourceId, State,
    TenantId, Timestamp,
};
use postrider_store::audit::{Audit, AuditQuery, AuditRecord};
use postrider_store::declarations::{Declaration, DeclaredKind, DeclaringTurn};
use postrider_store::fleet::Tenure;
use postrider_store::journal::{
    Appended, Appending, Cutoffs, Lapsed, Page, Paged, Pages, RetentionStep, Unfinished, Urgency,
};
use postrider_store::ledger::{Count, DeliveryFilter, DeliveryQuery, EventQuery, Groups, Listed};
use postrider_store::measures::{Grain, Measure, Of};
use postrider_store::record::{
    Attempt, DeliveryRecord, Event, Leased, NewDelivery, NewEvent, Settle, Settled, Waiting,
};
use postrider_store::registry::{HubRecord, JobRecord, KeyRecord, Standing, TenantRecord};
use postrider_store::sessions::SessionRecord;
use postrider_store::sqlite::Sqlite;
use postrider_store::{
    Declarations, Error, Journal, Ledger, Measures, Registry, Sessions, Store, Vitals,
};

pub(crate) struct Forgetful {
    pub(crate) kept: Sqlite,
}

/// What is passed on as it is.
macro_rules! pass_on {
    ($trait:ident { $($item:item)* } $(
        fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty;
    )*) => {
        #[async_trait]
        impl $trait for Forgetful {
            $($item)*
            $(
                async fn $name(&self $(, $argument: $type)*) -> $answer {
                    self.kept.$name($($argument),*).await
                }
            )*
        }
    };
}

pass_on! {
    Journal {
        fn append(&self, events: Vec<NewEvent>) -> Appending {
            let parked = |_| Appended::New { parked: Vec::new() };
            Box::pin(ready(Ok(events.iter().map(parked).collect())))
        }
    }
    fn append_deliveries(
        &self,
        event: EventId,
        first: DeliveryId,
        deliveries: Vec<NewDelivery>,
        now: Timestamp,
        audit: Option<Audit>
    ) -> Result<Vec<Waiting>, Error>;
    fn settle(&self, settles: Vec<Settle>, urgency: Urgency) -> Result<Vec<Settled>, Error>;
    fn settle_by(&self, settles: Vec<Settle>, audit: Audit) -> Result<Vec<Settled>, Error>;
    fn page(&self, page: Page) -> Result<Paged, Error>;
    fn pages(&self, pages: Pages) -> Result<Vec<Paged>, Error>;
    fn next_due(&self, endpoint: EndpointId) -> Result<Option<Timestamp>, Error>;
    fn waiting(&self, id: DeliveryId) -> Result<Option<Waiting>, Error>;
    fn leased(&self, ids: Vec<DeliveryId>) -> Result<Vec<Leased>, Error>;
    fn lapsed(&self, now: Timestamp, limit: usize) -> Result<Lapsed, Error>;
    fn unfinished(
        &self,
        endpoint: EndpointId,
        after: DeliveryId,
        born_before: Option<Timestamp>,
        limit: usize
    ) -> Result<Vec<Unfinished>, Error>;
    fn sweep_retention(
        &self,
        cutoffs: Cutoffs,
        after: EventId,
        limit: usize
    ) -> Result<RetentionStep, Error>;
    fn highest_id(&self) -> Result<i64, Error>;
    fn close(&self) -> ();
}

pass_on! {
    Ledger {}
    fn event(&self, tenant: TenantId, id: EventId) -> Result<Option<Event>, Error>;
    fn events(&self, tenant: TenantId, query: EventQuery) -> Result<Listed<Event>, Error>;
    fn event_deliveries(
        &self,
        tenant: TenantId,
        id: EventId
    ) -> Result<Vec<DeliveryRecord>, Error>;
    fn delivery(
        &self,
        tenant: TenantId,
        id: DeliveryId
    ) -> Result<Option<DeliveryRecord>, Error>;
    fn attempts(&self, id: DeliveryId) -> Result<Vec<Attempt>, Error>;
    fn ahead_of(&self, id: DeliveryId) -> Result<Option<DeliveryRecord>, Error>;
    fn ahead_count(&self, id: DeliveryId, limit: usize) -> Result<u64, Error>;
    fn deliveries(
        &self,
        tenant: TenantId,
        query: DeliveryQuery
    ) -> Result<Listed<DeliveryRecord>, Error>;
    fn count_dead_letters(&self, tenant: TenantId, filter: DeliveryFilter) -> Result<u64, Error>;
    fn dead_letter_groups(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter
    ) -> Result<Groups, Error>;
    fn purge_dead_letters(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        limit: usize,
        audit: Option<Audit>
    ) -> Result<u64, Error>;
    fn counts(&self, tenant: TenantId) -> Result<Vec<Count>, Error>;
    fn totals(&self) -> Result<Vec<(State, u64)>, Error>;
    fn event_count(&self, tenant: TenantId) -> Result<u64, Error>;
    fn ping(&self) -> Result<(), Error>;
}

pass_on! {
    Registry {}
    fn endpoints(&self) -> Result<Vec<Endpoint>, Error>;
    fn put_endpoint(&self, endpoint: Endpoint, audit: Option<Audit>) -> Result<(), Error>;
    fn forget_endpoint(&self, id: EndpointId) -> Result<(), Error>;
    fn failing(&self) -> Result<Vec<(EndpointId, Timestamp)>, Error>;
    fn note_failing(&self, since: Vec<(EndpointId, Option<Timestamp>)>) -> Result<(), Error>;
    fn sources(&self) -> Result<Vec<Source>, Error>;
    fn put_source(&self, source: Source, audit: Audit) -> Result<(), Error>;
    fn delete_source(&self, id: SourceId, audit: Audit) -> Result<(), Error>;
    fn hubs(&self) -> Result<Vec<HubRecord>, Error>;
    fn put_hub(&self, hub: HubRecord, audit: Audit) -> Result<(), Error>;
    fn delete_hub(&self, id: HubId, audit: Audit) -> Result<(), Error>;
    fn reseal(&self) -> Result<u64, Error>;
    fn keys(&self) -> Result<Vec<KeyRecord>, Error>;
    fn put_key(&self, key: KeyRecord, audit: Option<Audit>) -> Result<(), Error>;
    fn touch_keys(&self, used: Vec<(KeyId, Timestamp)>) -> Result<(), Error>;
    fn tenants(&self) -> Result<Vec<TenantRecord>, Error>;
    fn make_tenant(
        &self,
        name: String,
        created_at: Timestamp,
        audit: Audit
    ) -> Result<TenantRecord, Error>;
    fn audit(&self, query: AuditQuery) -> Result<Vec<AuditRecord>, Error>;
    fn instance(&self, candidate: [u8; 16]) -> Result<[u8; 16], Error>;
    fn job(&self, tenant: TenantId, id: JobId) -> Result<Option<JobRecord>, Error>;
    fn open_jobs(&self) -> Result<Vec<JobRecord>, Error>;
    fn put_job(
        &self,
        job: JobRecord,
        audit: Option<Audit>,
        tenure: Option<Tenure>
    ) -> Result<bool, Error>;
    fn standings(&self) -> Result<Vec<Standing>, Error>;
    fn note_breakers(&self, breakers: Vec<(EndpointId, Option<String>)>) -> Result<(), Error>;
}

pass_on! {
    Declarations {}
    fn declarations(&self) -> Result<Vec<Declaration>, Error>;
    fn put_declaration(&self, declaration: Declaration) -> Result<(), Error>;
    fn remove_declaration(
        &self,
        tenant: TenantId,
        kind: DeclaredKind,
        name: String
    ) -> Result<(), Error>;
    fn declaring(&self) -> Result<DeclaringTurn, Error>;
}

pass_on! {
    Sessions {}
    fn put_session(&self, session: SessionRecord) -> Result<(), Error>;
    fn session(&self, sha256: [u8; 32]) -> Result<Option<SessionRecord>, Error>;
    fn touch_session(&self, sha256: [u8; 32], seen_at: Timestamp) -> Result<(), Error>;
    fn end_session(&self, sha256: [u8; 32]) -> Result<(), Error>;
    fn end_old_sessions(
        &self,
        begun_before: Timestamp,
        seen_before: Timestamp,
        limit: usize
    ) -> Result<u64, Error>;
}

pass_on! {
    Measures {}
    fn add_measures(&self, measures: Vec<Measure>) -> Result<(), Error>;
    fn measures(
        &self,
        tenant: TenantId,
        of: Of,
        grain: Grain,
        since: Timestamp
    ) -> Result<Vec<Measure>, Error>;
    fn forget_measures(
        &self,
        grain: Grain,
        before: Timestamp,
        limit: usize
    ) -> Result<u64, Error>;
}

impl Store for Forgetful {
    fn vitals(&self) -> &Vitals {
        self.kept.vitals()
    }
}
