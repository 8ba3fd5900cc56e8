"""The journal on disk: SQLAlchemy Core on one SQLite file. Nothing is imported here, because it is not cheap."""
