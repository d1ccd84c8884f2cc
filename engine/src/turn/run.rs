//! Running a turn.

use std::sync::Arc;

use futures::future::try_join_all;
use sipper::{Straw, sipper};
use tokio_util::sync::CancellationToken;

use super::call::{self, Proposal, Repeats};
use super::draft::Draft;
use super::plan::{self, Offer};
use super::step::{self, Answer, RawCall};
use super::{Ended, Error, Event, Input, Options, Outcome};
use crate::approval::{Gate, GatedTool};
use crate::conversation::{ConversationId, Message, Part, Passage, Role, Status};
use crate::prompt::{self, Ask};
use crate::provider::{self, Finish, Provider, ToolChoice, ToolSupport};
use crate::rag::{Library, cite};
use crate::settings::Settings;
use crate::store::Store;

/// Where a turn's tools come from.
pub type Tools = Arc<dyn Fn() -> Vec<Arc<GatedTool>> + Send + Sync>;

/// Where a turn's events go.
pub(super) type Feed = sipper::Sender<Event>;

/// Everything a turn needs; cheap to clone.
#[derive(Clone)]
pub struct Runner {
    /// The database.
    pub store: Store,
    /// The gate.
    pub gate: Gate,
    /// The documents.
    pub library: Library,
    /// The tools as they are now.
    pub tools: Tools,
    /// The settings.
    pub settings: Settings,
}

/// A turn that runs.
pub(super) struct Turn {
    pub runner: Runner,
    pub provider: Arc<dyn Provider>,
    pub conversation: ConversationId,
    pub cancel: CancellationToken,
}

/// Where a turn stands between two answers.
struct Progress {
    history: Vec<Message>,
    /// The passages of the person's message.
    passages: Vec<Passage>,
    offer: Offer,
    choice: ToolChoice,
    repeats: Repeats,
    left_out: Option<String>,
}

/// What follows an answer.
enum Next {
    Step,
    End(Outcome),
}

impl Runner {
    /// Runs a turn with this model. Dropping the straw stops model and calls and stores what was written.
    ///
    /// The straw belongs on a runtime with timers. Its events come in this order: `Started`, `Retrieved` where the
    /// conversation has documents, `Routed`; then for each answer `Answering`, its text, `Usage` and its calls; at last
    /// `Cited` where passages are cited, and `Finished`. A model that fails ends the turn with [`Ended::Failed`], and
    /// its text is kept; the straw itself fails only where the database does.
    pub fn run(
        &self,
        provider: Arc<dyn Provider>,
        conversation: ConversationId,
        input: Input,
    ) -> impl Straw<Outcome, Event, Error> + use<> {
        let model = provider.id().to_owned();
        self.run_with(model, async move { Ok(provider) }, conversation, input)
    }

    /// The same for a model that must be loaded first. The person's message is stored before that, and a model that
    /// cannot be loaded is an answer that failed: nothing that was sent is lost.
    pub fn run_with<L>(
        &self,
        model: String,
        load: L,
        conversation: ConversationId,
        input: Input,
    ) -> impl Straw<Outcome, Event, Error> + use<L>
    where
        L: Future<Output = Result<Arc<dyn Provider>, provider::Error>> + Send + 'static,
    {
        let mut runner = self.clone();
        sipper(move |mut feed: Feed| async move {
            let cancel = CancellationToken::new();
            let _stop = cancel.clone().drop_guard();
            let Input { text, attachments, options } = input;
            let mut history = runner.store.messages(conversation)?;
            let said = (!text.is_empty()).then(|| Part::Text { text: text.clone() });
            let parts = said.into_iter().chain(attachments.into_iter().map(Part::Attachment));
            let user = Message::new(conversation, Role::User, parts.collect(), Status::Complete);
            runner.store.put_message(&user)?;
            feed.send(Event::Started { conversation, user: user.id, model: model.clone() }).await;
            history.push(user);
            match load.await {
                Ok(provider) => {
                    runner.gate = runner.gate.on_behalf_of(provider.id());
                    Turn { runner, provider, conversation, cancel }.run(history, text, options, feed).await
                }
                Err(error) => {
                    let draft = Draft::begin(&runner.store, &runner.gate, conversation, &model)?;
                    feed.send(Event::Answering { message: draft.id() }).await;
                    fail(&draft, error.to_string(), &mut feed).await
                }
            }
        })
    }
}

async fn fail(draft: &Draft, reason: String, feed: &mut Feed) -> Result<Outcome, Error> {
    end(draft, Status::Failed { reason: reason.clone() }, Ended::Failed { reason }, feed).await
}

async fn end(draft: &Draft, status: Status, ended: Ended, feed: &mut Feed) -> Result<Outcome, Error> {
    let message = draft.finish(status)?.id;
    feed.send(Event::Finished { message, reason: ended.clone() }).await;
    Ok(Outcome { message, ended })
}

