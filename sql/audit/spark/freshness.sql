-- How fresh each table is: when the source changed it last, up to when the job has read the source, and how long ago that is.
WITH numbered AS (
  SELECT *, row_number() OVER (PARTITION BY database_name, table_name ORDER BY sequence DESC) AS age
  FROM alluvium.batches
  WHERE table_name IS NOT NULL
)
SELECT n.database_name, n.table_name, n.state, n.version, n.position AS changed_at, n.commit_time AS changed,
  j.commit_time AS read_up_to, unix_timestamp() - unix_timestamp(j.commit_time) AS age_seconds
FROM numbered n
CROSS JOIN (SELECT commit_time FROM alluvium.batches ORDER BY sequence DESC LIMIT 1) j
WHERE n.age = 1
ORDER BY n.database_name, n.table_name
