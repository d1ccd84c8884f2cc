//! A server's sign-in as long as the program runs: read once per connection, renewed silently, kept at once.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, FutureExt as _, Shared};

use super::super::SignIn;
use super::super::transport::http;
use super::grant::{self, Trouble};
use super::kept::{Kept, secret_name};
use crate::secret::{Secret, Secrets};
use crate::store::Store;
use crate::tool::ServerId;

/// Sign-ins for more rights of the same kind, in a row (fixed).
const MOST_ROUNDS: u32 = 3;

/// The sign-in now; an error where that may be another one later.
type Renewal = Shared<BoxFuture<'static, Result<Option<Arc<Kept>>, String>>>;

/// A server's sign-in.
pub(in crate::mcp) struct Account {
    server: ServerId,
    secrets: Arc<dyn Secrets>,
    store: Store,
    state: Mutex<State>,
    /// Held while secrets are written: what is written last is what is known last.
    saving: Mutex<()>,
    /// Whether a browser waits for the person.
    waiting: AtomicBool,
}

#[derive(Default)]
struct State {
    known: Option<Known>,
    /// Grows with every change, so that what was read before one is not taken for news after it.
    changes: u64,
    /// Whether something could not be kept: then what is kept is older than what is known.
    unsaved: bool,
    renewal: Option<(String, Renewal)>,
    /// Who issued the tokens, as far as is known without asking the keyring.
    issuer: Option<String>,
    /// The rights that were asked for on top last, and how often.
    rounds: (Vec<String>, u32),
}

