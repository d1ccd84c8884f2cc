//! What all connections share of the world around them: the person who is asked, the granted folders, the model that may
//! write for servers, and the settings.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{broadcast, oneshot, watch};

use super::super::question::{Answer, Ask};
use super::super::{Error, Event, Question, QuestionId, Sampler, config};
use crate::secret::Secrets;
use crate::tool::ServerId;

/// Most questions of one server that wait at a time (fixed).
const MOST_QUESTIONS: usize = 16;

/// The surroundings; one per manager.
#[derive(Debug)]
pub(in crate::mcp) struct Host {
    events: broadcast::Sender<Event>,
    secrets: Arc<dyn Secrets>,
    open: Mutex<Open>,
    roots: watch::Sender<Vec<PathBuf>>,
    settings: Mutex<config::Settings>,
    sampler: Mutex<Option<Arc<dyn Sampler>>>,
    attended: AtomicBool,
}

#[derive(Debug, Default)]
struct Open {
    last: u64,
    questions: BTreeMap<QuestionId, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    question: Question,
    /// The server's own id of a page that is to be opened.
    page: Option<String>,
    told: oneshot::Sender<Told>,
}

/// What became of a question.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Told {
    /// The person answered.
    Answer(Answer),
    /// The server says that what it asked for has happened.
    Happened,
}

/// A question that waits. Dropping it takes it back.
#[derive(Debug)]
pub(super) struct Asked {
    host: Arc<Host>,
    id: QuestionId,
    told: oneshot::Receiver<Told>,
}

impl Host {
    pub(in crate::mcp) fn new(events: broadcast::Sender<Event>, secrets: Arc<dyn Secrets>) -> Self {
        Self {
            events,
            secrets,
            open: Mutex::default(),
            roots: watch::Sender::new(Vec::new()),
            settings: Mutex::default(),
            sampler: Mutex::default(),
            attended: AtomicBool::new(true),
        }
    }

