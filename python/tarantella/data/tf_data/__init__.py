"""Reading, checking and splitting tf.data pipelines, for any backend."""
