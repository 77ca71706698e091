//! Choosing one model among the GGUF files of a repository.

/// Tried in this order where the user names no quantisation: small files that keep
/// nearly all of the quality first, then the nearest larger, then the smaller ones.
const PREFERENCE: &[&str] = &[
    "Q4_K_M",
    "Q4_K_S",
    "Q4_K",
    "Q4_0",
    "Q4_1",
    "IQ4_XS",
    "IQ4_NL",
    "UD-Q4_K_XL",
    "MXFP4",
    "Q5_K_M",
    "Q5_K_S",
    "Q5_0",
    "Q5_1",
    "Q6_K",
    "Q8_0",
    "Q3_K_M",
    "Q3_K_L",
    "Q3_K_S",
    "IQ3_S",
    "Q2_K",
    "TQ2_0",
    "TQ1_0",
    "BF16",
    "F16",
    "F32",
];

/// The files that make up one model, in loading order, as indices into the listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// Path of the (first) file, without `.gguf` and without the split counter.
    stem: String,
    /// Quantisation in the file name, upper case.
    pub label: Option<String>,
    /// `(part, index)`; one entry for a model in one file.
    parts: Vec<(u32, usize)>,
    /// How many files the names speak of.
    count: u32,
}

impl Group {
    pub(crate) fn files(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().map(|&(_, index)| index)
    }

    fn is_whole(&self) -> bool {
        self.parts.len() as u64 == u64::from(self.count)
            && self.parts.iter().zip(1..).all(|(&(part, _), n)| part == n)
    }

    fn title(&self) -> String {
        self.label
            .clone()
            .unwrap_or_else(|| format!("{}.gguf", self.stem))
    }
}

/// Picks the group for `quant`, which is a quantisation, a file name, or nothing.
///
/// # Errors
/// What the listing does hold, for a message.
pub(crate) fn pick(paths: &[&str], quant: Option<&str>) -> Result<Group, String> {
    let groups = group(paths);
    let chosen = match quant {
        Some(wanted) => groups.iter().find(|g| matches(g, wanted, paths)),
        None if groups.len() == 1 => groups.first(),
        None => PREFERENCE
            .iter()
            .find_map(|name| groups.iter().find(|g| g.label.as_deref() == Some(name))),
    };
    chosen.cloned().ok_or_else(|| {
        const SHOWN: usize = 40;
        let mut titles: Vec<String> = groups.iter().map(Group::title).take(SHOWN).collect();
        if groups.len() > SHOWN {
            titles.push(format!("{} more", groups.len() - SHOWN));
        }
        if titles.is_empty() {
            "no GGUF model".to_owned()
        } else {
            titles.join(", ")
        }
    })
}

fn matches(group: &Group, wanted: &str, paths: &[&str]) -> bool {
    let by_label = group
        .label
        .as_deref()
        .is_some_and(|label| label.eq_ignore_ascii_case(wanted));
    let by_name = || {
        group.files().next().is_some_and(|first| {
            let path = paths[first];
            let name = path.rsplit('/').next().unwrap_or(path);
            [path, name].iter().any(|p| {
                p.eq_ignore_ascii_case(wanted)
                    || p[..p.len() - ".gguf".len()].eq_ignore_ascii_case(wanted)
            })
        })
    };
    by_label || by_name()
}

/// All whole models among `paths`; projectors and importance matrices are left out.
fn group(paths: &[&str]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
        if !name.ends_with(".gguf") || name.contains("mmproj") || name.contains("imatrix") {
            continue;
        }
        let whole = &path[..path.len() - ".gguf".len()];
        let (stem, part, count) = split_counter(whole).unwrap_or((whole, 1, 1));
        match groups
            .iter_mut()
            .find(|g| g.stem == stem && g.count == count)
        {
            Some(group) => group.parts.push((part, index)),
            None => groups.push(Group {
                stem: stem.to_owned(),
                label: label(stem),
                parts: vec![(part, index)],
                count,
            }),
        }
    }
    for group in &mut groups {
        group.parts.sort_unstable();
    }
    groups.retain(Group::is_whole);
    groups
}