struct Known {
    address: String,
    kept: Option<Arc<Kept>>,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Account {
    pub(in crate::mcp) fn new(server: ServerId, secrets: Arc<dyn Secrets>, store: Store) -> Self {
        let issuer = store.server_sign_in(&server).unwrap_or_else(|error| {
            tracing::warn!(%error, %server, "whether somebody is signed in cannot be read");
            None
        });
        let state = Mutex::new(State { issuer, ..State::default() });
        Self { server, secrets, store, state, saving: Mutex::default(), waiting: AtomicBool::new(false) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who gives the tokens for an address. What another process has kept meanwhile counts from here on.
    pub(in crate::mcp) fn at(self: &Arc<Self>, address: &str) -> Arc<dyn http::Tokens> {
        {
            let mut state = self.state();
            if !state.unsaved && state.renewal.is_none() {
                state.known = None;
            }
        }
        Arc::new(At { account: self.clone(), address: address.to_owned() })
    }

    pub(in crate::mcp) fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Release);
    }

    /// How it is shown; `asks` says that the server wants somebody to sign in.
    pub(in crate::mcp) fn shown(&self, asks: bool) -> SignIn {
        if self.waiting.load(Ordering::Acquire) {
            return SignIn::Waiting;
        }
        match self.state().issuer.clone() {
            _ if asks => SignIn::Needed,
            Some(issuer) => SignIn::Done { issuer },
            None => SignIn::NotNeeded,
        }
    }

    /// What is kept for an address.
    pub(super) async fn kept(self: &Arc<Self>, address: &str) -> Result<Option<Arc<Kept>>, String> {
        loop {
            let changes = {
                let state = self.state();
                if let Some(known) = state.known.as_ref().filter(|known| known.address == address) {
                    return Ok(known.kept.clone());
                }
                state.changes
            };
            let account = self.clone();
            let read = tokio::task::spawn_blocking(move || account.read());
            let kept = read.await.map_err(|error| error.to_string())??;
            let kept = kept.filter(|kept| kept.address.0 == address).map(Arc::new);
            let mut state = self.state();
            if state.changes == changes {
                state.issuer = kept.as_ref().filter(|kept| kept.tokens.is_some()).map(|kept| kept.issuer.clone());
                state.known = Some(Known { address: address.to_owned(), kept: kept.clone() });
                return Ok(kept);
            }
        }
    }

    /// Reads what is kept; blocks. The keyring is asked only where something is there: it may ask the person.
    fn read(&self) -> Result<Option<Kept>, String> {
        if !self.marked()? {
            return Ok(None);
        }
        let secret = self.secrets.get(&secret_name(&self.server)).map_err(|error| error.to_string())?;
        let kept = secret.map(|secret| serde_json::from_str(secret.reveal()));
        kept.transpose().or_else(|_| {
            // The text of such an error may hold what was kept.
            tracing::warn!(server = %self.server, "the kept sign-in cannot be read; it is asked for again");
            Ok(None)
        })
    }

    /// Whether something is kept.
    fn marked(&self) -> Result<bool, String> {
        self.store.server_sign_in(&self.server).map(|issuer| issuer.is_some()).map_err(|error| error.to_string())
    }

    /// Takes a new sign-in.
    pub(super) async fn keep(self: &Arc<Self>, kept: Kept) -> Result<(), String> {
        {
            let mut state = self.state();
            state.issuer = kept.tokens.is_some().then(|| kept.issuer.clone());
            state.known = Some(Known { address: kept.address.0.clone(), kept: Some(Arc::new(kept)) });
            (state.changes, state.unsaved) = (state.changes + 1, true);
        }
        self.save().await
    }

    /// Changes what is known, where it is still what it was thought to be; gives what is known then.
    fn change(&self, address: &str, fits: impl Fn(&Kept) -> bool, change: impl FnOnce(Kept) -> Kept) -> (Option<Arc<Kept>>, bool) {
        let mut state = self.state();
        let Some(known) = state.known.as_mut().filter(|known| known.address == address) else { return (None, false) };
        let Some(kept) = known.kept.as_ref().filter(|kept| fits(kept)) else { return (known.kept.clone(), false) };
        let new = Arc::new(change((**kept).clone()));
        known.kept = Some(new.clone());
        state.issuer = new.tokens.is_some().then(|| new.issuer.clone());
        (state.changes, state.unsaved) = (state.changes + 1, true);
        (Some(new), true)
    }

    /// Notes that somebody is on the way with this client: it is used again only where that works.
    pub(super) async fn try_client(self: &Arc<Self>, address: &str, id: &str) -> Result<(), String> {
        let tried = |mut kept: Kept| {
            kept.client.tried = true;
            kept
        };
        if self.change(address, |kept| kept.client.id == *id, tried).1 { self.save().await } else { Ok(()) }
    }

    /// Forgets everything, and gives what there was.
    pub(in crate::mcp) async fn forget(self: &Arc<Self>) -> Result<Forgotten, String> {
        let account = self.clone();
        let forgetting = tokio::task::spawn_blocking(move || {
            let _saving = account.saving.lock().unwrap_or_else(PoisonError::into_inner);
            // What cannot be read is forgotten all the same.
            let read = account.read().unwrap_or_default();
            if account.marked()? {
                account.secrets.remove(&secret_name(&account.server)).map_err(|error| error.to_string())?;
                account.store.set_server_sign_in(&account.server, None).map_err(|error| error.to_string())?;
            }
            let mut state = account.state();
            let known = state.known.take().and_then(|known| known.kept);
            *state = State { changes: state.changes + 1, ..State::default() };
            Ok(Forgotten(known.map(|kept| (*kept).clone()).or(read)))
        });
        forgetting.await.map_err(|error| error.to_string())?
    }

    async fn save(self: &Arc<Self>) -> Result<(), String> {
        let account = self.clone();
        tokio::task::spawn_blocking(move || account.write()).await.map_err(|error| error.to_string())?
    }

    /// Writes what is known now; blocks.
    fn write(&self) -> Result<(), String> {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let (kept, changes) = {
            let state = self.state();
            (state.known.as_ref().and_then(|known| known.kept.clone()), state.changes)
        };
        let Some(kept) = kept else { return Ok(()) };
        let text = serde_json::to_string(kept.as_ref()).map_err(|error| error.to_string())?;
        // The mark first: what is in the keyring without one would stay there for ever.
        self.store.set_server_sign_in(&self.server, Some(&kept.issuer)).map_err(|error| error.to_string())?;
        self.secrets.set(&secret_name(&self.server), &Secret::new(text)).map_err(|error| error.to_string())?;
        let mut state = self.state();
        state.unsaved &= state.changes != changes;
        Ok(())
    }

    /// Counts the sign-ins for more rights: a server that is never content must not send people round for ever.
    pub(super) fn round(&self, wanted: &[String]) -> Result<(), String> {
        let mut state = self.state();
        let (last, rounds) = &mut state.rounds;
        if last != wanted {
            (*last, *rounds) = (wanted.to_vec(), 0);
        }
        if *rounds >= MOST_ROUNDS {
            return Err(format!(
                "it was given the rights that it asks for {MOST_ROUNDS} times and still refuses; sign out and in again, or ask whoever runs it"
            ));
        }
        *rounds += 1;
        Ok(())
    }

    /// Newer tokens in place of these, once, however many ask. It goes on when nobody waits any more: an issuer may have taken
    /// the old ones back already.
    fn renew(self: &Arc<Self>, old: &Arc<Kept>) -> Renewal {
        let access = old.access().unwrap_or_default().to_owned();
        let mut state = self.state();
        if let Some((_, renewal)) = state.renewal.as_ref().filter(|(of, _)| *of == access) {
            return renewal.clone();
        }
        let (account, old) = (self.clone(), old.clone());
        let working = tokio::spawn(async move {
            let outcome = account.renewed(&old).await;
            account.state().renewal = None;
            outcome
        });
        let renewal = async move { working.await.unwrap_or_else(|error| Err(error.to_string())) }.boxed().shared();
        state.renewal = Some((access, renewal.clone()));
        renewal
    }

    async fn renewed(self: &Arc<Self>, old: &Arc<Kept>) -> Result<Option<Arc<Kept>>, String> {
        if let Some(newer) = self.elsewhere(old).await {
            return Ok(Some(newer));
        }
        match grant::refresh(old).await {
            Ok(new) => Ok(self.replace(old, move |kept| Kept { tokens: new.tokens, scopes: new.scopes, ..kept }).await),
            Err(Trouble::Later(reason)) => Err(reason),
            Err(Trouble::Refused(reason)) => {
                // Another process may have been quicker by a moment.
                if let Some(newer) = self.elsewhere(old).await {
                    return Ok(Some(newer));
                }
                tracing::info!(server = %self.server, reason, "the sign-in cannot be renewed");
                Ok(self.replace(old, |kept| Kept { tokens: None, ..kept }).await)
            }
        }
    }

    /// Tokens that another process of ours has kept meanwhile.
    async fn elsewhere(self: &Arc<Self>, old: &Arc<Kept>) -> Option<Arc<Kept>> {
        if self.state().unsaved {
            return None;
        }
        let account = self.clone();
        let read = tokio::task::spawn_blocking(move || account.read()).await.ok()?.ok()??;
        let newer = read.address == old.address && read.issuer == old.issuer && read.access().is_some() && read.access() != old.access();
        if newer { self.change(&old.address.0, |kept| kept.tokens == old.tokens, |_| read).0 } else { None }
    }

    /// Takes newer tokens, unless somebody signed in or out meanwhile; gives what holds then.
    async fn replace(self: &Arc<Self>, old: &Arc<Kept>, change: impl FnOnce(Kept) -> Kept) -> Option<Arc<Kept>> {
        let (now, changed) = self.change(&old.address.0, |kept| kept.tokens == old.tokens, change);
        if changed && let Err(error) = self.save().await {
            tracing::warn!(error, server = %self.server, "the renewed sign-in could not be kept; it holds until the program ends");
        }
        now
    }
}

/// A sign-in that is not kept any more.
pub(in crate::mcp) struct Forgotten(Option<Kept>);

impl Forgotten {
    /// Tells the issuer.
    pub(in crate::mcp) async fn revoke(self) -> Result<(), String> {
        match &self.0 {
            Some(kept) => grant::revoke(kept).await,
            None => Ok(()),
        }
    }
}

/// A server's sign-in, at one address.
struct At {
    account: Arc<Account>,
    address: String,
}

impl fmt::Debug for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.account.fmt(f)
    }
}

