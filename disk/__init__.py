"""Files: whole or absent, regular or refused, with enough of them open."""
