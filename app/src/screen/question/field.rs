//! One field of a form: what is in it, whether that fits, and how it is drawn.

use handrail_engine::mcp::question::{Choice, Field, FieldKind};
use iced::widget::{Column, checkbox, column, pick_list, row, space, text, toggler};
use iced::{Center, Element, Fill};
use serde_json::{Value, json};

use super::super::Look;
use super::super::chat::argument::{start, visible};
use crate::appearance::{SANS, size, space as gap, style};
use crate::piece;

/// Most characters of a title or a description.
const LONGEST: usize = 600;

/// A field with what is in it.
#[derive(Clone, Debug)]
pub struct Filled {
    field: Field,
    content: Content,
}

#[derive(Clone, Debug, PartialEq)]
enum Content {
    Text(String),
    Flag(Option<bool>),
    One(Option<String>),
    Many(Vec<String>),
}

/// What a person does with it.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    Typed(String),
    Switched(bool),
    Chosen(String),
    Ticked(String, bool),
}

/// Why what is in it does not fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    Missing,
    Short(u64),
    Long(u64),
    NoNumber,
    NoInteger,
    Small(f64),
    Large(f64),
    Format(&'static str),
    Few(u64),
    Many(u64),
}

/// A choice with its title, for a menu.
#[derive(Clone, Debug, PartialEq)]
struct Offer(Choice);

impl std::fmt::Display for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&visible(start(&self.0.title, LONGEST).0))
    }
}

impl Filled {
    /// A field with its default in it.
    #[must_use]
    pub fn new(field: Field) -> Self {
        let number = |number: Option<String>| Content::Text(number.unwrap_or_default());
        let content = match &field.kind {
            FieldKind::Text { default, .. } => Content::Text(default.clone().unwrap_or_default()),
            FieldKind::Number { default, .. } => number(default.map(|number| number.to_string())),
            FieldKind::Integer { default, .. } => number(default.map(|number| number.to_string())),
            FieldKind::Boolean { default } => Content::Flag(*default),
            FieldKind::Choice { default, .. } => Content::One(default.clone()),
            FieldKind::Choices { default, .. } => Content::Many(default.clone()),
        };
        Self { field, content }
    }

