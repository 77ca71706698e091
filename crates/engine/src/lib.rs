//! What a model is and what it costs.
