-- The orders as they were, by status. Change the version; or leave VERSION AS OF out, and give a commit time of the source:
-- alluvium sql --as-of '2026-09-08 18:00:00' --file state-at-a-time.sql
SELECT status, count(*) AS orders, sum(total) AS total
FROM orders VERSION AS OF 9
GROUP BY status
ORDER BY status
