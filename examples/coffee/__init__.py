"""Four queries of a chain of coffee shops about its sales of 2024 and 2025.

q1                the large daytime transactions
q2_best_selling   for every month, the item with the largest quantity sold
q2_most_profit    for every month, the item with the largest revenue
q3                for every half-year and store, the volume of daytime payments
q4                for every store, the birthdays of its three most frequent customers
"""

from __future__ import annotations

import tidegate as tg

# Shop time has no time zone and must not be converted, hence timestamp_ntz.
TRANSACTIONS = """
    transaction_id string, store_id bigint, payment_method_id bigint, voucher_id bigint,
    user_id bigint, original_amount decimal(12,2), discount_applied decimal(12,2),
    final_amount decimal(12,2), created_at timestamp_ntz
"""
TRANSACTION_ITEMS = """
    transaction_id string, item_id bigint, quantity bigint, unit_price decimal(12,2),
    subtotal decimal(12,2), created_at timestamp_ntz
"""
MENU_ITEMS = """
    item_id bigint, item_name string, category string, price decimal(12,2),
    is_seasonal boolean, available_from date, available_to date
"""
STORES = """
    store_id bigint, store_name string, street string, postal_code string, city string,
    state string, latitude double, longitude double
"""
USERS = "user_id bigint, gender string, birthdate date, registered_at timestamp_ntz"

IN_2024_OR_2025 = "year(created_at) between 2024 and 2025"
FROM_6_TO_23_O_CLOCK = """
    hour(created_at) * 3600 + minute(created_at) * 60 + second(created_at)
    between 6 * 3600 and 23 * 3600
"""

pipeline = tg.Pipeline("coffee", shards=2)

transactions = pipeline.source("transactions", TRANSACTIONS)
transaction_items = pipeline.source("transaction_items", TRANSACTION_ITEMS)
menu_items = pipeline.source("menu_items", MENU_ITEMS)
stores = pipeline.source("stores", STORES)
users = pipeline.source("users", USERS)

payments = transactions.filter(IN_2024_OR_2025)
daytime_payments = payments.filter(FROM_6_TO_23_O_CLOCK)

# Q1: large transactions

daytime_payments.filter("final_amount >= 75").select("transaction_id", "final_amount").sink("q1")

# Q2: the best selling item and the item with the largest revenue of each month

monthly_sales = (
    transaction_items.filter(IN_2024_OR_2025)
    .filter("item_id is not null")  # rows without an item are no candidates
    .select("item_id", "quantity", "subtotal", month="trunc(date(created_at), 'month')")
    .aggregate(
        by=["month", "item_id"],
        sellings_qty="sum(quantity)",
        profit_sum="sum(subtotal)",
        exact=True,
    )
)
year_month = "date_format(month, 'yyyy-MM')"

(
    monthly_sales.top(1, by="sellings_qty desc, item_id asc", per="month")
    .join(menu_items, on="item_id")
    .select(year_month_created_at=year_month, item_name="item_name", sellings_qty="sellings_qty")
    .sink("q2_best_selling")
)
(
    monthly_sales.top(1, by="profit_sum desc, item_id asc", per="month")
    .join(menu_items, on="item_id")
    .select(year_month_created_at=year_month, item_name="item_name", profit_sum="profit_sum")
    .sink("q2_most_profit")
)

# Q3: payments of each half-year and store

(
    daytime_payments.select(
        "store_id",
        "final_amount",
        year="year(created_at)",
        half="if(month(created_at) <= 6, 'H1', 'H2')",
    )
    .aggregate(by=["year", "half", "store_id"], tpv="sum(final_amount)", exact=True)
    .join(stores, on="store_id")
    .select(year_half_created_at="concat(year, '-', half)", store_name="store_name", tpv="tpv")
    .sink("q3")
)

# Q4: the birthdays of the three most frequent customers of each store

(
    payments.filter("user_id is not null")
    .aggregate(by=["store_id", "user_id"], purchases="count(*)")
    .top(3, by="purchases desc, user_id desc", per="store_id")
    .join(stores, on="store_id")
    .join(users, on="user_id")
    .select("store_name", "birthdate")
    .sink("q4")
)
