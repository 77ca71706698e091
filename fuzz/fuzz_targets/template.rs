//! Any text as a chat template: rendered or refused, within its limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ounce_engine::template::ChatTemplate;

fuzz_target!(|source: &str| {
    let Ok(template) = ChatTemplate::new(source) else { return };
    let vars = serde_json::json!({
        "messages": [{ "role": "user", "content": "Hi" }],
        "add_generation_prompt": true,
        "bos_token": "<s>",
        "eos_token": "</s>",
    });
    let _ = template.render(&vars);
});
