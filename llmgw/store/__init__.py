"""PostgreSQL and nothing else knows it: named SQL, migrations, the embedded server, LISTEN/NOTIFY."""
