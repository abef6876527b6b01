drop database if exists ty; create database ty character set utf8mb4; use ty;
create table c (id int primary key, v varchar(200), n int);
insert into c values (1, repeat('a', 200), 1), (2, repeat('b', 200), 2), (3, repeat('c', 200), 3);
update c set v = repeat('d', 200) where id < 3;
update c set id = 30 where id = 3;
delete from c where id = 1;
create table e (id int primary key, note text comment 'the statement itself is long enough to be compressed by a server that compresses its log: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa');
begin; insert into c values (4, 'x', 4); insert into e values (1, repeat('z', 500)); commit;
