"""`tidegate init`: writes a small project that runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.output.error_output import reported_errors
from tidegate.errors import UnusableFolder

PIPELINE = '''\
"""The best-selling item of each month."""

import tidegate as tg

pipeline = tg.Pipeline("shop")
sales = pipeline.source("sales", "item_id bigint, quantity int, sold_on date")
items = pipeline.source("items", "item_id bigint, item_name string")

sold = sales.select("item_id", "quantity", month="date_format(sold_on, 'yyyy-MM')").aggregate(
    by=["month", "item_id"], sold="sum(quantity)", shards=2
)
best = sold.top(1, by="sold desc, item_id", per="month").join(items, on="item_id")
best.select("month", "item_name", "sold").sink("best_selling")
'''
TEST = '''\
"""The pipeline on the sample data; run it with `pytest`."""

from pathlib import Path

from shop import pipeline

DATA = Path(__file__).parent / "data"


def test_the_best_selling_item_of_each_month():
    results = pipeline.run(sales=DATA / "sales/*.csv", items=DATA / "items/*.csv")
    best = results["best_selling"].to_arrow().sort_by("month").to_pylist()
    assert [(row["month"], row["item_name"], row["sold"]) for row in best] == [
        ("2025-01", "tea", 9),
        ("2025-02", "coffee", 12),
    ]
'''
README = """\
# shop

The best-selling item of each month, as a Tidegate pipeline.

- `shop.py` declares the pipeline, `data/<source>/*.csv` are its chunks, `test_shop.py` tests it.
- Run it: `tidegate run shop:pipeline --data data --out out`, then read `out/best_selling.csv`.
- Print its plan: `tidegate explain shop:pipeline`.
- Test it: `pytest`.
- Serve it to clients: `tidegate up shop:pipeline --deployment deployment`, then
  `tidegate submit shop --run first --data data --wait --out out`.
"""
SALES = "item_id,quantity,sold_on\n"
FILES: Mapping[str, str] = {
    "shop.py": PIPELINE,
    "test_shop.py": TEST,
    "README.md": README,
    "data/sales/1.csv": f"{SALES}1,4,2025-01-03\n2,6,2025-01-09\n1,5,2025-01-20\n",
    "data/sales/2.csv": f"{SALES}2,12,2025-02-02\n1,7,2025-02-14\n",
    "data/items/1.csv": "item_id,item_name\n1,tea\n2,coffee\n",
}


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
) -> None:
    """Write a small project that runs: a pipeline, sample data, a test and a README."""
    with reported_errors(as_json=False):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UnusableFolder(str(folder), "it is not an empty folder; name a new one")
        for name, text in FILES.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        typer.echo(f"wrote {len(FILES)} files to {folder}; run the pipeline with")
        typer.echo(f"  cd {folder} && tidegate run shop:pipeline --data data --out out")
