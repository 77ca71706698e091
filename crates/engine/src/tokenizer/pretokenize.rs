//! Pre-tokenisers: how text is cut into pieces that merges never cross. Each is a list of patterns, each pattern cutting
//! the pieces the one before it left; what it does not match stays a piece.
//!
//! The patterns come with the models (`tokenizer.json`); names and aliases are llama.cpp's, whose `tokenizer.ggml.pre`
//! this is. A new one is a line in [`TABLE`]. Two differences to llama.cpp are known and meant: character classes are those
//! of a newer Unicode, and `deepseek-llm`'s classes hold U+2028, U+205F and U+3000 as the model's pattern says, where
//! llama.cpp takes every white space beyond ASCII out of them.

use regex::Regex;

use super::TokenizerError;

/// Name of the one for files that do not name any.
pub(super) const DEFAULT: &str = "default";

struct Entry {
    names: &'static [&'static str],
    passes: &'static [Pass],
    /// A piece that is a token is not merged from its bytes.
    ignore_merges: bool,
    /// Prompts start with the begin-of-sequence token unless the file says otherwise.
    add_bos: bool,
}

struct Pass {
    pattern: &'static str,
    blank: Blank,
}

/// What a match of only white space means. The models' patterns end in `\s+(?!\S)|\s+`; here they end in `\s+`, which
/// takes the same white space and gives back the last character if a word follows, so that it can go with the word.
/// Without lookahead a pattern runs in linear time, whatever the text.
#[derive(Clone, Copy, PartialEq)]
enum Blank {
    /// Taken as matched.
    Keep,
    /// From `\s+`.
    GiveBack,
    /// From `\s+`, unless it ends in a line break: then from an alternative before it, and taken as matched.
    GiveBackInLine,
}

const fn pass(pattern: &'static str, blank: Blank) -> Pass {
    Pass { pattern, blank }
}

const GPT2: Pass = pass(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+",
    Blank::GiveBack,
);

const TABLE: &[Entry] = &[
    Entry {
        names: &[DEFAULT],
        passes: &[
            pass(r"[\p{P}$+<=>^~|]+", Blank::Keep),
            GPT2,
            pass(r"\p{N}+", Blank::Keep),
            pass(r"[0-9][0-9][0-9]", Blank::Keep),
        ],
        ignore_merges: false,
        add_bos: false,
    },
    Entry {
        names: &["gpt-2", "phi-2", "mpt", "olmo", "exaone4", "modern-bert"],
        passes: &[GPT2],
        ignore_merges: false,
        add_bos: false,
    },
    Entry {
        names: &[
            "smollm",
            "refact",
            "starcoder",
            "command-r",
            "codeshell",
            "exaone",
        ],
        passes: &[pass(r"\p{N}", Blank::Keep), GPT2],
        ignore_merges: false,
        add_bos: false,
    },
    Entry {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "lfm2",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
        ],
        passes: &[pass(
            r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
            Blank::GiveBackInLine,
        )],
        ignore_merges: true,
        add_bos: true,
    },
    Entry {
        names: &["qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"],
        passes: &[pass(
            r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
            Blank::GiveBackInLine,
        )],
        ignore_merges: false,
        add_bos: false,
    },
    Entry {
        names: &["qwen35"],
        passes: &[pass(
            r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
            Blank::GiveBackInLine,
        )],
        ignore_merges: false,
        add_bos: false,
    },
    Entry {
        names: &["deepseek-llm"],
        passes: &[
            pass(r"[\r\n]", Blank::Keep),
            pass(DEEPSEEK_CASED, Blank::Keep),
            pass(
                r"\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+",
                Blank::Keep,
            ),
            pass(r"\s+\z", Blank::Keep),
            pass(
                r"[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+",
                Blank::Keep,
            ),
            pass(r"\p{N}+", Blank::Keep),
        ],
        ignore_merges: false,
        add_bos: false,
    },
];

/// Letters with case, as the model's tokenizer lists them.
const DEEPSEEK_CASED: &str = concat!(
    r"\s?[\u{41}-\u{5a}\u{61}-\u{7a}\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}",
    r"\u{1bc}-\u{1bf}\u{1c4}-\u{293}\u{295}-\u{2af}\u{370}-\u{373}\u{376}\u{377}",
    r"\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\u{38c}\u{38e}-\u{3a1}\u{3a3}-\u{3f5}",
    r"\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}",
    r"\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}",
    r"\u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}",
    r"\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}\u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}",
    r"\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}\u{1fc6}-\u{1fcc}\u{1fd0}-\u{1fd3}",
    r"\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}",
    r"\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}",
    r"\u{212f}-\u{2134}\u{2139}\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}",
    r"\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}\u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}",
    r"\u{a680}-\u{a69b}\u{a722}-\u{a76f}\u{a771}-\u{a787}\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}",
    r"\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}",
    r"\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}",
    r"\u{118a0}-\u{118df}\u{1e900}-\u{1e943}]+",
);

/// Cuts text into pieces.
pub(super) struct PreTokenizer {
    passes: Vec<(Regex, Blank)>,
    pub ignore_merges: bool,
    pub add_bos: bool,
}

