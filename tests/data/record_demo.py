"""Prints the statements of the demo, for record-demo.sh: `record_demo.py shop` or `record_demo.py warehouse`."""

import json
import random
import sys
from datetime import datetime, timedelta, timezone

ORDERS = 160
START = datetime(2026, 9, 1, 8, 0, tzinfo=timezone.utc)

PRODUCTS = [
    ("TEA-ASSAM-250", "Assam, 250 g", "7.90", "tea,organic"), ("TEA-SENCHA-100", "Sencha 煎茶, 100 g", "12.50", "tea"),
    ("COF-YIRGA-500", "Yirgacheffe, 500 g", "18.40", "coffee,organic"), ("COF-DECAF-250", "Decaf, 250 g", "9.95", "coffee"),
    ("CUP-BLUE", "Cup, cobalt blue", "14.00", "ware"), ("CUP-WHITE", "Cup, white", "11.00", "ware"),
    ("POT-1L", "Teapot, 1 l", "39.90", "ware"), ("FLT-100", "Filters, 100 pieces", "3.45", ""),
    ("GRD-HAND", "Hand grinder", "64.00", "ware"), ("SCL-KITCHEN", "Scales, 0.1 g", "27.30", "ware"),
    ("GIFT-25", "Gift card 25 €", "25.00", "gift"), ("HONEY-LIME", "Lime honey 🍯", "6.80", "organic"),
]
FIRST = "Ada Björn Chloé Dmitri Elif Fatima Giorgos Hana Ines Jürgen Kofi Lívia Mehmet Noor Oksana Pedro Quỳnh Rosa Søren Tomás".split()
LAST = "Adeyemi Brandt Castro Dvořák Eriksen Fischer García Haddad Ivanova Jensen Kowalski Lindgren Müller Nowak O'Brien Papadakis".split()
NOTES = [None, None, None, "Please ring twice", "Für die Großmutter 👵", "No plastic 🌱 please", "Call before delivery\nafter 6 pm", "贈り物です"]


def text(value):
    if value is None:
        return "NULL"
    return "'" + str(value).replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n") + "'"


class Script:
    """Statements with a clock of their own: the time that the server stamps on them."""

    def __init__(self, mysql):
        self.random = random.Random(20260901)
        self.now = START
        self.mysql = mysql
        self.say("SET NAMES utf8mb4", "SET time_zone = '+00:00'")

    def say(self, *statements):
        for statement in statements:
            print(statement + ";")

    def later(self, seconds):
        self.now += timedelta(seconds=self.random.randint(1, seconds))
        stamp = self.now.timestamp()
        self.say(f"SET TIMESTAMP = {stamp:.0f}")
        if self.mysql:  # what the GTID event carries as the commit time
            self.say(f"SET SESSION original_commit_timestamp = {int(stamp * 1_000_000) + self.random.randint(0, 999_999)}")

    def transaction(self, *statements, end="COMMIT"):
        self.say("BEGIN", *statements, end)

    def at(self):
        return text(self.now.strftime("%Y-%m-%d %H:%M:%S.") + f"{self.random.randint(0, 999):03}")


