//! Templates of well-known families, for files that bring none. Which one fits is seen by the special tokens of the
//! vocabulary: a model was trained with them or does not have them.

use super::Tokenizer;

/// A family's way of writing a conversation.
#[derive(Debug)]
pub(super) struct Known {
    /// For command lines and JSON.
    pub(super) id: &'static str,
    /// For people.
    pub(super) name: &'static str,
    /// The tokens by which it is known; each must be one token of the vocabulary.
    pub(super) marks: &'static [&'static str],
    /// The template.
    pub(super) source: &'static str,
}

/// ChatML, which can also be chosen.
pub(super) const CHATML: Known = Known {
    id: "chatml",
    name: "ChatML",
    marks: &["<|im_start|>", "<|im_end|>"],
    source: "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\
             {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
};

/// In the order in which they are tried. A template that raises for a system turn gets its text in front of the first
/// question instead.
pub(super) const KNOWN: [Known; 5] = [
    CHATML,
    Known {
        id: "llama-3",
        name: "Llama 3",
        marks: &["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        source: "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content \
                 + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\
                 {% endif %}",
    },
    Known {
        id: "gemma",
        name: "Gemma",
        marks: &["<start_of_turn>", "<end_of_turn>"],
        source: "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system turns') }}{% endif %}\
                 {{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content + '<end_of_turn>\\n' }}\
                 {% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
    },
    Known {
        id: "phi",
        name: "Phi",
        marks: &["<|user|>", "<|assistant|>", "<|end|>"],
        source: "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endfor %}\
                 {% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
    },
    Known {
        id: "mistral",
        name: "Mistral",
        marks: &["[INST]", "[/INST]"],
        source: "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + '[/INST]' }}\
                 {% elif m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}{% else %}{{ raise_exception('no system turns') }}\
                 {% endif %}{% endfor %}",
    },
];

impl Known {
    /// Whether every mark is one token of the vocabulary.
    pub(super) fn fits(&self, tokenizer: &Tokenizer) -> bool {
        let one = |mark: &&str| tokenizer.encode(mark).is_ok_and(|tokens| tokens.len() == 1);
        self.marks.iter().all(one)
    }

    /// The one whose tokens the vocabulary has.
    pub(super) fn of(tokenizer: &Tokenizer) -> Option<Self> {
        KNOWN.into_iter().find(|known| known.fits(tokenizer))
    }

    /// Their names, for a sentence.
    pub(super) fn names() -> String {
        KNOWN.map(|known| known.name).join(", ")
    }
}
