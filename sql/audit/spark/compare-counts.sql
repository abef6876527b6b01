-- How many rows each table had at an older version, and has now.
SELECT 'customers' AS table_name, (SELECT count(*) FROM customers VERSION AS OF 5) AS before, (SELECT count(*) FROM customers) AS now
UNION ALL
SELECT 'order_items' AS table_name, (SELECT count(*) FROM order_items VERSION AS OF 5) AS before, (SELECT count(*) FROM order_items) AS now
UNION ALL
SELECT 'orders' AS table_name, (SELECT count(*) FROM orders VERSION AS OF 5) AS before, (SELECT count(*) FROM orders) AS now
UNION ALL
SELECT 'products' AS table_name, (SELECT count(*) FROM products VERSION AS OF 5) AS before, (SELECT count(*) FROM products) AS now
ORDER BY table_name
