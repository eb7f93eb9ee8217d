"""DuckLake: tables whose log is a SQL database, in SQLite, PostgreSQL or DuckDB.

Sources: the DuckLake specification 1.0, "Tables" and "Queries"; tables that DuckDB's extension 1.5.5 wrote.
"""
