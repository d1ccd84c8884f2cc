//! The decision as a pure function.

use crate::store::{Approval, Effect, Scope, Subject};
use crate::tool::ToolId;

/// What was allowed or denied before, as far as it concerns one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// A rule denies the tool or its server.
    pub denied: bool,
    /// The tool was allowed before (or ran under a rule for its server), but under another definition, and nobody
    /// allowed the definition that it has now.
    pub changed: bool,
    /// This tool, as it is now, is always allowed.
    pub tool: bool,
    /// Every tool of its server is always allowed.
    pub server: bool,
    /// This tool, as it is now (or its whole server), is allowed in this conversation.
    pub conversation: bool,
    /// Something was allowed while the server stood for another command or address. That allows nothing.
    pub moved: bool,
}

impl Known {
    /// Sums up the stored rules for a call of `tool`. `rules` are those of the tool's server that hold everywhere or in
    /// the call's conversation ([`crate::store::Store::approvals_for`]); `transport` is what the server stands for
    /// ([`crate::store::Store::server_transport`]).
    #[must_use]
    pub fn of(rules: &[Approval], tool: &ToolId, transport: &str) -> Self {
        let mut known = Self::default();
        let mut another = false;
        for rule in rules {
            let always = rule.scope == Scope::Always;
            match (&rule.subject, rule.effect) {
                (Subject::Server(server), Effect::Deny) => known.denied |= *server == tool.server,
                // A denial outlives a change of the definition.
                (Subject::Tool(denied), Effect::Deny) => known.denied |= denied.server == tool.server && denied.name == tool.name,
                // What was allowed was allowed for a command or address, not for a name.
                (Subject::Server(server), _) if rule.transport != transport => known.moved |= *server == tool.server,
                (Subject::Tool(before), _) if rule.transport != transport => {
                    known.moved |= before.server == tool.server && before.name == tool.name;
                }
                (Subject::Server(server), Effect::Allow) if *server == tool.server => {
                    known.server |= always;
                    known.conversation |= !always;
                }
                (Subject::Tool(allowed), Effect::Allow) if allowed == tool => {
                    known.tool |= always;
                    known.conversation |= !always;
                }
                (Subject::Tool(before), Effect::Allow | Effect::Seen) => {
                    another |= before.server == tool.server && before.name == tool.name && before.schema != tool.schema;
                }
                (Subject::Server(_), Effect::Allow | Effect::Seen) => {}
            }
        }
        let this = Subject::Tool(tool.clone());
        let accepted = rules.iter().any(|rule| rule.effect == Effect::Allow && rule.transport == transport && rule.subject == this);
        known.changed = another && !accepted;
        known
    }
}

/// What the rules say about one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Run it.
    Allow {
        /// The rule, in words.
        by: String,
    },
    /// Do not run it.
    Deny {
        /// The rule, in words.
        by: String,
    },
    /// Ask the person.
    Ask {
        /// Why no rule decided.
        why: String,
    },
}

