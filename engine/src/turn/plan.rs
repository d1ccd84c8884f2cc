//! What is decided before the model is asked: which passages it reads and which tools it is offered.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::Options;
use super::run::Turn;
use crate::approval::GatedTool;
use crate::conversation::{DocumentId, Message, Part, Passage};
use crate::provider::{Capabilities, ToolChoice, ToolSpec, ToolSupport};
use crate::router::{self, Budget, Candidate, FEW, Intent, Sticky};
use crate::store;
use crate::tool::Aliases;

/// Most tokens of passages for a small local model: at about 90 tokens a second of prefill these are a wait of a
/// quarter of a minute.
const SMALL_PASSAGES: usize = 1500;

/// Most tokens of passages for any other model.
const LARGE_PASSAGES: usize = 8000;

/// Bytes of text that are taken for one token of a passage: fewer than English needs, because other scripts need fewer.
const BYTES_PER_TOKEN: usize = 3;

/// The tools of a turn.
#[derive(Debug, Default)]
pub(super) struct Offer {
    /// By the alias that the model sees.
    pub tools: BTreeMap<String, Arc<GatedTool>>,
    /// Whether the first answer may, must or must not call one.
    pub choice: ToolChoice,
    /// Why these.
    pub reason: String,
}

impl Offer {
    /// The tools as the model sees them, sorted by alias.
    pub(super) fn specs(&self) -> Vec<ToolSpec> {
        let spec = |(alias, tool): (&String, &Arc<GatedTool>)| ToolSpec {
            name: alias.clone(),
            description: tool.definition().description.clone(),
            parameters: tool.definition().parameters().clone(),
        };
        self.tools.iter().map(spec).collect()
    }

    fn none(reason: impl Into<String>) -> Self {
        Self { tools: BTreeMap::new(), choice: ToolChoice::None, reason: reason.into() }
    }
}

/// The documents that were attached in a conversation, in their order, each once.
pub(super) fn documents(messages: &[Message]) -> Vec<DocumentId> {
    let mut seen = HashSet::new();
    let attached = messages.iter().flat_map(|message| &message.parts).filter_map(|part| match part {
        Part::Attachment(attachment) => Some(attachment.document),
        _ => None,
    });
    attached.filter(|document| seen.insert(*document)).collect()
}

/// Retrieves passages for a text. A search that fails leaves the turn without passages, and says why.
pub(super) async fn retrieve(turn: &Turn, documents: Vec<DocumentId>, text: &str) -> (Vec<Passage>, String) {
    let (library, query, most) = (turn.runner.library.clone(), text.to_owned(), turn.runner.settings.passages);
    let found = tokio::task::spawn_blocking(move || library.retrieve(&documents, &query, most)).await;
    match found {
        Ok(Ok(found)) => within(found.passages, found.reason, passage_tokens(turn.provider.capabilities())),
        Ok(Err(error)) => (Vec::new(), format!("nothing was retrieved: {error}")),
        Err(error) => (Vec::new(), format!("nothing was retrieved: the search broke off ({error})")),
    }
}

fn passage_tokens(capabilities: Capabilities) -> usize {
    let most = if capabilities.tools == ToolSupport::Native { LARGE_PASSAGES } else { SMALL_PASSAGES };
    most.min(capabilities.context / 4)
}

/// The best passages that fit the budget; always at least the first.
fn within(mut passages: Vec<Passage>, mut reason: String, tokens: usize) -> (Vec<Passage>, String) {
    let (mut spent, found) = (0, passages.len());
    let fitting = passages.iter().take_while(|passage| {
        spent += passage.text.len().div_ceil(BYTES_PER_TOKEN);
        spent <= tokens
    });
    let kept = fitting.count().max(1);
    passages.truncate(kept);
    if found > kept {
        reason.push_str(&format!("; {} of {found} passages were left out to stay within about {tokens} tokens", found - kept));
    }
    (passages, reason)
}

/// Chooses the tools of a turn. `Err` where the caller named a tool that is not there.
pub(super) fn offer(turn: &Turn, options: &Options, text: &str) -> Result<Result<Offer, String>, store::Error> {
    let tools: Vec<Arc<GatedTool>> = (turn.runner.tools)()
        .into_iter()
        .filter(|tool| options.servers.as_ref().is_none_or(|servers| servers.contains(&tool.definition().id.server)))
        .collect();
    let aliases = Aliases::of(tools.iter().map(|tool| &tool.definition().id));
    let by_alias: BTreeMap<String, Arc<GatedTool>> =
        tools.iter().filter_map(|tool| Some((aliases.alias(&tool.definition().id)?.to_owned(), Arc::clone(tool)))).collect();
    if by_alias.is_empty() {
        return Ok(match &options.tool_choice {
            ToolChoice::Named(name) => Err(missing(name)),
            ToolChoice::Auto | ToolChoice::None | ToolChoice::Required => Ok(Offer::none("no tools are available")),
        });
    }
    let capabilities = turn.provider.capabilities();
    match (&options.tool_choice, capabilities.tools) {
        (ToolChoice::None, _) => Ok(Ok(Offer::none("tools are off for this turn"))),
        (_, ToolSupport::None) => Ok(Ok(Offer::none("this model cannot call tools"))),
        (ToolChoice::Named(name), _) => Ok(named(name, by_alias)),
        (choice, ToolSupport::Constrained) => Ok(Ok(for_small(by_alias, text, choice, capabilities))),
        (choice, ToolSupport::Native) => Ok(Ok(for_native(turn, by_alias, text, choice)?)),
    }
}

