//! The verbs, one file each.

pub mod bench;
pub mod chat;
pub mod completions;
pub mod list;
pub mod logits;
pub mod measure;
pub mod plan;
pub mod pull;
pub mod receipts;
pub mod rm;
pub mod run;
pub mod show;
pub mod template;
pub mod tokenize;
pub mod version;