/// Decides a call from what is known. The first of these that holds decides:
///
/// 1. a rule denies the tool or its server: deny;
/// 2. the tool changed since it was allowed: ask, and say so;
/// 3. the tool is always allowed: allow;
/// 4. its server is always allowed: allow;
/// 5. it is allowed in this conversation: allow;
/// 6. otherwise: ask, and say so where the server's command or address changed since something was allowed.
///
/// Nothing a server says about itself (such as `readOnlyHint`) is known here.
#[must_use]
pub fn decide(known: &Known) -> Verdict {
    if known.denied {
        return Verdict::Deny { by: "a rule denies it".to_owned() };
    }
    if known.changed {
        return Verdict::Ask { why: "this tool changed since it was allowed".to_owned() };
    }
    let by = if known.tool {
        "this tool is always allowed"
    } else if known.server {
        "this server is always allowed"
    } else if known.conversation {
        "allowed in this conversation"
    } else if known.moved {
        return Verdict::Ask { why: "the command or address of this server changed since you allowed it".to_owned() };
    } else {
        return Verdict::Ask { why: "nothing was allowed for this tool yet".to_owned() };
    };
    Verdict::Allow { by: by.to_owned() }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::conversation::ConversationId;
    use crate::tool::SchemaHash;

    #[test]
    fn the_truth_table() {
        for bits in 0_u8..64 {
            let bit = |n: u8| bits & (1 << n) != 0;
            let known = Known { denied: bit(0), changed: bit(1), tool: bit(2), server: bit(3), conversation: bit(4), moved: bit(5) };
            let expected = match (bit(0), bit(1), bit(2), bit(3), bit(4)) {
                (true, ..) => "deny: a rule denies it",
                (_, true, ..) => "ask: this tool changed since it was allowed",
                (_, _, true, ..) => "allow: this tool is always allowed",
                (_, _, _, true, _) => "allow: this server is always allowed",
                (_, _, _, _, true) => "allow: allowed in this conversation",
                _ if bit(5) => "ask: the command or address of this server changed since you allowed it",
                _ => "ask: nothing was allowed for this tool yet",
            };
            let found = match decide(&known) {
                Verdict::Allow { by } => format!("allow: {by}"),
                Verdict::Deny { by } => format!("deny: {by}"),
                Verdict::Ask { why } => format!("ask: {why}"),
            };
            assert_eq!(found, expected, "{known:?}");
        }
    }

    fn tool(server: &str, name: &str, schema: u8) -> ToolId {
        ToolId { server: server.into(), name: name.to_owned(), schema: SchemaHash::of(&json!(schema)) }
    }

    fn rule(scope: Scope, subject: Subject, effect: Effect) -> Approval {
        Approval { id: 1, scope, subject, effect, created_at: Timestamp::now(), transport: "npx files".to_owned() }
    }

    #[test]
    fn what_is_known_comes_from_rules_of_the_same_tool() {
        let here = Scope::Conversation(ConversationId::fresh());
        let this = tool("a", "read", 1);
        let one = |scope, subject, effect| Known::of(&[rule(scope, subject, effect)], &this, "npx files");
        let of_tool = |tool: ToolId| Subject::Tool(tool);
        assert!(one(Scope::Always, of_tool(this.clone()), Effect::Allow).tool);
        assert!(one(here, of_tool(this.clone()), Effect::Allow).conversation);
        assert!(one(Scope::Always, Subject::Server("a".into()), Effect::Allow).server);
        assert!(one(here, Subject::Server("a".into()), Effect::Allow).conversation);
        assert!(one(Scope::Always, of_tool(tool("a", "read", 2)), Effect::Deny).denied);
        assert!(one(Scope::Always, Subject::Server("a".into()), Effect::Deny).denied);
        for other in [tool("b", "read", 1), tool("a", "write", 1)] {
            assert_eq!(one(Scope::Always, of_tool(other), Effect::Allow), Known::default());
        }
        assert_eq!(one(Scope::Always, Subject::Server("b".into()), Effect::Allow), Known::default());
        // Having been seen allows nothing.
        assert_eq!(one(Scope::Always, of_tool(this.clone()), Effect::Seen), Known::default());
    }

    #[test]
    fn a_changed_tool_is_noticed_until_it_is_allowed_again() {
        let (before, now) = (tool("a", "read", 1), tool("a", "read", 2));
        let old = rule(Scope::Always, Subject::Tool(before.clone()), Effect::Allow);
        let known = Known::of(std::slice::from_ref(&old), &now, "npx files");
        assert_eq!(known, Known { changed: true, ..Known::default() });
        let accepted = rule(Scope::Always, Subject::Tool(now.clone()), Effect::Allow);
        assert_eq!(Known::of(&[old, accepted], &now, "npx files"), Known { tool: true, ..Known::default() });
        // A tool that ran under its server's rule and then changed is asked about, the rule notwithstanding.
        let server = rule(Scope::Always, Subject::Server("a".into()), Effect::Allow);
        let seen = rule(Scope::Always, Subject::Tool(before), Effect::Seen);
        let known = Known::of(&[server, seen], &now, "npx files");
        assert_eq!(known, Known { changed: true, server: true, ..Known::default() });
        assert!(matches!(decide(&known), Verdict::Ask { .. }));
    }

    #[test]
    fn another_command_under_the_same_name_inherits_denials_and_nothing_else() {
        let this = tool("a", "read", 1);
        let here = Scope::Conversation(ConversationId::fresh());
        for subject in [Subject::Tool(this.clone()), Subject::Server("a".into())] {
            for (scope, effect) in [(Scope::Always, Effect::Allow), (here, Effect::Allow), (Scope::Always, Effect::Seen)] {
                let known = Known::of(&[rule(scope, subject.clone(), effect)], &this, "rm -rf");
                assert_eq!(known, Known { moved: true, ..Known::default() }, "{subject:?} {effect:?}");
            }
            let known = Known::of(&[rule(Scope::Always, subject, Effect::Deny)], &this, "rm -rf");
            assert!(known.denied);
        }
        // What was accepted for another command says nothing about a tool that changed under this one.
        let here_before =
            Approval { transport: "rm -rf".to_owned(), ..rule(Scope::Always, Subject::Tool(tool("a", "read", 2)), Effect::Allow) };
        let there_now = rule(Scope::Always, Subject::Tool(this.clone()), Effect::Allow);
        assert!(Known::of(&[here_before, there_now], &this, "rm -rf").changed);
    }
}