    /// Its key in the answer.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.field.name
    }

    /// Takes a message in.
    pub fn update(&mut self, message: Message) {
        match (message, &mut self.content) {
            (Message::Typed(text), Content::Text(content)) => *content = text,
            (Message::Switched(on), Content::Flag(content)) => *content = Some(on),
            (Message::Chosen(value), Content::One(content)) => *content = Some(value),
            (Message::Ticked(value, on), Content::Many(content)) => {
                content.retain(|other| *other != value);
                if on {
                    content.push(value);
                }
            }
            _ => {}
        }
    }

    /// What would be sent; nothing for a field that is left out.
    pub fn value(&self) -> Result<Option<Value>, Fault> {
        let missing = || if self.field.required { Err(Fault::Missing) } else { Ok(None) };
        match (&self.field.kind, &self.content) {
            (FieldKind::Text { format, least, most, .. }, Content::Text(text)) => {
                // An empty text is an answer only where the form asks for one and takes it.
                if text.is_empty() {
                    return if self.field.required && *least == Some(0) { Ok(Some(json!(""))) } else { missing() };
                }
                fits(text, format.as_deref(), *least, *most).map(|()| Some(json!(text)))
            }
            (FieldKind::Number { least, most, .. }, Content::Text(text)) => match text.trim() {
                "" => missing(),
                text => {
                    let number: f64 = text.parse().ok().filter(|number: &f64| number.is_finite()).ok_or(Fault::NoNumber)?;
                    bounded(number, *least, *most).map(|()| Some(json!(number)))
                }
            },
            (FieldKind::Integer { least, most, .. }, Content::Text(text)) => match text.trim() {
                "" => missing(),
                text => {
                    let number: i64 = text.parse().map_err(|_| Fault::NoInteger)?;
                    bounded(number as f64, least.map(|least| least as f64), most.map(|most| most as f64)).map(|()| Some(json!(number)))
                }
            },
            (FieldKind::Boolean { .. }, Content::Flag(flag)) => match flag {
                // The switch shows "off", so off is what a required one says.
                None if self.field.required => Ok(Some(json!(false))),
                flag => Ok(flag.map(|flag| json!(flag))),
            },
            (FieldKind::Choice { options, .. }, Content::One(chosen)) => match chosen {
                Some(chosen) if options.iter().any(|option| option.value == *chosen) => Ok(Some(json!(chosen))),
                _ => missing(),
            },
            (FieldKind::Choices { options, least, most, .. }, Content::Many(chosen)) => many(options, chosen, *least, *most, missing),
            _ => missing(),
        }
    }

    /// Draws it; Enter sends `submit`. Faults are shown once a try to send found some.
    pub fn view<'a, M: Clone + 'a>(
        &'a self,
        faults: bool,
        look: Look<'a>,
        submit: M,
        message: impl Fn(Message) -> M + Clone + 'a,
    ) -> Element<'a, M> {
        let roles = look.roles;
        let title = visible(start(&self.field.title, LONGEST).0);
        let mut head = row![piece::strong(title).wrapping(text::Wrapping::WordOrGlyph)].spacing(gap::S).align_y(Center);
        if self.field.required {
            head = head.push(piece::tag(look.t("question-required"), roles));
        }
        let mut parts = column![head].spacing(gap::XS);
        if let Some(about) = self.field.description.as_deref().filter(|about| !about.trim().is_empty()) {
            parts = parts.push(piece::small(visible(start(about, LONGEST).0), roles).wrapping(text::Wrapping::WordOrGlyph));
        }
        parts = parts.push(self.control(look, submit, message));
        let fault = self.value().err().filter(|_| faults).map(|fault| fault.words(look));
        parts.push(piece::fault(fault, roles)).into()
    }

    fn control<'a, M: Clone + 'a>(&'a self, look: Look<'a>, submit: M, message: impl Fn(Message) -> M + Clone + 'a) -> Element<'a, M> {
        match (&self.field.kind, &self.content) {
            (FieldKind::Choice { options, .. }, Content::One(chosen)) => {
                let offers: Vec<Offer> = options.iter().cloned().map(Offer).collect();
                let shown = offers.iter().find(|offer| Some(&offer.0.value) == chosen.as_ref()).cloned();
                pick_list(offers, shown, move |offer| message(Message::Chosen(offer.0.value)))
                    .placeholder(look.t("question-choose"))
                    .text_size(size::UI.0)
                    .padding([gap::XS, gap::S])
                    .style(style::pick)
                    .menu_style(style::menu)
                    .into()
            }
            (FieldKind::Choices { options, .. }, Content::Many(chosen)) => {
                let boxes = options.iter().map(|option| {
                    let (value, message) = (option.value.clone(), message.clone());
                    let ticked = chosen.contains(&option.value);
                    checkbox(ticked)
                        .label(visible(start(&option.title, LONGEST).0))
                        .on_toggle(move |on| message(Message::Ticked(value.clone(), on)))
                        .size(16)
                        .text_size(size::UI.0)
                        .font(SANS)
                        .style(style::tick)
                        .into()
                });
                Column::with_children(boxes).spacing(gap::XS).into()
            }
            (_, Content::Flag(flag)) => {
                let on = flag.unwrap_or_default();
                let word = if on { look.t("question-yes") } else { look.t("question-no") };
                let switch = toggler(on).on_toggle(move |on| message(Message::Switched(on))).size(18).style(style::switch);
                row![switch, piece::label(word)].spacing(gap::S).align_y(Center).into()
            }
            (_, Content::Text(text)) => {
                let hint = self.hint(look);
                piece::input(&hint, text, move |text| message(Message::Typed(text))).on_submit(submit).width(Fill).into()
            }
            _ => space().into(),
        }
    }

    /// What stands in an empty field: what goes in.
    fn hint(&self, look: Look<'_>) -> String {
        match &self.field.kind {
            FieldKind::Text { format: Some(format), .. } => match format.as_str() {
                "email" => look.t("question-hint-email"),
                "uri" => "https://…".to_owned(),
                "date" => "2026-01-31".to_owned(),
                "date-time" => "2026-01-31T12:00:00Z".to_owned(),
                _ => String::new(),
            },
            FieldKind::Number { least, most, .. } => range(*least, *most),
            FieldKind::Integer { least, most, .. } => range(least.map(|least| least as f64), most.map(|most| most as f64)),
            FieldKind::Text { .. } | FieldKind::Boolean { .. } | FieldKind::Choice { .. } | FieldKind::Choices { .. } => String::new(),
        }
    }
}

