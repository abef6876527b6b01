drop database if exists ty; create database ty; use ty; create table c (id int primary key, v int);
set gtid_next='AUTOMATIC:reload'; insert into c values (1,1); set gtid_next='AUTOMATIC:other_tag_0'; insert into c values (2,2); set gtid_next=automatic; insert into c values (3,3);
