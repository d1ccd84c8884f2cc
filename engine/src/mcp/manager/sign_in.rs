//! Signing in to a server and out again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::Error;
use super::super::auth::{self, Account};
use super::super::connection::Connection;
use super::{Manager, STOP};
use crate::tool::ServerId;

/// How long telling the issuer of a sign-out may take.
const REVOKE: Duration = Duration::from_secs(5);

/// The sign-ins that are under way.
#[derive(Debug, Default)]
pub(super) struct SignIns(Mutex<BTreeMap<ServerId, Flight>>);

/// One sign-in, for all who asked for it.
#[derive(Clone, Debug)]
struct Flight {
    progress: watch::Receiver<Progress>,
    cancel: CancellationToken,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    /// The page that is open.
    page: Option<String>,
    outcome: Option<Result<(), Error>>,
}

/// Whoever carries a sign-in out. When it is dropped like that, nobody waits for the browser any more.
struct Lead {
    signing_in: Arc<SignIns>,
    server: ServerId,
    connection: Connection,
    progress: watch::Sender<Progress>,
    cancel: CancellationToken,
}

impl Drop for Lead {
    fn drop(&mut self) {
        let _ = self.signing_in.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.server);
        self.connection.signing_in(false);
    }
}

impl SignIns {
    /// The sign-in that is under way, or the place to carry one out.
    fn join(self: &Arc<Self>, server: &ServerId, connection: &Connection) -> Result<Flight, Lead> {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flights.get(server) {
            return Ok(flight.clone());
        }
        let (progress, receiver) = watch::channel(Progress::default());
        let cancel = CancellationToken::new();
        let _ = flights.insert(server.clone(), Flight { progress: receiver, cancel: cancel.clone() });
        Err(Lead { signing_in: self.clone(), server: server.clone(), connection: connection.clone(), progress, cancel })
    }

    /// Ends a sign-in, and returns when it has ended.
    async fn cancel(&self, server: &ServerId) {
        let flight = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(server).cloned();
        if let Some(mut flight) = flight {
            flight.cancel.cancel();
            let ended = flight.progress.wait_for(|progress| progress.outcome.is_some());
            let _ = tokio::time::timeout(STOP, ended).await.map(drop);
        }
    }
}

impl Manager {
    /// Signs in: `open` is given the address for the system's browser. Returns when the person is back and the tokens
    /// are kept, and starts the server. A second call for the same server waits for the first, and opens its page again
    /// where it is open already. Dropping the first call ends the sign-in.
    pub async fn sign_in(&self, server: &ServerId, open: impl Fn(&str) + Send) -> Result<(), Error> {
        let connection = self.connection(server)?;
        let wrong = |reason: &str| Error::SignIn { server: server.clone(), reason: reason.to_owned() };
        let entry = connection.entry();
        if let Some(problem) = &entry.problem {
            return Err(wrong(problem.reason()));
        }
        if entry.consent.is_some() {
            return Err(wrong("nobody has agreed to its address yet"));
        }
        if self.servers_lock().closing {
            return Err(wrong("Handrail is shutting down"));
        }
        match self.inner.signing_in.join(server, &connection) {
            Ok(flight) => follow(server, flight, open).await,
            Err(lead) => {
                let outcome = self.lead(&lead, open).await.and_then(|()| {
                    connection.unchallenged();
                    self.start(server)
                });
                lead.progress.send_modify(|progress| progress.outcome = Some(outcome.clone()));
                outcome
            }
        }
    }

    async fn lead(&self, lead: &Lead, open: impl Fn(&str) + Send) -> Result<(), Error> {
        let (server, connection) = (&lead.server, lead.connection.clone());
        let wrong = |reason: String| Error::SignIn { server: server.clone(), reason };
        let reading = tokio::task::spawn_blocking(move || connection.errand());
        let errand = reading.await.map_err(|error| wrong(error.to_string()))??;
        let opened = move |page: &str| {
            lead.progress.send_modify(|progress| progress.page = Some(page.to_owned()));
            lead.connection.signing_in(true);
            open(page);
        };
        tokio::select! {
            outcome = auth::run(lead.connection.account(), errand, opened) => outcome.map_err(wrong),
            () = lead.cancel.cancelled() => Err(wrong("it was given up".to_owned())),
            () = self.inner.watching.cancelled() => Err(wrong("Handrail is shutting down".to_owned())),
        }
    }

    /// Forgets the tokens of a server, tells who issued them, and stops it.
    pub async fn sign_out(&self, server: &ServerId) -> Result<(), Error> {
        let connection = self.connection(server)?;
        self.inner.signing_in.cancel(server).await;
        let forgotten = connection.account().forget().await;
        connection.stop(STOP).await;
        connection.unchallenged();
        let forgotten = forgotten
            .map_err(|reason| Error::Request { server: server.clone(), reason: format!("its sign-in could not be forgotten: {reason}") })?;
        // Gone here in any case; what the issuer makes of it is up to it.
        match tokio::time::timeout(REVOKE, forgotten.revoke()).await {
            Ok(Ok(())) => {}
            Ok(Err(reason)) => tracing::warn!(%server, reason, "the tokens could not be given back"),
            Err(_) => tracing::warn!(%server, "the tokens could not be given back in time"),
        }
        Ok(())
    }

    /// Forgets the tokens of a server that is gone from the configuration.
    pub(super) async fn forget_sign_in(&self, server: &ServerId, account: Arc<Account>) {
        self.inner.signing_in.cancel(server).await;
        if let Err(reason) = account.forget().await {
            tracing::error!(%server, reason, "the sign-in of a removed server could not be forgotten");
        }
    }

    /// The sign-in of a server that has no connection.
    pub(super) fn account(&self, server: &ServerId) -> Arc<Account> {
        Arc::new(Account::new(server.clone(), self.inner.host.secrets().clone(), self.inner.store.clone()))
    }
}

/// Waits for a sign-in that somebody else carries out.
async fn follow(server: &ServerId, mut flight: Flight, open: impl Fn(&str) + Send) -> Result<(), Error> {
    let page = flight.progress.borrow().page.clone();
    if let Some(page) = page {
        open(&page);
    }
    let ended = flight.progress.wait_for(|progress| progress.outcome.is_some()).await;
    let outcome = ended.ok().and_then(|progress| progress.outcome.clone());
    outcome.unwrap_or_else(|| Err(Error::SignIn { server: server.clone(), reason: "it was given up".to_owned() }))
}