fn missing(name: &str) -> String {
    format!("there is no tool '{name}'")
}

/// The one tool that the caller named, by its alias or by its own name.
fn named(name: &str, mut by_alias: BTreeMap<String, Arc<GatedTool>>) -> Result<Offer, String> {
    if !by_alias.contains_key(name) {
        by_alias.retain(|_, tool| tool.definition().id.name == name);
        if by_alias.len() > 1 {
            let aliases: Vec<String> = by_alias.into_keys().collect();
            return Err(format!("'{name}' may be one of several tools: {}", aliases.join(", ")));
        }
    }
    let found = by_alias.remove_entry(name).or_else(|| by_alias.pop_first().filter(|(_, tool)| tool.definition().id.name == name));
    let (alias, tool) = found.ok_or_else(|| missing(name))?;
    let (choice, reason) = (ToolChoice::Named(alias.clone()), format!("{alias} was asked for"));
    Ok(Offer { tools: BTreeMap::from([(alias, tool)]), choice, reason })
}

/// For a small model the router decides whether it calls, and among which few tools. Nothing sticks here: what it was
/// offered for an earlier question would only tempt it, and a prompt without tools stays short.
fn for_small(by_alias: BTreeMap<String, Arc<GatedTool>>, text: &str, choice: &ToolChoice, capabilities: Capabilities) -> Offer {
    let candidates = candidates(&by_alias);
    match router::intent(&candidates, text) {
        Intent::Call { offered, reason, .. } => pick(by_alias, &offered, ToolChoice::Required, reason),
        Intent::Talk { .. } if *choice == ToolChoice::Required => {
            let budget = Budget { context: capabilities.context, share: 0.0, most: FEW };
            let choice = router::choose(&candidates, text, budget, &Sticky::new());
            pick(by_alias, &choice.offered, ToolChoice::Required, format!("a call was asked for: {}", choice.reason))
        }
        Intent::Talk { reason } => Offer::none(reason),
    }
}

fn for_native(turn: &Turn, by_alias: BTreeMap<String, Arc<GatedTool>>, text: &str, choice: &ToolChoice) -> Result<Offer, store::Error> {
    let settings = &turn.runner.settings;
    let context = turn.provider.capabilities().context;
    let budget = Budget { context, share: settings.routing_share, most: settings.routed_tools };
    let sticky = turn.runner.store.offered_tools(turn.conversation)?;
    let chosen = router::choose(&candidates(&by_alias), text, budget, &sticky);
    let offer = pick(by_alias, &chosen.offered, choice.clone(), chosen.reason);
    let ids = offer.tools.values().map(|tool| &tool.definition().id);
    turn.runner.store.add_offered_tools(turn.conversation, ids.map(|id| (&id.server, id.name.as_str())))?;
    Ok(offer)
}

fn candidates(by_alias: &BTreeMap<String, Arc<GatedTool>>) -> Vec<Candidate> {
    let candidate =
        |(alias, tool): (&String, &Arc<GatedTool>)| Candidate { alias: alias.clone(), definition: Arc::clone(tool.definition()) };
    by_alias.iter().map(candidate).collect()
}

fn pick(mut by_alias: BTreeMap<String, Arc<GatedTool>>, offered: &[String], choice: ToolChoice, reason: String) -> Offer {
    by_alias.retain(|alias, _| offered.contains(alias));
    Offer { tools: by_alias, choice, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passages_stay_within_their_budget_and_one_always_stays() {
        let passage = |number| Passage {
            number,
            document: DocumentId::fresh(),
            name: "a.txt".to_owned(),
            page: None,
            span: (0, 1),
            text: "x".repeat(1200),
            score: 0.0,
        };
        let (kept, reason) = within((1..=6).map(passage).collect(), "six found".to_owned(), 1500);
        assert_eq!(kept.iter().map(|passage| passage.number).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(reason, "six found; 3 of 6 passages were left out to stay within about 1500 tokens");
        assert_eq!(within(vec![passage(1)], String::new(), 10).0.len(), 1);
        assert!(within(Vec::new(), String::new(), 10).0.is_empty());
    }
}
