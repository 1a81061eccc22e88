"""Prompt data: any supported source to Miles JSONL, and Miles JSONL back to checked prompts."""