fn range(least: Option<f64>, most: Option<f64>) -> String {
    match (least, most) {
        (Some(least), Some(most)) => format!("{least} – {most}"),
        (Some(least), None) => format!("≥ {least}"),
        (None, Some(most)) => format!("≤ {most}"),
        (None, None) => String::new(),
    }
}

fn bounded(number: f64, least: Option<f64>, most: Option<f64>) -> Result<(), Fault> {
    match (least, most) {
        (Some(least), _) if number < least => Err(Fault::Small(least)),
        (_, Some(most)) if number > most => Err(Fault::Large(most)),
        _ => Ok(()),
    }
}

fn many(
    options: &[Choice],
    chosen: &[String],
    least: Option<u64>,
    most: Option<u64>,
    missing: impl Fn() -> Result<Option<Value>, Fault>,
) -> Result<Option<Value>, Fault> {
    // In the order of the form, whatever order they were ticked in.
    let values: Vec<&str> = options.iter().map(|option| option.value.as_str()).filter(|value| chosen.iter().any(|c| c == value)).collect();
    let count = values.len() as u64;
    match (least, most) {
        _ if values.is_empty() && least.unwrap_or_default() == 0 => missing(),
        (Some(least), _) if count < least => Err(Fault::Few(least)),
        (_, Some(most)) if count > most => Err(Fault::Many(most)),
        _ => Ok(Some(json!(values))),
    }
}

fn fits(text: &str, format: Option<&str>, least: Option<u64>, most: Option<u64>) -> Result<(), Fault> {
    let count = text.chars().count() as u64;
    if let Some(least) = least.filter(|least| count < *least) {
        return Err(Fault::Short(least));
    }
    if let Some(most) = most.filter(|most| count > *most) {
        return Err(Fault::Long(most));
    }
    let fault = |known: bool, format: &'static str| if known { Ok(()) } else { Err(Fault::Format(format)) };
    match format {
        Some("email") => {
            let parts = text.split_once('@');
            let known =
                parts.is_some_and(|(name, host)| !name.is_empty() && host.contains('.') && !host.starts_with('.') && !host.ends_with('.'));
            fault(known && !text.contains(char::is_whitespace) && text.matches('@').count() == 1, "email")
        }
        Some("uri") => {
            let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
            let known = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
                && !text.contains(char::is_whitespace);
            fault(known, "uri")
        }
        Some("date") => fault(text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(), "date"),
        Some("date-time") => fault(text.parse::<jiff::Timestamp>().is_ok(), "date-time"),
        _ => Ok(()),
    }
}

impl Fault {
    /// In words.
    fn words(self, look: Look<'_>) -> String {
        let count = |count: u64| [("count", (count as f64).into())];
        match self {
            Self::Missing => look.t("fault-missing"),
            Self::Short(least) => look.locale.tv("fault-short", count(least)),
            Self::Long(most) => look.locale.tv("fault-long", count(most)),
            Self::NoNumber => look.t("fault-number"),
            Self::NoInteger => look.t("fault-integer"),
            Self::Small(least) => look.locale.tv("fault-small", [("number", least.into())]),
            Self::Large(most) => look.locale.tv("fault-large", [("number", most.into())]),
            Self::Format("email") => look.t("fault-email"),
            Self::Format("uri") => look.t("fault-uri"),
            Self::Format("date") => look.t("fault-date"),
            Self::Format(_) => look.t("fault-date-time"),
            Self::Few(least) => look.locale.tv("fault-few", count(least)),
            Self::Many(most) => look.locale.tv("fault-many", count(most)),
        }
    }
}