/// Splits `name-00002-of-00003` into name, part and count.
pub(crate) fn split_counter(stem: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (name, part) = rest.rsplit_once('-')?;
    let five = |s: &str| s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit());
    if !five(count) || !five(part) {
        return None;
    }
    let (part, count) = (part.parse().ok()?, count.parse().ok()?);
    (1..=count).contains(&part).then_some((name, part, count))
}

/// The quantisation at the end of a file name: `x-Q4_K_M`, `x.q8_0`, `x-UD-Q4_K_XL`.
fn label(stem: &str) -> Option<String> {
    let name = stem.rsplit('/').next().unwrap_or(stem).to_ascii_uppercase();
    let last = name.rsplit(['-', '.']).next()?;
    let digits_after = |prefix: &str| {
        last.strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let is_quant = matches!(last, "F16" | "BF16" | "F32" | "FP16" | "FP32")
        || ["Q", "IQ", "TQ", "MXFP"]
            .iter()
            .any(|prefix| digits_after(prefix));
    if !is_quant {
        return None;
    }
    let dynamic = name[..name.len() - last.len()].ends_with("UD-");
    Some(if dynamic {
        format!("UD-{last}")
    } else {
        last.to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(paths: &[&str], quant: Option<&str>) -> Result<Vec<usize>, String> {
        pick(paths, quant).map(|group| group.files().collect())
    }

    #[test]
    fn labels_of_names_seen_in_the_wild() {
        for (name, wanted) in [
            ("SmolLM2-135M-Instruct.Q4_1", Some("Q4_1")),
            ("qwen2.5-0.5b-instruct-q4_k_m", Some("Q4_K_M")),
            ("gemma-3-270m-it-qat-Q4_0", Some("Q4_0")),
            ("Qwen3.5-0.8B-UD-Q4_K_XL", Some("UD-Q4_K_XL")),
            ("gpt-oss-20b-mxfp4", Some("MXFP4")),
            ("sub/model-BF16", Some("BF16")),
            ("qwen3-4b", None),
            ("model", None),
        ] {
            assert_eq!(label(name).as_deref(), wanted, "{name}");
        }
    }

    #[test]
    fn the_usual_choice_and_an_explicit_one() {
        let paths = [
            "README.md",
            "m-Q8_0.gguf",
            "m-UD-Q4_K_M.gguf",
            "m-Q4_K_M.gguf",
            "mmproj-m-Q4_K_M.gguf",
            "m-imatrix.gguf",
        ];
        assert_eq!(picked(&paths, None), Ok(vec![3]));
        assert_eq!(picked(&paths, Some("q8_0")), Ok(vec![1]));
        assert_eq!(picked(&paths, Some("UD-Q4_K_M")), Ok(vec![2]));
        assert_eq!(picked(&paths, Some("M-q8_0.gguf")), Ok(vec![1]));
        let have = picked(&paths, Some("Q2_K")).unwrap_err();
        assert_eq!(have, "Q8_0, UD-Q4_K_M, Q4_K_M");
        assert_eq!(picked(&["a.bin"], None).unwrap_err(), "no GGUF model");
        assert_eq!(picked(&["anything.gguf"], None), Ok(vec![0]));
    }

    #[test]
    fn split_models_come_whole_and_in_order_or_not_at_all() {
        let paths = [
            "Q4_K_M/m-Q4_K_M-00002-of-00002.gguf",
            "Q4_K_M/m-Q4_K_M-00001-of-00002.gguf",
            "Q8_0/m-Q8_0-00002-of-00002.gguf",
        ];
        assert_eq!(picked(&paths, None), Ok(vec![1, 0]));
        assert_eq!(picked(&paths, Some("Q8_0")).unwrap_err(), "Q4_K_M");
        assert_eq!(split_counter("m-00001-of-00002"), Some(("m", 1, 2)));
        for bad in ["m-00003-of-00002", "m-1-of-2", "m", "m-00000-of-00001"] {
            assert_eq!(split_counter(bad), None, "{bad}");
        }
    }
}
