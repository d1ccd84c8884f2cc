//! What a server asks the person in the middle of its work. Nothing here is ever answered by itself.

use serde_json::{Map, Value};

use crate::tool::ServerId;
use crate::tool::schema::{Checker, Wrong};

/// Names a question within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuestionId(pub u64);

/// A question.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Its id.
    pub id: QuestionId,
    /// Who asks.
    pub server: ServerId,
    /// The tool in whose call it is asked, where that is known.
    pub tool: Option<String>,
    /// What is asked.
    pub ask: Ask,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// Fields to fill in (form elicitation).
    Form {
        /// What for.
        message: String,
        /// The fields: a flat JSON Schema object.
        schema: Value,
    },
    /// A page to open (URL elicitation). Its address is shown whole before it is opened, and opened only by click.
    Url {
        /// What for.
        message: String,
        /// The page.
        url: String,
    },
    /// The server wants our model to write something (sampling).
    Sampling {
        /// What it sends, as text for people.
        prompt: String,
        /// The instructions that it gives the model.
        system: Option<String>,
        /// The most tokens it wants.
        max_tokens: u32,
    },
}

/// The answer of the person.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Yes; with the fields of a form.
    Accept(Map<String, Value>),
    /// No.
    Decline,
    /// Not answered at all.
    Cancel,
}

/// A field of a form, as a window draws it.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its key in the answer.
    pub name: String,
    /// Its title for people; the name where there is none.
    pub title: String,
    /// What it is.
    pub description: Option<String>,
    /// Whether it must be filled in.
    pub required: bool,
    /// What goes in.
    pub kind: FieldKind,
}

/// What goes into a field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldKind {
    /// Text.
    Text {
        /// What is in it at first.
        default: Option<String>,
        /// "email", "uri", "date" or "date-time", where it is one.
        format: Option<String>,
        /// Fewest characters.
        least: Option<u64>,
        /// Most characters.
        most: Option<u64>,
    },
    /// A number.
    Number {
        /// What is in it at first.
        default: Option<f64>,
        /// The smallest.
        least: Option<f64>,
        /// The largest.
        most: Option<f64>,
    },
    /// A whole number.
    Integer {
        /// What is in it at first.
        default: Option<i64>,
        /// The smallest.
        least: Option<i64>,
        /// The largest.
        most: Option<i64>,
    },
    /// Yes or no.
    Boolean {
        /// What it is at first.
        default: Option<bool>,
    },
    /// One of several.
    Choice {
        /// What is chosen at first, by value.
        default: Option<String>,
        /// What there is to choose from.
        options: Vec<Choice>,
    },
    /// Any of several.
    Choices {
        /// What is chosen at first, by value.
        default: Vec<String>,
        /// What there is to choose from.
        options: Vec<Choice>,
        /// Fewest that must be chosen.
        least: Option<u64>,
        /// Most that may be chosen.
        most: Option<u64>,
    },
}

/// Something to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What is sent.
    pub value: String,
    /// What is shown.
    pub title: String,
}

/// The fields of a form's schema in the server's order. A field of a kind that is not known is a text: the answer is
/// checked against the schema in any case.
#[must_use]
pub fn fields(schema: &Value) -> Vec<Field> {
    let required: Vec<&str> = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    properties
        .map(|(name, field)| Field {
            name: name.clone(),
            title: text(field, "title").unwrap_or_else(|| name.clone()),
            description: text(field, "description"),
            required: required.contains(&name.as_str()),
            kind: kind(field),
        })
        .collect()
}