#[cfg(test)]
mod tests {
    use handrail_engine::mcp::question::fields;

    use super::*;

    fn one(schema: Value, required: bool) -> Filled {
        let schema = json!({"type": "object", "properties": {"x": schema}, "required": if required { vec!["x"] } else { vec![] }});
        Filled::new(fields(&schema).remove(0))
    }

    fn typed(schema: Value, text: &str) -> Result<Option<Value>, Fault> {
        let mut field = one(schema, false);
        field.update(Message::Typed(text.to_owned()));
        field.value()
    }

    #[test]
    fn texts_are_measured_in_characters_and_formats_are_known() {
        let bounds = json!({"type": "string", "minLength": 2, "maxLength": 3});
        assert_eq!(typed(bounds.clone(), "中"), Err(Fault::Short(2)));
        assert_eq!(typed(bounds.clone(), "中文字"), Ok(Some(json!("中文字"))));
        assert_eq!(typed(bounds, "abcd"), Err(Fault::Long(3)));
        for (format, good, bad) in [
            ("email", "a@b.org", "a@b"),
            ("uri", "https://example.com/x", "no address"),
            ("date", "2026-02-28", "2026-02-30"),
            ("date-time", "2026-02-28T10:00:00Z", "2026-02-28"),
        ] {
            let schema = json!({"type": "string", "format": format});
            assert!(typed(schema.clone(), good).is_ok(), "{good}");
            assert!(matches!(typed(schema, bad), Err(Fault::Format(_))), "{bad}");
        }
    }

    #[test]
    fn numbers_keep_their_kind_and_their_bounds() {
        let number = json!({"type": "number", "minimum": 0.5, "maximum": 2});
        assert_eq!(typed(number.clone(), " 1.5 "), Ok(Some(json!(1.5))));
        assert_eq!(typed(number.clone(), "0.4"), Err(Fault::Small(0.5)));
        assert_eq!(typed(number.clone(), "NaN"), Err(Fault::NoNumber));
        assert_eq!(typed(number, "3"), Err(Fault::Large(2.0)));
        let integer = json!({"type": "integer", "minimum": 0});
        assert_eq!(typed(integer.clone(), "7"), Ok(Some(json!(7))));
        assert_eq!(typed(integer.clone(), "7.5"), Err(Fault::NoInteger));
        assert_eq!(typed(integer, "-1"), Err(Fault::Small(0.0)));
    }

    #[test]
    fn what_is_left_empty_is_left_out_or_missing() {
        assert_eq!(one(json!({"type": "string"}), false).value(), Ok(None));
        assert_eq!(one(json!({"type": "string"}), true).value(), Err(Fault::Missing));
        assert_eq!(one(json!({"type": "string", "enum": ["a"]}), true).value(), Err(Fault::Missing));
        assert_eq!(one(json!({"type": "boolean"}), true).value(), Ok(Some(json!(false))));
        assert_eq!(one(json!({"type": "boolean"}), false).value(), Ok(None));
        assert_eq!(one(json!({"type": "string", "default": "UTC"}), true).value(), Ok(Some(json!("UTC"))));
    }

    #[test]
    fn choices_are_sent_in_the_forms_order_and_counted() {
        let mut field = one(json!({"type": "array", "minItems": 1, "maxItems": 2, "items": {"enum": ["a", "b", "c"]}}), false);
        assert_eq!(field.value(), Err(Fault::Few(1)));
        for value in ["c", "a"] {
            field.update(Message::Ticked(value.to_owned(), true));
        }
        assert_eq!(field.value(), Ok(Some(json!(["a", "c"]))));
        field.update(Message::Ticked("b".to_owned(), true));
        assert_eq!(field.value(), Err(Fault::Many(2)));
        let mut one = one(json!({"type": "string", "enum": ["a", "b"]}), true);
        one.update(Message::Chosen("b".to_owned()));
        assert_eq!(one.value(), Ok(Some(json!("b"))));
    }
}
