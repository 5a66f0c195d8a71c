"""The best exact method on ten tasks: trained and ridge heads, merged models, ridge alone, and full fine-tuning."""