impl PreTokenizer {
    /// The one of this name.
    pub fn new(name: &str) -> Result<PreTokenizer, TokenizerError> {
        let entry = TABLE
            .iter()
            .find(|e| e.names.contains(&name))
            .ok_or_else(|| {
                let known: Vec<&str> = TABLE.iter().flat_map(|e| e.names).copied().collect();
                TokenizerError::Pre {
                    name: name.to_owned(),
                    known: known.join(", "),
                }
            })?;
        let compile = |p: &Pass| {
            (
                Regex::new(p.pattern).expect("a test compiles every pattern"),
                p.blank,
            )
        };
        Ok(PreTokenizer {
            passes: entry.passes.iter().map(compile).collect(),
            ignore_merges: entry.ignore_merges,
            add_bos: entry.add_bos,
        })
    }

    /// Calls `piece` with each piece of `text`, in order.
    pub fn split<'t>(&self, text: &'t str, piece: &mut dyn FnMut(&'t str)) {
        cut(&self.passes, text, piece);
    }
}

fn cut<'t>(passes: &[(Regex, Blank)], text: &'t str, piece: &mut dyn FnMut(&'t str)) {
    let Some(((regex, blank), rest)) = passes.split_first() else {
        if !text.is_empty() {
            piece(text);
        }
        return;
    };
    let mut done = 0;
    while let Some(m) = regex.find_at(text, done) {
        // Only of use where a pattern is applied to the rest of the text; `find_at` keeps what is before in view.
        let end = m.end() - given_back(m.as_str(), &text[m.end()..], *blank);
        cut(rest, &text[done..m.start()], piece);
        cut(rest, &text[m.start()..end], piece);
        done = end;
    }
    cut(rest, &text[done..], piece);
}

/// Bytes at the end of `matched` that belong to the word after it.
fn given_back(matched: &str, after: &str, blank: Blank) -> usize {
    let Some(last) = matched.chars().next_back().filter(|c| c.is_whitespace()) else {
        return 0;
    };
    let from_blank = match blank {
        Blank::Keep => false,
        Blank::GiveBack => true,
        Blank::GiveBackInLine => !matches!(last, '\r' | '\n'),
    };
    // The match is all white space here: an alternative that ends in white space otherwise ends in a line break.
    if from_blank && !after.is_empty() && matched.len() > last.len_utf8() {
        last.len_utf8()
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        let mut out = Vec::new();
        PreTokenizer::new(name)
            .unwrap()
            .split(text, &mut |p| out.push(p));
        out
    }

    #[test]
    fn every_pattern_compiles_and_every_name_is_there_once() {
        let names: Vec<&str> = TABLE.iter().flat_map(|e| e.names).copied().collect();
        for name in &names {
            assert!(PreTokenizer::new(name).is_ok());
            assert_eq!(names.iter().filter(|n| n == &name).count(), 1, "{name}");
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = PreTokenizer::new("kimi-k9").err().unwrap().to_string();
        assert!(
            error.contains("\"kimi-k9\"") && error.contains("llama-bpe"),
            "{error}"
        );
    }

    #[test]
    fn white_space_gives_its_last_character_to_the_word() {
        assert_eq!(pieces("gpt-2", "a   b"), ["a", "  ", " b"]);
        assert_eq!(pieces("gpt-2", "a \n b \n\n"), ["a", " \n", " b", " \n\n"]);
        assert_eq!(pieces("gpt-2", "a\t\tb"), ["a", "\t", "\t", "b"]);
        assert_eq!(pieces("llama-bpe", "a \n\n  b"), ["a", " \n\n", " ", " b"]);
        assert_eq!(pieces("llama-bpe", "a\t\tb  "), ["a", "\t", "\tb", "  "]);
        assert_eq!(pieces("qwen2", "x \u{3000}y"), ["x", " ", "\u{3000}y"]);
    }

    #[test]
    fn digits() {
        assert_eq!(pieces("llama-bpe", "12345"), ["123", "45"]);
        assert_eq!(pieces("qwen2", "a 12"), ["a", " ", "1", "2"]);
        assert_eq!(pieces("smollm", "a  12"), ["a", "  ", "1", "2"]);
        assert_eq!(pieces("gpt-2", "a 12345"), ["a", " 12345"]);
        assert_eq!(
            pieces("default", "a 1234567"),
            ["a", " ", "123", "456", "7"]
        );
        assert_eq!(pieces("deepseek-llm", "ab 123"), ["ab", " ", "123"]);
    }

    #[test]
    fn marks_stay_with_letters_in_qwen35_alone() {
        assert_eq!(pieces("qwen35", "e\u{301}a"), ["e\u{301}a"]);
        assert_eq!(pieces("qwen2", "e\u{301}a"), ["e", "\u{301}a"]);
    }

    // Expected pieces are those of the model's patterns in Python's `re`, one after the other. `:-~` holds the letters.
    #[test]
    fn deepseek_llm() {
        for (text, wanted) in [
            ("Hello wörld!\n\n", "Hello| w|ö|rld|!|\n|\n"),
            ("你好 (x)  ", "你好| (|x|)|  "),
            (
                "Ωμέγα Ångström 한국어 x=1;",
                "Ωμέγα| Å|ngstr|ö|m| |한국어| x|=|1|;",
            ),
        ] {
            assert_eq!(pieces("deepseek-llm", text).join("|"), wanted);
        }
    }

    #[test]
    fn pieces_make_up_the_text() {
        let text = "It's 3.14 \r\n\t  – 你好 'LL  <x>\u{a0}\u{301}e\u{301}  end  ";
        for name in TABLE.iter().flat_map(|e| e.names) {
            assert_eq!(pieces(name, text).concat(), text, "{name}");
        }
    }
}
