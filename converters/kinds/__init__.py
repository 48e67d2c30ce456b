"""The kinds of files that can be converted, one file for each; `registry` lists them."""
