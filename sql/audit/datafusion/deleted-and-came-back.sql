-- Customers that were deleted, and the version in which one of the same key came back, if any did.
SELECT d.id, d.name, d._commit_version AS deleted_in, min(i._commit_version) AS came_back_in
FROM table_changes('customers', 0) d
LEFT JOIN table_changes('customers', 0) i
  ON i.id = d.id AND i._change_type = 'insert' AND i._commit_version > d._commit_version
WHERE d._change_type = 'delete'
GROUP BY d.id, d.name, d._commit_version
ORDER BY d.id, deleted_in
