"""The report of a run: what its files say, counts of predictions by class, and the page that shows them."""
