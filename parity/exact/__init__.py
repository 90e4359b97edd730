"""The exact arithmetic: one mathematical definition, the same bits from every engine."""
