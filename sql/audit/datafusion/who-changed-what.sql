-- All that happened to one order: when, where in the source's log, and what it was before and after. The position leads to the
-- transaction: mysqlbinlog --stop-position=OFFSET FILE shows the batch that ends there.
SELECT b.commit_time, b.position, b.gtid_set, c._commit_version AS version, c._change_type AS change, c.status, c.total
FROM table_changes('orders', 0) c
JOIN alluvium.batches b ON b.database_name = 'shop' AND b.table_name = 'orders' AND b.version = c._commit_version
WHERE c.id = 1020
ORDER BY version, change DESC
