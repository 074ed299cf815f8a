"""Who may do what: signatures, accounts, rules, and the decision about a request. Knows no socket."""
