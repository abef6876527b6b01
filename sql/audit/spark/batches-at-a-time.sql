-- Which version of each table is complete up to a commit time of the source, and up to which position.
WITH at AS (
  SELECT max(sequence) AS sequence FROM alluvium.batches WHERE commit_time <= TIMESTAMP '2026-09-08 18:00:00'
), numbered AS (
  SELECT b.*, row_number() OVER (PARTITION BY b.database_name, b.table_name ORDER BY b.sequence DESC) AS age
  FROM alluvium.batches b CROSS JOIN at
  WHERE b.sequence <= at.sequence AND b.version IS NOT NULL
)
SELECT database_name, table_name, version, state, position, commit_time
FROM numbered
WHERE age = 1
ORDER BY database_name, table_name
