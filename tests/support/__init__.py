"""Tools that tests of several rooms use: a UDP path that harms what it carries, and its headers."""
