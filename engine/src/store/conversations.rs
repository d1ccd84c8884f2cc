//! Conversations and their messages. Skeleton.

use super::{Error, Store};
use crate::conversation::{Conversation, ConversationId, Message};

pub(super) const MIGRATIONS: &[&str] = &[];

impl Store {
    /// All conversations, the last changed first.
    pub fn conversations(&self) -> Result<Vec<Conversation>, Error> {
        Ok(Vec::new())
    }

    /// Begins a conversation.
    pub fn new_conversation(&self) -> Result<Conversation, Error> {
        let now = jiff::Timestamp::now();
        Ok(Conversation { id: ConversationId::fresh(), title: String::new(), model: None, created_at: now, updated_at: now })
    }

    /// The messages of a conversation, oldest first.
    pub fn messages(&self, _conversation: ConversationId) -> Result<Vec<Message>, Error> {
        Ok(Vec::new())
    }

    /// Stores a message, new or changed.
    pub fn put_message(&self, _message: &Message) -> Result<(), Error> {
        Ok(())
    }

    /// Renames a conversation.
    pub fn rename_conversation(&self, _conversation: ConversationId, _title: &str) -> Result<(), Error> {
        Ok(())
    }

    /// Deletes a conversation.
    pub fn delete_conversation(&self, _conversation: ConversationId) -> Result<(), Error> {
        Ok(())
    }
}
