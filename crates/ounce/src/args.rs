//! llama.cpp's flags of several letters behind one dash, which clap has no notion of.

use std::ffi::OsString;

/// Short spelling → long spelling.
const SHORT: &[(&str, &str)] = &[
    ("-ub", "--ubatch-size"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-sys", "--system"),
    ("-np", "--parallel"),
];

/// The arguments with every such flag spelt out; what follows `--` is left alone.
pub fn expand(args: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut literal = false;
    args.map(move |arg| {
        literal |= arg == "--";
        match SHORT.iter().find(|(short, _)| !literal && arg == *short) {
            Some((_, long)) => OsString::from(long),
            None => arg,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_flags_are_spelt_out_and_nothing_else() {
        let got: Vec<_> = expand(
            ["ounce", "-ub", "64", "-c", "--", "-ub"]
                .map(OsString::from)
                .into_iter(),
        )
        .collect();
        assert_eq!(got, ["ounce", "--ubatch-size", "64", "-c", "--", "-ub"]);
    }
}
