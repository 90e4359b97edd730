"""The report: figures of a comparison, the numbers behind them, and one page that holds it all."""
