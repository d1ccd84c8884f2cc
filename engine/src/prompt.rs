//! From stored messages to a request: instructions, history, passages, tools.
