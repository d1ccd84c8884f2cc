//! Every verb of the person once, with its shortcut.

use iced::keyboard::{Key, Modifiers, key::Named};

/// Something a person wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    NewChat,
    /// Declines, closes or stops what is nearest.
    Escape,
    /// Left a field with Escape.
    Leave,
    /// Goes to what can be pressed or written in next.
    Next,
    Previous,
    FocusComposer,
    ToggleSidebar,
    Attach,
    /// Attaches a file by its path.
    AttachPath,
    ShowChat,
    ShowServers,
    ShowModels,
    ShowLibrary,
    ShowSettings,
    /// Allows the call that waits, once.
    Approve,
    /// Denies the call that waits.
    Deny,
    Quit,
}

/// What must be held beside the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// Ctrl, or Command on macOS.
    Command,
    /// Nothing.
    Nothing,
}

/// The shortcuts. Single letters only ever reach this table when no text field took them.
const SHORTCUTS: [(Held, &str, Verb); 13] = [
    (Held::Command, "n", Verb::NewChat),
    (Held::Command, "l", Verb::FocusComposer),
    (Held::Command, "b", Verb::ToggleSidebar),
    (Held::Command, "o", Verb::Attach),
    (Held::Command, "p", Verb::AttachPath),
    (Held::Command, "1", Verb::ShowChat),
    (Held::Command, "2", Verb::ShowServers),
    (Held::Command, "3", Verb::ShowModels),
    (Held::Command, "4", Verb::ShowLibrary),
    (Held::Command, ",", Verb::ShowSettings),
    (Held::Command, "q", Verb::Quit),
    (Held::Nothing, "a", Verb::Approve),
    (Held::Nothing, "d", Verb::Deny),
];

/// The verb of a key press that no widget took.
#[must_use]
pub fn of_key(key: &Key, modifiers: Modifiers) -> Option<Verb> {
    match key.as_ref() {
        Key::Named(Named::Escape) => Some(Verb::Escape),
        Key::Named(Named::Tab) if modifiers.shift() => Some(Verb::Previous),
        Key::Named(Named::Tab) => Some(Verb::Next),
        Key::Character(pressed) => {
            let held = if modifiers.command() { Held::Command } else { Held::Nothing };
            if modifiers.alt() || modifiers.shift() {
                return None;
            }
            SHORTCUTS.iter().find(|(with, letter, _)| *with == held && pressed.eq_ignore_ascii_case(letter)).map(|(.., verb)| *verb)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_approve_only_alone_and_every_shortcut_is_unique() {
        let letter = |letter: &str| Key::Character(letter.into());
        assert_eq!(of_key(&letter("a"), Modifiers::empty()), Some(Verb::Approve));
        assert_eq!(of_key(&letter("a"), Modifiers::COMMAND), None);
        assert_eq!(of_key(&letter("a"), Modifiers::SHIFT), None);
        assert_eq!(of_key(&letter("n"), Modifiers::COMMAND), Some(Verb::NewChat));
        assert_eq!(of_key(&Key::Named(Named::Escape), Modifiers::empty()), Some(Verb::Escape));
        assert_eq!(of_key(&Key::Named(Named::Tab), Modifiers::empty()), Some(Verb::Next));
        assert_eq!(of_key(&Key::Named(Named::Tab), Modifiers::SHIFT), Some(Verb::Previous));
        let mut seen = std::collections::HashSet::new();
        assert!(SHORTCUTS.iter().all(|(held, letter, _)| seen.insert((*held == Held::Command, *letter))));
    }
}
