"""Datasette with a database of a thousand rows."""

import atexit
import sqlite3
import tempfile
from pathlib import Path

from datasette.app import Datasette

FOLDER = tempfile.TemporaryDirectory()
atexit.register(FOLDER.cleanup)
PATH = Path(FOLDER.name, "stock.db")
with sqlite3.connect(PATH) as database:
    database.execute("create table teas (id integer primary key, name text, grams integer)")
    rows = [(number, f"tea {number} é", number % 50) for number in range(1000)]
    database.executemany("insert into teas values (?, ?, ?)", rows)

app = Datasette([str(PATH)], settings={"num_sql_threads": 1}).app()