def shop():
    s = Script(mysql=True)
    s.say(
        "CREATE DATABASE shop CHARACTER SET utf8mb4", "USE shop",
        "CREATE TABLE customers (id INT UNSIGNED NOT NULL PRIMARY KEY, name VARCHAR(80) NOT NULL, email VARCHAR(120) NOT NULL, country CHAR(2) NOT NULL, "
        "tier ENUM('new','regular','gold') NOT NULL DEFAULT 'new', preferences JSON, created_at DATETIME(3) NOT NULL)",
        "CREATE TABLE products (sku VARCHAR(16) NOT NULL PRIMARY KEY, name VARCHAR(60) NOT NULL, price DECIMAL(10,2) NOT NULL, stock INT NOT NULL, "
        "tags SET('tea','coffee','ware','organic','gift') NOT NULL, updated_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6))",
        "CREATE TABLE orders (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, customer_id INT UNSIGNED NOT NULL, status ENUM('open','paid','shipped','cancelled') NOT NULL, "
        "total DECIMAL(12,2) NOT NULL, placed_at DATETIME(3) NOT NULL, note TEXT)",
        "CREATE TABLE order_items (order_id BIGINT UNSIGNED NOT NULL, line SMALLINT UNSIGNED NOT NULL, sku VARCHAR(16) NOT NULL, quantity INT NOT NULL, "
        "price DECIMAL(10,2) NOT NULL, PRIMARY KEY (order_id, line))",
    )
    s.later(60)
    s.say("INSERT INTO products (sku, name, price, stock, tags) VALUES " + ", ".join(f"({text(k)}, {text(n)}, {p}, 200, {text(t)})" for k, n, p, t in PRODUCTS))
    customers, placed, prices = [], [], {sku: float(price) for sku, _, price, _ in PRODUCTS}
    for order in range(1001, 1001 + ORDERS):
        s.later(9000)
        if len(customers) < 40 or s.random.random() < 0.1:
            new_customer(s, customers)
        place_order(s, order, customers, placed, prices, with_channel=order > 1001 + ORDERS // 2)
        events(s, order, placed, customers)
        if order == 1001 + ORDERS // 2:
            s.later(600)
            s.say("ALTER TABLE orders ADD COLUMN channel VARCHAR(10) NOT NULL DEFAULT 'web'")
            s.say("FLUSH BINARY LOGS")
    s.later(600)
    # A new name for an article: the key of one table, and the rows that refer to it, in one transaction.
    s.transaction("UPDATE products SET sku = 'TEA-ASSAM-FTGFOP' WHERE sku = 'TEA-ASSAM-250'", "UPDATE order_items SET sku = 'TEA-ASSAM-FTGFOP' WHERE sku = 'TEA-ASSAM-250'")
    s.later(600)
    s.say("UPDATE products SET price = ROUND(price * 1.05, 2) WHERE FIND_IN_SET('organic', tags)")


def new_customer(s, customers):
    number = len(customers) + 1
    name = f"{s.random.choice(FIRST)} {s.random.choice(LAST)}"
    wishes = {"newsletter": s.random.random() < 0.5, "language": s.random.choice(["de", "en", "fr", "ja"]), "sizes": [s.random.randint(1, 5), 2.5]}
    preferences = text(json.dumps(wishes)) if s.random.random() < 0.7 else "NULL"
    country = s.random.choice(["DE", "FR", "JP", "NO", "PT", "US"])
    s.say(f"INSERT INTO customers VALUES ({number}, {text(name)}, 'customer{number}@example.org', '{country}', 'new', {preferences}, {s.at()})")
    customers.append(number)


def place_order(s, order, customers, placed, prices, with_channel):
    lines = s.random.sample(sorted(prices), s.random.randint(1, 4))
    items, total = [], 0
    for line, sku in enumerate(lines, 1):
        quantity = s.random.randint(1, 3)
        total += round(prices[sku] * 100) * quantity
        items.append(f"({order}, {line}, {text(sku)}, {quantity}, {prices[sku]:.2f})")
    values = f"{order}, {s.random.choice(customers)}, 'open', {total / 100:.2f}, {s.at()}, {text(s.random.choice(NOTES))}"
    if with_channel:
        values += f", '{s.random.choice(['web', 'app', 'store'])}'"
    statements = [f"INSERT INTO orders VALUES ({values})", "INSERT INTO order_items VALUES " + ", ".join(items)]
    statements += [f"UPDATE products SET stock = stock - {item.split(', ')[3]} WHERE sku = {text(sku)}" for sku, item in zip(lines, items)]
    fate = s.random.random()
    if fate < 0.06:  # the card was refused
        s.transaction(*statements, end="ROLLBACK")
        return
    if fate < 0.12:  # a line that was taken back before the end
        statements += ["SAVEPOINT extra", f"INSERT INTO order_items VALUES ({order}, 99, 'GIFT-25', 1, 25.00)",
                       f"UPDATE orders SET total = total + 25 WHERE id = {order}", "ROLLBACK TO SAVEPOINT extra"]
    s.transaction(*statements)
    placed.append(order)


def events(s, order, placed, customers):
    for step, chance in (("paid", 0.9), ("shipped", 0.7), ("cancelled", 0.07)):
        if placed and s.random.random() < chance:
            s.later(1800)
            chosen = placed[max(0, len(placed) - {"paid": 1, "shipped": 4, "cancelled": 6}[step])]
            if step == "cancelled":
                s.transaction(f"UPDATE orders SET status = 'cancelled', total = 0, note = CONCAT_WS(' ', note, '(cancelled ❌)') WHERE id = {chosen}",
                              f"DELETE FROM order_items WHERE order_id = {chosen}")
            else:
                s.say(f"UPDATE orders SET status = '{step}' WHERE id = {chosen} AND status <> 'cancelled'")
    if order % 25 == 0:
        gone = customers[s.random.randrange(len(customers))]
        s.later(600)
        # The right to be forgotten.
        s.transaction(f"UPDATE orders SET note = NULL WHERE customer_id = {gone}", f"DELETE FROM customers WHERE id = {gone}")
    if order % 30 == 0:
        s.later(600)
        s.say("UPDATE customers SET tier = IF(id % 7 = 0, 'gold', 'regular') WHERE id IN (SELECT customer_id FROM orders WHERE status = 'shipped')")
    if order % 40 == 0:
        s.say("UPDATE customers SET preferences = JSON_SET(preferences, '$.language', 'pt') WHERE country = 'PT' AND preferences IS NOT NULL")


def warehouse():
    s = Script(mysql=False)
    s.say(
        "CREATE DATABASE warehouse CHARACTER SET utf8mb4", "USE warehouse",
        "CREATE TABLE stock (sku VARCHAR(16) NOT NULL, site ENUM('Hamburg','Porto','Osaka') NOT NULL, quantity INT NOT NULL, counted_at TIMESTAMP(3) NULL, PRIMARY KEY (sku, site))",
        "CREATE TABLE shipments (id UUID NOT NULL PRIMARY KEY, order_id BIGINT UNSIGNED NOT NULL, carrier VARCHAR(20) NOT NULL, weight_kg DECIMAL(6,3) NOT NULL, "
        "shipped_at DATETIME(6) NOT NULL, delivered_at DATETIME(6), remark VARCHAR(80) CHARACTER SET latin1)",
    )
    sites = ["Hamburg", "Porto", "Osaka"]
    s.later(60)
    s.say("INSERT INTO stock VALUES " + ", ".join(f"({text(p[0])}, '{site}', {s.random.randint(20, 90)}, NULL)" for p in PRODUCTS for site in sites))
    sent = []
    for order in range(1001, 1001 + ORDERS):
        s.later(9000)
        number = f"{s.random.getrandbits(48):012x}"
        shipment = f"0190{s.random.getrandbits(16):04x}-{s.random.getrandbits(16):04x}-7{s.random.getrandbits(12):03x}-8000-{number}"
        sku, site = s.random.choice(PRODUCTS)[0], s.random.choice(sites)
        remark = s.random.choice([None, None, "zerbrechlich", "à l'étage", "señal débil"])
        statements = [
            f"INSERT INTO shipments VALUES ('{shipment}', {order}, '{s.random.choice(['DHL', 'Correios', 'ヤマト運輸'])}', {s.random.randint(100, 9999) / 1000:.3f}, {s.at()}, NULL, {text(remark)})",
            f"UPDATE stock SET quantity = quantity - 1 WHERE sku = {text(sku)} AND site = '{site}'",
        ]
        lost = s.random.random() < 0.08
        s.transaction(*statements, end="ROLLBACK" if lost else "COMMIT")
        if not lost:
            sent.append(shipment)
        if len(sent) > 5 and s.random.random() < 0.8:
            s.later(900)
            s.say(f"UPDATE shipments SET delivered_at = {s.at()} WHERE id = '{sent[-5]}'")
        if order % 40 == 0:
            s.later(900)
            s.say(f"UPDATE stock SET counted_at = CURRENT_TIMESTAMP(3), quantity = quantity + {s.random.randint(1, 9)} WHERE site = '{site}'")
            s.say(f"DELETE FROM shipments WHERE delivered_at IS NOT NULL ORDER BY id LIMIT 5")
        if order == 1001 + ORDERS // 2:
            s.say("FLUSH BINARY LOGS")
    s.later(600)
    s.say("UPDATE stock SET sku = 'TEA-ASSAM-FTGFOP' WHERE sku = 'TEA-ASSAM-250'")


{"shop": shop, "warehouse": warehouse}[sys.argv[1]]()
