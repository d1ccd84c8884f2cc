//! The address of a page that a server wants opened: shown whole, with its host apart, so that nobody opens what only
//! looks like a place they know.

use iced::widget::{column, container, text};
use iced::{Element, Fill};

use super::super::Look;
use super::super::chat::argument::visible;
use super::Message;
use crate::appearance::{space as gap, style};
use crate::piece;

/// Whether an address may be opened at all.
#[must_use]
pub fn opens(url: &str) -> bool {
    host(url).is_some()
}

/// The host of a web address, as a browser reads it; none for anything else.
#[must_use]
pub fn host(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) || url.chars().any(|c| c.is_control() || c == ' ') {
        return None;
    }
    // Browsers take a backslash for a slash, and what stands before the last "@" for a name.
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let end = if host.starts_with('[') { host.find(']').map(|at| at + 1) } else { host.find(':') };
    Some(&host[..end.unwrap_or(host.len())]).filter(|host| !host.is_empty())
}

/// Whether a host may look like another one than it is.
fn deceives(url: &str, host: &str) -> bool {
    let authority = url.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?', '#', '\\']).next().unwrap_or_default());
    !host.is_ascii() || host.split('.').any(|label| label.to_ascii_lowercase().starts_with("xn--")) || authority.contains('@')
}

/// Draws it.
pub fn view<'a>(url: &'a str, look: Look<'a>) -> Element<'a, Message> {
    let roles = look.roles;
    let mut parts = column![].spacing(gap::XS);
    match host(url) {
        Some(host) => {
            let words = look.locale.tv("question-host", [("host", visible(host).into())]);
            parts = parts.push(piece::strong(words).wrapping(text::Wrapping::WordOrGlyph));
            if deceives(url, host) {
                parts = parts.push(piece::fault(Some(look.t("question-host-odd")), roles));
            }
            if url.to_ascii_lowercase().starts_with("http://") {
                parts = parts.push(piece::fault(Some(look.t("question-host-plain")), roles));
            }
        }
        None => parts = parts.push(piece::fault(Some(look.t("question-no-page")), roles)),
    }
    parts.push(container(piece::mono(visible(url))).padding(gap::S).width(Fill).style(style::raised)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_what_a_browser_would_go_to() {
        for (url, expected) in [
            ("https://example.com/a?b#c", Some("example.com")),
            ("HTTPS://good.com@evil.com/", Some("evil.com")),
            ("https://evil.com\\@good.com/", Some("evil.com")),
            ("http://[::1]:8080/x", Some("[::1]")),
            ("http://localhost:3000", Some("localhost")),
            ("javascript:alert(1)", None),
            ("file:///etc/passwd", None),
            ("https://", None),
            ("https://a b", None),
        ] {
            assert_eq!(host(url), expected, "{url}");
        }
        assert!(deceives("https://good.com@evil.com/", "evil.com") && deceives("https://xn--80ak6aa92e.com", "xn--80ak6aa92e.com"));
        assert!(!deceives("https://example.com/", "example.com"));
    }
}
