"""Tools that tests of several rooms use: a UDP path with impairments, a parser of its headers, and others."""
