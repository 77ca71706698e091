//! A record in the making.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    Distribution, Fingerprint, Receipt, SCHEMA, VERSION, arguments, canonical, model_file,
};
use crate::EngineError;
use crate::model::ModelSpec;
use crate::template::DateTime;

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// What a model will cost.
    Plan,
    /// What it did cost, beside the plan.
    Measure,
    /// How fast it is.
    Bench,
}

/// What ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// The arguments, the verb first; paths are reduced to file names when they are recorded.
    pub arguments: Vec<String>,
    /// Version of the program.
    pub version: String,
    /// Commit it was built from, or `unknown`.
    pub commit: String,
}

/// A record that is being filled in. What is not given is absent from it.
#[derive(Clone, Debug)]
pub struct ReceiptBuilder {
    document: Map<String, Value>,
    distributions: Map<String, Value>,
}

impl Receipt {
    /// Begins a record of now: `ran` about the model `spec` on `device`.
    ///
    /// # Errors
    /// The model's file changed while its header was hashed.
    pub fn builder(
        kind: Kind,
        ran: &Ran,
        spec: &ModelSpec,
        device: &Fingerprint,
    ) -> Result<ReceiptBuilder, EngineError> {
        let arguments: Vec<String> = ran
            .arguments
            .iter()
            .map(|a| arguments::without_folders(a))
            .collect();
        let mut builder = ReceiptBuilder {
            document: Map::new(),
            distributions: Map::new(),
        };
        for (key, value) in [
            ("schema", json!(SCHEMA)),
            ("version", json!(VERSION)),
            ("kind", json!(kind)),
            ("created", json!(DateTime::now_rfc3339())),
            (
                "ran",
                json!({
                    "arguments": arguments,
                    "version": ran.version,
                    "commit": ran.commit,
                    "os": std::env::consts::OS,
                    "arch": std::env::consts::ARCH,
                }),
            ),
            ("device", json!(device)),
            ("file", model_file::section(spec)?),
        ] {
            builder.document.insert(key.to_owned(), value);
        }
        Ok(builder)
    }
}

impl ReceiptBuilder {
    /// What was planned.
    #[must_use]
    pub fn plan(self, plan: Value) -> Self {
        self.section("plan", plan)
    }

    /// What it really took.
    #[must_use]
    pub fn actual(self, actual: Value) -> Self {
        self.section("actual", actual)
    }

    /// How it ended: an object with at least a `name`.
    #[must_use]
    pub fn verdict(self, verdict: Value) -> Self {
        self.section("verdict", verdict)
    }

    /// What `values`, each in `unit`, come to; left out where [`Distribution::of`] gives nothing.
    #[must_use]
    pub fn distribution(mut self, name: &str, unit: &str, values: &[f64]) -> Self {
        if let Some(d) = Distribution::of(values) {
            let mut fields = Map::from_iter([("unit".to_owned(), json!(unit))]);
            if let Value::Object(statistics) = json!(d) {
                fields.extend(statistics);
            }
            self.distributions
                .insert(name.to_owned(), Value::Object(fields));
        }
        self
    }

    fn section(mut self, key: &str, mut value: Value) -> Self {
        arguments::without_paths(&mut value);
        self.document.insert(key.to_owned(), value);
        self
    }

    /// The finished record, with its hash.
    #[must_use]
    pub fn seal(mut self) -> Receipt {
        if !self.distributions.is_empty() {
            let distributions = Value::Object(self.distributions);
            self.document
                .insert("distributions".to_owned(), distributions);
        }
        let hash = canonical::hash(&self.document);
        self.document
            .insert(canonical::HASH_FIELD.to_owned(), Value::String(hash));
        Receipt {
            document: self.document,
        }
    }
}
