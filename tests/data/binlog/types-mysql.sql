create table m (id int primary key, j json, v vector(3), h int invisible default 3); insert into m(id,j,v) values (1,'{"a": [1, 2.5, "x", null, true], "b": {"c": 1e100}}', string_to_vector('[1,2.5,-3]')),(2,'null',null),(3,null,null);
set sql_generate_invisible_primary_key=1; create table gipk (a int); insert into gipk values (5);
create table fx (id int primary key, a varchar(10), index ((upper(a)))); insert into fx values (1,'q');
