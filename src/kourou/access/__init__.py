"""Who may do what: signatures of requests. Knows no socket."""
