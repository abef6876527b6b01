-- What happened to the orders in some days of the source, batch by batch.
SELECT b.commit_time, b.position, c._change_type AS change, count(*) AS changes
FROM table_changes('orders', 0) c
JOIN alluvium.batches b ON b.database_name = 'shop' AND b.table_name = 'orders' AND b.version = c._commit_version
WHERE b.commit_time >= TIMESTAMP '2026-09-05 00:00:00' AND b.commit_time < TIMESTAMP '2026-09-08 00:00:00'
  AND c._change_type <> 'update_preimage'
GROUP BY b.commit_time, b.position, c._change_type
ORDER BY b.commit_time, change
