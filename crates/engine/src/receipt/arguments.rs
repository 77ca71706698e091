//! What a record may say of paths: the file, never the folders, which name people and machines.

use serde_json::Value;

/// An argument of the command line, without the folders of a path and without the query of an address, which may hold a
/// secret. Names of public repositories (`hf.co/user/repo`) stay whole.
pub(super) fn without_folders(argument: &str) -> String {
    if argument.starts_with("hf.co/") {
        return argument.to_owned();
    }
    let (flag, value) = match argument.split_once('=') {
        Some((flag, value)) if flag.starts_with('-') => (&argument[..=flag.len()], value),
        _ => ("", argument),
    };
    let value = match value.contains("://") {
        true => value.split(['?', '#']).next().unwrap_or_default(),
        false => value,
    };
    format!("{flag}{}", last_part(value))
}

/// Every text in `value`, without the folders of absolute paths in it.
pub(super) fn without_paths(value: &mut Value) {
    match value {
        Value::String(text) => *text = text_without_paths(text),
        Value::Array(items) => items.iter_mut().for_each(without_paths),
        Value::Object(map) => map.values_mut().for_each(without_paths),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A text without the folders of the absolute paths in it. Folders may hold spaces, so all goes that lies between the
/// first sign of a path and the last separator.
pub(super) fn text_without_paths(text: &str) -> String {
    // The folder of a cgroup names users and containers, and nothing that anybody else could use.
    if let Some((limit, _)) = text.split_once(" of /sys/fs/cgroup") {
        return limit.to_owned();
    }
    let mut before = ' ';
    let start = text.char_indices().find(|&(_, c)| {
        let starts = c == '/' && !before.is_alphanumeric();
        before = c;
        starts
    });
    match start {
        Some((at, _)) => format!("{}{}", &text[..at], last_part(&text[at..])),
        None => text.to_owned(),
    }
}

fn last_part(path: &str) -> &str {
    let path = path.trim_end_matches(['/', '\\']);
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_go_and_the_rest_stays() {
        for (argument, want) in [
            ("plan", "plan"),
            ("/home/anna/m.gguf", "m.gguf"),
            ("./models/m.gguf", "m.gguf"),
            ("models/", "models"),
            ("C:\\Users\\anna\\m.gguf", "m.gguf"),
            ("--receipt=/home/anna/r.json", "--receipt=r.json"),
            ("--heap-cap=256M", "--heap-cap=256M"),
            ("hf.co/user/repo:Q4_K_M", "hf.co/user/repo:Q4_K_M"),
            ("smollm2:135m", "smollm2:135m"),
            ("https://anna:pw@host/a/m.gguf?token=x/y", "m.gguf"),
            ("/", ""),
        ] {
            assert_eq!(without_folders(argument), want);
        }
    }

    #[test]
    fn paths_in_texts() {
        for (text, want) in [
            ("heap cap", "heap cap"),
            (
                "cgroup memory.max of /sys/fs/cgroup/user.slice/user-1000.slice",
                "cgroup memory.max",
            ),
            (
                "error: /home/anna b/m.gguf: no such file",
                "error: m.gguf: no such file",
            ),
            ("33 MB/s, tokens/s", "33 MB/s, tokens/s"),
            ("file=/a/b", "file=b"),
        ] {
            assert_eq!(text_without_paths(text), want);
        }
    }
}
