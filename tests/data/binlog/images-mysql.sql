create table j (id int primary key, doc json, n int);
insert into j values (1, '{"a": 1, "b": ["x", "y"], "pad": "pppppppppppppppppppppppppppppppppppppppppppppppppppppp"}', 1);
set session binlog_row_value_options = PARTIAL_JSON;
update j set doc = json_replace(doc, '$.a', 2), n = 2;
set session binlog_row_image = MINIMAL;
update j set doc = json_set(doc, '$.b[1]', 'z');
update j set doc = json_remove(doc, '$.b[0]');
update j set doc = json_set(doc, '$.a', 'w'), id = 5;
update j set doc = '[]';