    /// Where secrets are kept.
    pub(in crate::mcp) fn secrets(&self) -> &Arc<dyn Secrets> {
        &self.secrets
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a question before the person.
    pub(super) fn ask(self: &Arc<Self>, server: &ServerId, tool: Option<String>, ask: Ask, page: Option<String>) -> Result<Asked, String> {
        let (question, told) = {
            let mut open = self.open();
            if open.questions.values().filter(|waiting| waiting.question.server == *server).count() >= MOST_QUESTIONS {
                return Err(format!("{MOST_QUESTIONS} questions wait for the person already"));
            }
            open.last += 1;
            let question = Question { id: QuestionId(open.last), server: server.clone(), tool, ask };
            let (sender, told) = oneshot::channel();
            let _ = open.questions.insert(question.id, Waiting { question: question.clone(), page, told: sender });
            (question, told)
        };
        let id = question.id;
        let _ = self.events.send(Event::Asked(Box::new(question)));
        Ok(Asked { host: self.clone(), id, told })
    }

    /// Questions that wait, the oldest first.
    pub(in crate::mcp) fn questions(&self) -> Vec<Question> {
        self.open().questions.values().map(|waiting| waiting.question.clone()).collect()
    }

    /// Answers; whether the question was still open. An answer that does not fit leaves it open.
    pub(in crate::mcp) fn answer(&self, id: QuestionId, answer: Answer) -> Result<bool, Error> {
        // A copy: checking against a foreign schema takes its time, and must not hold up the others.
        let Some(question) = self.open().questions.get(&id).map(|waiting| waiting.question.clone()) else { return Ok(false) };
        question.accepts(&answer).map_err(|reason| Error::Request {
            server: question.server.clone(),
            reason: format!("the answer does not fit what was asked: {reason}"),
        })?;
        Ok(self.settle(id, Some(Told::Answer(answer))))
    }

    /// The server says that the page was dealt with.
    pub(super) fn happened(&self, server: &ServerId, page: &str) {
        let fitting = |waiting: &Waiting| waiting.question.server == *server && waiting.page.as_deref() == Some(page);
        let ids: Vec<QuestionId> = self.open().questions.iter().filter(|(_, waiting)| fitting(waiting)).map(|(id, _)| *id).collect();
        for id in ids {
            let _ = self.settle(id, Some(Told::Happened));
        }
    }

    fn settle(&self, id: QuestionId, told: Option<Told>) -> bool {
        let Some(waiting) = self.open().questions.remove(&id) else { return false };
        if let Some(told) = told {
            let _ = waiting.told.send(told);
        }
        let _ = self.events.send(Event::Settled(id));
        true
    }

    pub(super) fn set_roots(&self, folders: Vec<PathBuf>) {
        let _ = self.roots.send_if_modified(|roots| {
            let changed = *roots != folders;
            *roots = folders;
            changed
        });
    }

    pub(super) fn roots(&self) -> watch::Receiver<Vec<PathBuf>> {
        self.roots.subscribe()
    }

    pub(in crate::mcp) fn set_settings(&self, settings: config::Settings) {
        self.set_roots(settings.roots.clone());
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    pub(in crate::mcp) fn settings(&self) -> config::Settings {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(in crate::mcp) fn set_sampler(&self, sampler: Option<Arc<dyn Sampler>>) {
        *self.sampler.lock().unwrap_or_else(PoisonError::into_inner) = sampler;
    }

    /// The model that may write for servers: none where that is not allowed, or nobody could agree to it.
    pub(super) fn sampler(&self) -> Option<Arc<dyn Sampler>> {
        if !self.attended() || !self.settings().allow_sampling {
            return None;
        }
        self.sampler.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(in crate::mcp) fn set_attended(&self, attended: bool) {
        self.attended.store(attended, Ordering::Relaxed);
    }

    /// Whether somebody is there to answer questions.
    pub(super) fn attended(&self) -> bool {
        self.attended.load(Ordering::Relaxed)
    }
}

impl Asked {
    /// Waits for what becomes of it.
    pub(super) async fn told(&mut self) -> Told {
        (&mut self.told).await.unwrap_or(Told::Answer(Answer::Cancel))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = self.host.settle(self.id, None);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    fn host() -> (Arc<Host>, broadcast::Receiver<Event>) {
        let (events, received) = broadcast::channel(64);
        (Arc::new(Host::new(events, Arc::new(crate::secret::FileSecrets::new(PathBuf::new())))), received)
    }

    fn form() -> Ask {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
        Ask::Form { message: "how many?".to_owned(), schema }
    }

    #[tokio::test]
    async fn a_wrong_answer_leaves_the_question_open_and_a_right_one_settles_it() {
        let (host, mut events) = host();
        let mut asked = host.ask(&"s".into(), Some("t".to_owned()), form(), None).unwrap();
        let Event::Asked(question) = events.try_recv().unwrap() else { panic!() };
        assert_eq!((host.questions(), question.tool.as_deref()), (vec![(*question).clone()], Some("t")));
        let error = host.answer(question.id, Answer::Accept(Map::new())).unwrap_err().to_string();
        assert!(error.contains("'s'") && error.contains("\"n\""), "{error}");
        assert_eq!(host.questions().len(), 1);
        let fields = Map::from_iter([("n".to_owned(), Value::from(2))]);
        assert!(host.answer(question.id, Answer::Accept(fields.clone())).unwrap());
        assert_eq!(asked.told().await, Told::Answer(Answer::Accept(fields)));
        assert!(matches!(events.try_recv().unwrap(), Event::Settled(id) if id == question.id));
        assert!(!host.answer(question.id, Answer::Decline).unwrap(), "once");
        drop(asked);
        assert!(events.try_recv().is_err(), "settled once");
    }

    #[tokio::test]
    async fn a_question_that_nobody_waits_for_is_taken_back_and_there_is_a_limit() {
        let (host, _events) = host();
        let asked: Vec<Asked> = (0..MOST_QUESTIONS).map(|_| host.ask(&"s".into(), None, form(), None).unwrap()).collect();
        assert!(host.ask(&"s".into(), None, form(), None).is_err());
        drop(host.ask(&"other".into(), None, form(), None).unwrap());
        assert_eq!(host.questions().len(), MOST_QUESTIONS);
        drop(asked);
        assert!(host.questions().is_empty());
    }

    #[tokio::test]
    async fn a_page_that_was_dealt_with_settles_its_own_question_only() {
        let (host, _events) = host();
        let page = || Ask::Url { message: "sign".to_owned(), url: "https://example.org".to_owned() };
        let mut first = host.ask(&"s".into(), None, page(), Some("1".to_owned())).unwrap();
        let _second = host.ask(&"s".into(), None, page(), Some("2".to_owned())).unwrap();
        host.happened(&"other".into(), "1");
        assert_eq!(host.questions().len(), 2);
        host.happened(&"s".into(), "1");
        assert_eq!(first.told().await, Told::Happened);
        assert_eq!(host.questions().len(), 1);
    }

    #[test]
    fn sampling_needs_the_setting_a_model_and_somebody() {
        #[derive(Debug)]
        struct Mute;
        impl Sampler for Mute {
            fn sample(
                &self,
                _: super::super::super::SampleRequest,
            ) -> futures::future::BoxFuture<'static, Result<super::super::super::Sample, String>> {
                Box::pin(std::future::ready(Err("mute".to_owned())))
            }
        }
        let (host, _events) = host();
        host.set_sampler(Some(Arc::new(Mute)));
        assert!(host.sampler().is_none(), "off by default");
        host.set_settings(config::Settings { allow_sampling: true, ..config::Settings::default() });
        assert!(host.sampler().is_some());
        host.set_attended(false);
        assert!(host.sampler().is_none());
    }
}
