"""The database engine: connections, dialects, transactions, migrations, ids.

db             Database, Handle, migrate: the page that store modules read and import from
handle         statements in turn, savepoints, what follows a commit
engine         what a handle needs of an engine: Link, Deadlines
postgres       one engine           sqlite, files   the other
sql            :named values        migrations      schema.sql in sections        ids   TypeIDs
"""
