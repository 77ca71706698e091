//! Chat templates of real models against Python's jinja2, and hostile ones against their limits.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ounce_engine::template::{ChatTemplate, DateTime, TemplateError, messages_to_vars};
use serde_json::{Value, json};

fn data(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data/templates")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn prompts_equal_those_of_jinja2() {
    let cases: Vec<Value> = serde_json::from_str(&data("expected.json")).unwrap();
    let mut failures = Vec::new();
    for case in &cases {
        let name = case["template"].as_str().unwrap();
        // 2026-01-02 03:04:05, as in the script that wrote the file.
        let template =
            ChatTemplate::with_clock(&data(name), || DateTime::from_unix(1_767_323_045)).unwrap();
        let label = format!("{name}, {}", case["case"].as_str().unwrap());
        match (template.render(&case["inputs"]), case["text"].as_str()) {
            (Ok(text), Some(wanted)) if text == wanted => {}
            (Err(_), None) => {}
            (found, wanted) => {
                failures.push(format!("{label}\n  found  {found:?}\n  wanted {wanted:?}"))
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {}:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
    assert_eq!(cases.len(), 140);
}

fn render(source: &str, vars: &Value) -> Result<String, TemplateError> {
    ChatTemplate::new(source)?.render(vars)
}

#[test]
fn what_a_template_raises_is_carried() {
    let error = render("{{ raise_exception('no\nsystem role') }}", &json!({})).unwrap_err();
    assert!(
        matches!(&error, TemplateError::Raised(m) if m == "no system role"),
        "{error}"
    );
}

#[test]
fn errors_name_the_line() {
    let syntax = ChatTemplate::new("a\n{% if %}").err().unwrap();
    assert!(
        matches!(syntax, TemplateError::Syntax { line: 2, .. }),
        "{syntax:?}"
    );
    let failed = render("a\n\n{{ x.y.z }}", &json!({})).unwrap_err();
    assert!(
        matches!(failed, TemplateError::Failed { line: 3, .. }),
        "{failed:?}"
    );
    assert_eq!(failed.to_string().lines().count(), 1);
}

#[test]
fn hostile_templates_come_to_an_end() {
    let sources = [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
        "{{ 'a' * 1000000000 }}",
        "{{ ('a' * 1000000) * 1000000 }}",
        "{{ [0] * 10000000000 }}",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
        "{% set s = 'a' * 1000000 %}{{ ([s] * 10000) | tojson }}",
        "{% set s = 'a' * 1000000 %}{{ ([s] * 10000) | join }}",
        "{% set s = 'a' * 1000000 %}{{ ([s] * 10000) | string }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ [ns.x] | join }}",
        "{% set s = 'a' * 1000000 %}{{ s.replace('a', s) }}",
        "{% set s = 'a' * 1000000 %}{{ s | replace('a', s) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ 'a' | indent(1000000000) }}",
        "{{ 'a\na' | indent(1000000000) }}",
        "{{ [1] | tojson(indent=1000000000) }}{{ 'a' * 1000000000 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for i in range(20000) %}{{ 'a' * 1000 }}{% endfor %}",
    ];
    for source in sources {
        let start = Instant::now();
        let result = render(source, &json!({}));
        assert!(result.is_err(), "{source}: {} bytes", result.unwrap().len());
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{source}: {:?}",
            start.elapsed()
        );
    }
}

#[test]
fn deeply_nested_values_do_not_overflow_the_stack() {
    let deep = "{% set ns = namespace(x=[]) %}{% for j in range(40) %}{% for i in range(10000) %}{% set ns.x = [ns.x] %}{% endfor %}{% endfor %}";
    for end in [
        "",
        "{{ ns.x }}",
        "{{ ns.x == ns.x }}",
        "{{ ns.x | string }}",
        "{{ [ns.x, ns.x] | sort }}",
    ] {
        // Whether it fails is the engine's to say; that it comes back is what counts.
        let _ = render(&format!("{deep}{end}"), &json!({}));
    }
    assert!(render(&format!("{deep}{{{{ ns.x | tojson }}}}"), &json!({})).is_err());
}

#[test]
fn deeply_nested_source_does_not_overflow_the_stack() {
    let nested = |open: &str, close: &str| format!("{}{}", open.repeat(4_000), close.repeat(4_000));
    let chain = |start: &str, link: &str| format!("{{{{ {start}{} }}}}", link.repeat(20_000));
    for source in [
        nested("{% if true %}", "{% endif %}"),
        nested("{% for a in b %}", "{% endfor %}"),
        format!("{{{{ {} }}}}", nested("(", ")")),
        format!("{{{{ {} }}}}", nested("[", "]")),
        format!("{{{{ {}1 }}}}", "not ".repeat(20_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(60_000)),
        chain("x", ".a"),
        chain("x", "|trim"),
        chain("1", " + 1"),
        chain("x", "()"),
        format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(10_000)),
    ] {
        let _ = render(&source, &json!({ "x": "a" }));
    }
    assert!(matches!(
        ChatTemplate::new(&"a".repeat(1 << 20)),
        Err(TemplateError::SourceTooLong(..))
    ));
}

/// A literal costs little fuel a level, so that this goes deepest: over two million levels.
#[test]
fn literals_nested_in_a_loop_do_not_overflow_the_stack() {
    let literal = format!("{}ns.x{}", "[".repeat(60), "]".repeat(60));
    for turns in [36_000, 50_000] {
        let deep = format!(
            "{{% set ns = namespace(x=1) %}}{{% for i in range({turns}) %}}{{% set ns.x = {literal} %}}{{% endfor %}}"
        );
        for end in ["", "{{ ns.x }}", "{{ ns.x | string }}"] {
            let _ = render(&format!("{deep}{end}"), &json!({}));
        }
    }
}

#[test]
fn a_template_that_its_fuel_does_not_stop_runs_out_of_time() {
    let compare = "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}";
    let start = Instant::now();
    assert!(matches!(
        render(compare, &json!({})),
        Err(TemplateError::Budget)
    ));
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn long_conversations_are_within_the_budget() {
    let content = "A sentence of a long conversation, again and again. ".repeat(20);
    let messages: Vec<(&str, &str)> = (0..1000)
        .map(|i| {
            (
                if i % 2 == 0 { "user" } else { "assistant" },
                content.as_str(),
            )
        })
        .collect();
    let vars = messages_to_vars(&messages, "<s>", "</s>", true, &serde_json::Map::new());
    let cases: Vec<Value> = serde_json::from_str(&data("expected.json")).unwrap();
    let mut names: Vec<&str> = cases
        .iter()
        .map(|case| case["template"].as_str().unwrap())
        .collect();
    names.dedup();
    for name in names {
        let text = ChatTemplate::new(&data(name)).unwrap().render(&vars);
        assert!(
            text.as_ref().is_ok_and(|t| t.len() > 500_000),
            "{name}: {:?}",
            text.err()
        );
    }
}

#[test]
fn python_methods_and_loop_controls() {
    let vars = json!({ "d": { "b": 1, "a": "x" }, "s": " a,b " });
    for (source, wanted) in [
        (
            "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
            "b=1;a=x;",
        ),
        (
            "{{ s.strip().split(',')[-1] }}{{ s.upper() }}{{ 'ab'.startswith('a') }}",
            "b A,B True",
        ),
        (
            "{{ d.get('z', 7) }}{{ d.keys() | list | length }}{{ 'abc'[::-1] }}",
            "72cba",
        ),
        (
            "{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
            "13",
        ),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        (
            "{{ none }}{{ false }}{{ 1.0 }}{{ missing }}",
            "NoneFalse1.0",
        ),
        (
            "{{ [1, 'a', none] | join('-') }}{{ 'abc' | join(',') }}{{ [d] | join(attribute='a') }}{{ 1.5 | string }}",
            "1-a-Nonea,b,cx1.5",
        ),
        ("{{ strftime_now('%Y') | length }}", "4"),
    ] {
        assert_eq!(render(source, &vars).unwrap(), wanted, "{source}");
    }
}

#[test]
fn variables_of_a_conversation() {
    let extra = json!({ "enable_thinking": false, "eos_token": "E" });
    let vars = messages_to_vars(
        &[("user", "hi")],
        "B",
        "</s>",
        true,
        extra.as_object().unwrap(),
    );
    let text = render(
        "{{ bos_token }}{{ messages[0].role }}{{ messages[0]['content'] }}{{ enable_thinking }}{{ eos_token }}",
        &vars,
    );
    assert_eq!(text.unwrap(), "BuserhiFalseE");
}
