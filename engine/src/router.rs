//! Which tools a turn offers: lexical scores over names, descriptions and parameters, within a token budget.
