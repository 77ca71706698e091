//! How deep a template may go: the stack of its thread, and the budgets that keep it within.
//!
//! The engine recurses where source or values nest, and a stack that overflows ends the process. So the stack comes
//! first, as large as the system allows, and what a template may do follows from it.

use std::thread;

use crate::memory::{caps, probe};

/// Most steps of a render: one instruction, or 64 bytes of data. A conversation of 1000 messages takes up to 3 million in
/// the templates known; the budget bounds a hostile one to about 256 MB and a second.
const FUEL: u64 = 4_000_000;

/// Longest template in bytes; the longest known have some 30 000.
const SOURCE: usize = 128 << 10;

/// Bytes of stack for one fuel. Measured: 252 for list literals that nest 60 deep around the value so far, in a loop (1.6
/// fuel and 400 bytes a level); tuples and maps take less. Optimised builds.
const BYTES_A_FUEL: usize = 320;

/// Bytes of stack for one byte of source. Measured: 435 for a chain of minus signs, 219 for one of sums.
const BYTES_A_SOURCE_BYTE: usize = 640;

/// Largest stack: what the budgets above can use. It is address space; only what is used of it becomes memory.
const LARGEST: usize = FUEL as usize * BYTES_A_FUEL;

/// Smallest stack, tried even where less is left.
const SMALLEST: usize = 4 << 20;

/// A stack and what may be done on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Bytes of the thread's stack.
    pub stack: usize,
    /// Budget of a render.
    pub fuel: u64,
    /// Longest source in bytes.
    pub source: usize,
}

impl Limits {
    /// What the system allows now: a quarter of what the memory limits of the process leave, and of the machine's memory,
    /// beyond which the kernel refuses a mapping even where nothing of it is used.
    pub fn now() -> Limits {
        let left = |limit: Option<u64>, used: Option<u64>| {
            limit.map(|l| l.saturating_sub(used.unwrap_or(0)))
        };
        let status = probe::status();
        let most = [
            left(caps::rlimit_data(), status.map(|s| s.data)),
            left(caps::rlimit_as(), status.map(|s| s.virt)),
            caps::meminfo().map(|m| m.total),
        ];
        let most = most.into_iter().flatten().map(|bytes| bytes / 4).min();
        let most = most.and_then(|bytes| usize::try_from(bytes).ok());
        let mut stack = most.unwrap_or(LARGEST).clamp(SMALLEST, LARGEST);
        // Other limits, and a machine that commits no memory it does not have, show when it is tried.
        while stack > SMALLEST && !can_start(stack) {
            stack = (stack / 2).max(SMALLEST);
        }
        Limits::of(stack)
    }

    /// The budgets that `stack` bytes are enough for.
    fn of(stack: usize) -> Limits {
        Limits {
            stack,
            fuel: FUEL.min((stack / BYTES_A_FUEL) as u64),
            source: SOURCE.min(stack / BYTES_A_SOURCE_BYTE),
        }
    }
}

fn can_start(stack: usize) -> bool {
    let thread = thread::Builder::new().stack_size(stack).spawn(|| ());
    thread.is_ok_and(|t| t.join().is_ok())
}

#[cfg(test)]
mod tests {
    use super::super::{ChatTemplate, DateTime, TemplateError};
    use super::*;

    #[test]
    fn budgets_follow_the_stack() {
        let all = Limits::of(LARGEST);
        assert_eq!((all.fuel, all.source), (FUEL, SOURCE));
        let few = Limits::of(SMALLEST);
        assert!(few.fuel < FUEL / 100 && few.source > 6000, "{few:?}");
        let now = Limits::now();
        assert!((SMALLEST..=LARGEST).contains(&now.stack) && now == Limits::of(now.stack));
    }

    fn render(source: &str, limits: Limits) -> Result<String, TemplateError> {
        let template = ChatTemplate::within(limits, source, DateTime::now)?;
        template.render(&serde_json::json!({ "x": "a" }))
    }

    /// An overflow would end the test's process.
    #[test]
    fn no_nesting_overflows_a_small_stack() {
        for stack in [SMALLEST, 24 << 20] {
            let limits = Limits::of(stack);
            let nest =
                |open: &str, close: &str| format!("{}ns.x{}", open.repeat(60), close.repeat(60));
            for literal in [
                nest("[", "]"),
                nest("(", ",)"),
                nest("{1:", "}"),
                "[ns.x]".into(),
            ] {
                // About 95 fuel a turn; some counts leave just enough for the end.
                for percent in [20, 50, 80, 90, 200] {
                    let turns = (limits.fuel / 95 * percent / 100).min(100_000);
                    for end in [
                        "",
                        "{{ ns.x }}",
                        "{{ ns.x == ns.x }}",
                        "{{ ns.x | string }}",
                        "{{ ns.x | tojson }}",
                        "{{ [ns.x, ns.x] | sort }}",
                    ] {
                        let _ = render(
                            &format!(
                                "{{% set ns = namespace(x=1) %}}{{% for i in range({turns}) %}}{{% set ns.x = {literal} %}}{{% endfor %}}{end}"
                            ),
                            limits,
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn no_source_overflows_a_small_stack() {
        for stack in [SMALLEST, 24 << 20] {
            let limits = Limits::of(stack);
            for link in [
                "-", "not ", "+1", "~x", "()", ".a", "|e", "**x", " and x", "[1]",
            ] {
                let is_prefix = ["-", "not "].contains(&link);
                let links = link.repeat((limits.source - 8) / link.len());
                let source = match is_prefix {
                    true => format!("{{{{ {links}1 }}}}"),
                    false => format!("{{{{ 1{links} }}}}"),
                };
                assert!(source.len() <= limits.source);
                assert!(!matches!(
                    render(&source, limits),
                    Err(TemplateError::SourceTooLong(..))
                ));
            }
            let long = " ".repeat(limits.source + 1);
            let error = render(&long, limits).unwrap_err();
            assert!(
                matches!(error, TemplateError::SourceTooLong(n, m) if n == m + 1),
                "{error}"
            );
        }
    }

    #[test]
    fn a_conversation_fits_the_smallest_stack() {
        let source = "{% for m in x %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}{% endfor %}";
        let template = ChatTemplate::within(Limits::of(SMALLEST), source, DateTime::now).unwrap();
        let message = serde_json::json!({ "role": "user", "content": "word ".repeat(100) });
        let text = template
            .render(&serde_json::json!({ "x": vec![message; 100] }))
            .unwrap();
        assert!(text.len() > 50_000);
    }
}