fn text(field: &Value, key: &str) -> Option<String> {
    field.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn kind(field: &Value) -> FieldKind {
    let count = |key: &str| field.get(key).and_then(Value::as_u64);
    let default = field.get("default");
    match field.get("type").and_then(Value::as_str) {
        Some("boolean") => FieldKind::Boolean { default: default.and_then(Value::as_bool) },
        Some("integer") => {
            let whole = |key: &str| field.get(key).and_then(Value::as_i64);
            FieldKind::Integer { default: whole("default"), least: whole("minimum"), most: whole("maximum") }
        }
        Some("number") => {
            let number = |key: &str| field.get(key).and_then(Value::as_f64);
            FieldKind::Number { default: number("default"), least: number("minimum"), most: number("maximum") }
        }
        Some("array") => FieldKind::Choices {
            default: default.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
            options: field.get("items").map(options).unwrap_or_default(),
            least: count("minItems"),
            most: count("maxItems"),
        },
        _ => match options(field) {
            options if !options.is_empty() => FieldKind::Choice { default: text(field, "default"), options },
            _ => FieldKind::Text {
                default: text(field, "default"),
                format: text(field, "format"),
                least: count("minLength"),
                most: count("maxLength"),
            },
        },
    }
}

/// `oneOf` or `anyOf` with titles, or `enum`, with titles beside it in the older way (`enumNames`).
fn options(field: &Value) -> Vec<Choice> {
    let list = |key: &str| field.get(key).and_then(Value::as_array);
    if let Some(titled) = list("oneOf").or_else(|| list("anyOf")) {
        let choice = |option: &Value| {
            let value = text(option, "const")?;
            Some(Choice { title: text(option, "title").unwrap_or_else(|| value.clone()), value })
        };
        return titled.iter().filter_map(choice).collect();
    }
    let names = list("enumNames");
    let values = list("enum").into_iter().flatten().enumerate();
    values
        .filter_map(|(index, value)| {
            let value = value.as_str()?.to_owned();
            let title = names.and_then(|names| names.get(index)).and_then(Value::as_str).unwrap_or(&value).to_owned();
            Some(Choice { value, title })
        })
        .collect()
}

impl Question {
    /// Whether the answer may be sent. What a person filled in must fit the form.
    pub(super) fn accepts(&self, answer: &Answer) -> Result<(), String> {
        match (&self.ask, answer) {
            (Ask::Form { schema, .. }, Answer::Accept(fields)) => Checker::new(schema, true)
                .map_err(|error| format!("the form cannot be checked, so nothing can be sent: {error}"))?
                .check(&Value::Object(fields.clone()))
                .map_err(|wrong| match wrong {
                    Wrong::Unfit(reason) => reason,
                    Wrong::TooMuch => "the form asks for more work than it may, so nothing can be sent".to_owned(),
                }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form() -> Value {
        json!({
            "type": "object",
            "properties": {
                "zone": { "type": "string", "title": "Zone", "description": "Where", "minLength": 2, "default": "UTC" },
                "mail": { "type": "string", "format": "email" },
                "age": { "type": "integer", "minimum": 0, "maximum": 150, "default": 30 },
                "share": { "type": "number", "minimum": 0.5 },
                "sure": { "type": "boolean", "default": true },
                "plain": { "type": "string", "enum": ["a", "b"], "enumNames": ["Ay", "Bee"] },
                "titled": { "type": "string", "oneOf": [{ "const": "x", "title": "Ex" }, { "const": "y" }], "default": "y" },
                "many": { "type": "array", "minItems": 1, "maxItems": 2, "items": { "anyOf": [{ "const": "p", "title": "Pea" }] }, "default": ["p"] },
                "tags": { "type": "array", "items": { "type": "string", "enum": ["t"] } },
                "odd": { "description": "of no kind" }
            },
            "required": ["zone", "sure"]
        })
    }

    fn choice(value: &str, title: &str) -> Choice {
        Choice { value: value.to_owned(), title: title.to_owned() }
    }

    #[test]
    fn fields_come_in_the_servers_order_with_kinds_bounds_and_defaults() {
        let fields = fields(&form());
        let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["zone", "mail", "age", "share", "sure", "plain", "titled", "many", "tags", "odd"]);
        assert_eq!((fields[0].title.as_str(), fields[0].description.as_deref(), fields[0].required), ("Zone", Some("Where"), true));
        assert_eq!((fields[1].title.as_str(), fields[1].required), ("mail", false));
        let kinds: Vec<FieldKind> = fields.into_iter().map(|field| field.kind).collect();
        let plain = |format: Option<&str>| FieldKind::Text { default: None, format: format.map(str::to_owned), least: None, most: None };
        assert_eq!(kinds[0], FieldKind::Text { default: Some("UTC".to_owned()), format: None, least: Some(2), most: None });
        assert_eq!(kinds[1], plain(Some("email")));
        assert_eq!(kinds[2], FieldKind::Integer { default: Some(30), least: Some(0), most: Some(150) });
        assert_eq!(kinds[3], FieldKind::Number { default: None, least: Some(0.5), most: None });
        assert_eq!(kinds[4], FieldKind::Boolean { default: Some(true) });
        assert_eq!(kinds[5], FieldKind::Choice { default: None, options: vec![choice("a", "Ay"), choice("b", "Bee")] });
        assert_eq!(kinds[6], FieldKind::Choice { default: Some("y".to_owned()), options: vec![choice("x", "Ex"), choice("y", "y")] });
        let many = FieldKind::Choices { default: vec!["p".to_owned()], options: vec![choice("p", "Pea")], least: Some(1), most: Some(2) };
        assert_eq!(kinds[7], many);
        assert_eq!(kinds[8], FieldKind::Choices { default: Vec::new(), options: vec![choice("t", "t")], least: None, most: None });
        assert_eq!(kinds[9], plain(None));
        let future = super::fields(&json!({ "properties": { "h": { "type": "hologram" } } }));
        assert_eq!(future[0].kind, plain(None));
        assert!(super::fields(&json!("no form")).is_empty());
    }

    #[test]
    fn an_answer_must_fit_the_form_and_a_no_always_fits() {
        let ask = Ask::Form { message: "who?".to_owned(), schema: form() };
        let question = Question { id: QuestionId(1), server: "s".into(), tool: None, ask };
        let accept = |value: Value| Answer::Accept(value.as_object().unwrap().clone());
        assert_eq!(question.accepts(&accept(json!({ "zone": "CET", "sure": false }))), Ok(()));
        for (wrong, place) in [
            (json!({ "sure": true }), "zone"),
            (json!({ "zone": "CET", "sure": true, "age": 200 }), "/age"),
            (json!({ "zone": "CET", "sure": true, "mail": "nobody" }), "/mail"),
            (json!({ "zone": "CET", "sure": true, "plain": "c" }), "/plain"),
        ] {
            let reason = question.accepts(&accept(wrong)).unwrap_err();
            assert!(reason.contains(place), "{reason}");
        }
        assert_eq!((question.accepts(&Answer::Decline), question.accepts(&Answer::Cancel)), (Ok(()), Ok(())));
    }
}