impl At {
    async fn get(&self) -> Result<Option<String>, String> {
        let Some(kept) = self.account.kept(&self.address).await? else { return Ok(None) };
        let Some(tokens) = &kept.tokens else { return Ok(None) };
        if !tokens.is_due() || !kept.renews() {
            return Ok(Some(tokens.access.0.clone()));
        }
        match self.account.renew(&kept).await {
            Ok(renewed) => Ok(renewed.and_then(|kept| kept.access().map(str::to_owned))),
            Err(reason) if tokens.is_over() => Err(format!("the sign-in could not be renewed: {reason}")),
            Err(_) => Ok(Some(tokens.access.0.clone())),
        }
    }

    async fn another(&self, refused: &str) -> bool {
        let Ok(Some(kept)) = self.account.kept(&self.address).await else { return false };
        if kept.access() != Some(refused) {
            return kept.tokens.is_some();
        }
        kept.renews() && self.account.renew(&kept).await.is_ok_and(|kept| kept.is_some_and(|kept| kept.tokens.is_some()))
    }
}

impl http::Tokens for At {
    fn token(&self) -> BoxFuture<'_, Result<Option<String>, String>> {
        self.get().boxed()
    }

    fn refused<'a>(&'a self, token: &'a str) -> BoxFuture<'a, bool> {
        self.another(token).boxed()
    }
}
