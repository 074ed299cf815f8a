"""A web console, and an HTTP interface over the same operations. Needs the extra `kourou[console]`.

    browser ──▶ guard.py ──▶ pages/*.py ──┐
    curl    ──▶ (who? may  ──▶ api/*.py ──┴─▶ deeds/ ──▶ kourou.admin ──▶ brokers
                 they?)                        └─▶ audit.py

    login.py sessions.py attempts.py    accounts with a password, who is logged in, how often one may try
    server.py app.py visit.py           built when somebody first knocks; a request and who makes it
    patience.py guard.py                how long one may take; what is refused before anybody looks at it
    deeds/                              every change, once: for a page and for the interface; audited
    samples.py charts.py                what the charts show, and the pictures of it
    texts.py chinese.py                 what is said, in two languages
    templates/ static/                  pages and their looks; nothing is fetched from elsewhere

Whatever comes from a broker or a client (names, keys, bodies) is shown as text, never as HTML.
"""
