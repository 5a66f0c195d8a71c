"""The best exact method on twelve tasks: trained and ridge heads, merged models, ridge alone, and full fine-tuning."""
