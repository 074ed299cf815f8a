"""One broker: takes messages, keeps them, hands them out."""
