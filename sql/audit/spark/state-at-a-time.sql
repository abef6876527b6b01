-- The orders as they were, by status. Change the version; batches-at-a-time.sql tells that of a commit time of the source.
SELECT status, count(*) AS orders, sum(total) AS total
FROM orders VERSION AS OF 9
GROUP BY status
ORDER BY status