impl Turn {
    async fn run(&self, mut history: Vec<Message>, text: String, options: Options, mut feed: Feed) -> Result<Outcome, Error> {
        let passages = self.retrieve(&mut history, &text, &mut feed).await?;
        let offer = match plan::offer(self, &options, &text)? {
            Ok(offer) => offer,
            Err(reason) => return fail(&self.draft()?, reason, &mut feed).await,
        };
        let offered = offer.tools.keys().cloned().collect();
        feed.send(Event::Routed { offered, reason: offer.reason.clone() }).await;
        let choice = offer.choice.clone();
        let mut progress = Progress { history, passages, offer, choice, repeats: Repeats::default(), left_out: None };
        let steps = self.runner.settings.turn_steps.max(1);
        for step in 1..=steps {
            let draft = self.draft()?;
            feed.send(Event::Answering { message: draft.id() }).await;
            match self.step(&mut progress, &draft, &options, step == steps, &mut feed).await? {
                Next::Step => {}
                Next::End(outcome) => return Ok(outcome),
            }
        }
        // The last step always ends the turn.
        Err(Error::Closing)
    }

    fn draft(&self) -> Result<Draft, Error> {
        Ok(Draft::begin(&self.runner.store, &self.runner.gate, self.conversation, self.provider.id())?)
    }

    /// Retrieves for the last message of the history and stores the passages in it.
    async fn retrieve(&self, history: &mut [Message], text: &str, feed: &mut Feed) -> Result<Vec<Passage>, Error> {
        let documents = plan::documents(history);
        let Some(user) = history.last_mut().filter(|_| !documents.is_empty()) else { return Ok(Vec::new()) };
        let (passages, reason) = plan::retrieve(self, documents, text).await;
        if !passages.is_empty() {
            user.parts.push(Part::Passages { passages: passages.clone() });
            self.runner.store.put_message(user)?;
        }
        feed.send(Event::Retrieved { passages: passages.clone(), reason }).await;
        Ok(passages)
    }

    /// One answer with its calls.
    async fn step(&self, progress: &mut Progress, draft: &Draft, options: &Options, last: bool, feed: &mut Feed) -> Result<Next, Error> {
        let fitted = match prompt::fit(&progress.history, &self.ask(progress, options), &*self.provider) {
            Ok(fitted) => fitted,
            Err(error) => return Ok(Next::End(fail(draft, error.to_string(), feed).await?)),
        };
        if let Some(reason) = fitted.left_out.filter(|reason| progress.left_out.as_ref() != Some(reason)) {
            progress.left_out = Some(reason.clone());
            feed.send(Event::Trimmed { reason }).await;
        }
        let answer = match step::follow(self, fitted.request, draft, feed).await {
            Ok(answer) => answer,
            Err(Error::Provider(error)) => return Ok(Next::End(fail(draft, error.to_string(), feed).await?)),
            Err(error) => return Err(error),
        };
        let Answer { finish, calls } = answer;
        if finish == Finish::Cancelled {
            return Ok(Next::End(end(draft, Status::Stopped, Ended::Stopped, feed).await?));
        }
        if calls.is_empty() {
            let cited = cite::citations(&draft.text(), &progress.passages);
            if !cited.is_empty() {
                feed.send(Event::Cited { message: draft.id(), passages: cited }).await;
            }
            return Ok(Next::End(end(draft, Status::Complete, Ended::Answered { finish }, feed).await?));
        }
        let over = self.calls(progress, draft, calls, feed).await?;
        let limit = match over {
            Some(name) => Some(format!("the model made the same call of {name} three times; the turn was ended")),
            None => last.then(|| format!("the limit of {} model steps in one turn was reached", self.runner.settings.turn_steps)),
        };
        if let Some(reason) = limit {
            return Ok(Next::End(end(draft, Status::Complete, Ended::Limit { reason }, feed).await?));
        }
        progress.history.push(draft.finish(Status::Complete)?);
        // A small model that was made to call would call for ever: once it has a result, it answers. Any other one
        // decides from here on by itself, even where its first call was asked for.
        let small = self.provider.capabilities().tools == ToolSupport::Constrained;
        progress.choice = if small { ToolChoice::None } else { ToolChoice::Auto };
        Ok(Next::Step)
    }

    fn ask(&self, progress: &Progress, options: &Options) -> Ask {
        let settings = &self.runner.settings;
        Ask {
            tools: progress.offer.specs(),
            tool_choice: progress.choice.clone(),
            sampling: options.sampling.unwrap_or_default(),
            max_tokens: options.max_tokens.unwrap_or(settings.max_answer_tokens),
            cache_key: Some(self.conversation.to_string()),
            result_characters: prompt::result_characters(settings.tool_result_characters, self.provider.capabilities().context),
        }
    }

    /// Settles the calls of one answer, all at once. Gives the tool that was called too often, where one was.
    async fn calls(&self, progress: &mut Progress, draft: &Draft, calls: Vec<RawCall>, feed: &mut Feed) -> Result<Option<String>, Error> {
        let read = |raw| call::read(raw, &progress.offer, &mut progress.repeats);
        let proposals: Vec<Proposal> = calls.into_iter().map(read).collect();
        draft.add_calls(proposals.iter().map(|proposal| proposal.record.clone()))?;
        for proposal in &proposals {
            feed.send(Event::ToolCall { message: draft.id(), record: proposal.record.clone() }).await;
        }
        let _settled: Vec<()> = try_join_all(proposals.iter().map(|proposal| call::settle(self, draft, proposal, feed.clone()))).await?;
        Ok(proposals.iter().find(|proposal| proposal.over).map(|proposal| proposal.record.call.alias.clone()))
    }
}
