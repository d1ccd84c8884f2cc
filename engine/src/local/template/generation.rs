//! The tags `generation` and `endgeneration`, with which a template marks what its model wrote. Only training needs the
//! marks, so each pair becomes a condition that always holds: the text between stays, with the same white space.

/// The template with every pair of these tags made harmless. Literals, comments and raw sections stay as they are.
pub(super) fn read_through(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 32);
    let mut rest = source;
    let mut raw = false;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let length = match from.as_bytes().get(1) {
            Some(b'%') => {
                let inside = &from[2..];
                let Some(end) = tag_end(inside, "%}").map(|end| end + 2) else { break };
                let tag = &from[..end];
                let (name, replaced) = replaced(tag);
                // Only the end of a raw section is a tag inside of it.
                if !raw || name == "endraw" {
                    raw = name == "raw";
                    match replaced {
                        Some(tag) => out.push_str(&tag),
                        None => out.push_str(tag),
                    }
                    rest = &from[end..];
                    continue;
                }
                1
            }
            Some(b'{') if !raw => tag_end(&from[2..], "}}").map_or(from.len(), |end| end + 2),
            Some(b'#') if !raw => from.find("#}").map_or(from.len(), |end| end + 2),
            _ => 1,
        };
        out.push_str(&from[..length]);
        rest = &from[length..];
    }
    out + rest
}

/// Where a tag ends, behind its closing mark; quoted text is passed over.
fn tag_end(inside: &str, close: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if matches!(c, '"' | '\'') => quote = Some(c),
            None if inside[at..].starts_with(close) => return Some(at + close.len()),
            None => {}
        }
    }
    None
}

/// A tag's name, and what stands in its place where it is one of the two.
fn replaced(tag: &str) -> (&str, Option<String>) {
    let inside = tag.strip_prefix("{%").unwrap_or(tag);
    let inside = inside.strip_suffix("%}").unwrap_or(inside);
    let name = inside.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
    let instead = match name {
        "generation" => "if true",
        "endgeneration" => "endif",
        _ => return (name.split_whitespace().next().unwrap_or(""), None),
    };
    (name, Some(tag.replacen(name, instead, 1)))
}

#[cfg(test)]
mod tests {
    use super::read_through;

    #[test]
    fn the_tags_go_and_their_white_space_control_stays() {
        for (source, read) in [
            ("a{% generation %}b{% endgeneration %}c", "a{% if true %}b{% endif %}c"),
            ("{%- generation -%} b {%-endgeneration-%}", "{%- if true -%} b {%-endif-%}"),
            ("{%+ generation +%}{%\n  endgeneration\n%}", "{%+ if true +%}{%\n  endif\n%}"),
        ] {
            assert_eq!(read_through(source), read);
        }
    }

    #[test]
    fn what_only_looks_like_them_stays() {
        for source in [
            "{{ '{% generation %}' }}",
            "{% set a = \"%}{% generation %}\" %}",
            "{% set a = 'it\\'s {% endgeneration %}' %}",
            "{# {% generation %} #}",
            "{% raw %}{% generation %}{{ '{% endraw %}",
            "{%- raw -%}{% endgeneration %}{%- endraw -%}{% if generation %}{% endif %}",
            "{ % generation % } {% generations %} generation {",
            "{{ 'open",
            "{% generation",
            "{% if 'open",
            "{# open",
            "",
            "{",
            "{%",
        ] {
            assert_eq!(read_through(source), source);
        }
    }
}
